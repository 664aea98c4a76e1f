// Calls that wait for a person: whole arguments, who asks and why, and one key to decide.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { ask, query } from "./api.js";
import { Json, Text, When, apart, differences } from "./shown.js";
import { Act, Choice, Copy, Differences, Facts, Filter, Known, Rows, rank, useData, usePages } from "./parts.js";

const states = [["", "pending"], ["approved", "approved"], ["denied", "denied"], ["used", "used"], ["expired", "expired"], ["revoked", "revoked"], ["all", "all"]];

export function Approvals({ view, go, me, keys }) {
  const { id, state, client } = view;
  const path = `/approvals${query({ state, client, limit: 100 })}`;
  const pages = usePages(path, "approvals", "before");
  const waiting = useData("/approvals?limit=100", 5);
  const newest = waiting.data?.approvals?.[0]?.id;
  useEffect(() => { if (newest && !state) pages.reload(); }, [newest, waiting.data?.approvals?.length]);
  return html`<div class="split"><section class="list" aria-label="Approvals">
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="State" value=${state} options=${states} onChange=${(value) => go({ state: value, id: undefined })} />
      <${Filter} name="client" label="Client" value=${client} onChange=${(value) => go({ client: value })} />
    </form>
    <${Rows} of=${pages} label="Approvals" empty=${state ? "No approvals in this state." : "Nothing waits for you."} onOpen=${(it) => go({ id: it.id })}
      row=${(it) => html`<strong><${Text} of=${it.capability} cut=${60} /></strong> <span class=${`mark ${it.state === "pending" ? "held" : it.state === "denied" ? "bad" : "open"}`}>${it.state}</span><br />
        <${Text} of=${it.client} cut=${40} /> · <${When} at=${it.requested} past />`} />
  </section>
  <section class="detail" aria-label="Approval">${id
    ? html`<${Approval} key=${id} id=${id} me=${me} keys=${keys} onDecided=${() => pages.reload()} onNext=${() => {
        const at = pages.items.findIndex((it) => it.id === id);
        const next = pages.items[at + 1] ?? pages.items[at - 1];
        go({ id: next?.id });
      }} />`
    : html`<p class="empty">Open an approval to see all of what is asked.</p>`}</section></div>`;
}

/** Whether a part of a value stands for what is too large to show. */
function folded(value) {
  if (typeof value === "string") return /^\[folded [a-z]+ of \d+ bytes, sha256 /.test(value);
  return value !== null && typeof value === "object" && Object.values(value).some(folded);
}

function Approval({ id, me, keys, onDecided, onNext }) {
  const data = useData(`/approvals/${id}`, 10);
  const [reason, setReason] = useState("");
  const [search, setSearch] = useState("");
  const [said, setSaid] = useState(null);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), [data.data === null]);
  const approval = data.data?.approval;
  const decide = async (decision) => {
    const body = { decision, binding: approval.binding };
    if (reason.trim()) body.reason = reason.trim();
    const done = await ask(`/approvals/${id}/decision`, { method: "POST", body });
    setSaid(`${done.state} by ${done.decided_by}`);
    data.reload();
    dispatchEvent(new Event("decided"));
    onDecided();
  };
  const may = approval?.state === "pending" && rank[me.role] >= rank.approver;
  useLayoutEffect(() => keys({
    a: may ? () => decide("approve").catch((error) => setSaid(error.message)) : null,
    d: may ? () => decide("deny").catch((error) => setSaid(error.message)) : null,
    n: onNext,
  }), [may, approval?.binding, reason]);
  return html`<${Known} of=${data}>${({ approval: it, agreed_before: before }) => {
    const left = (new Date(it.expires).getTime() - Date.now()) / 1000;
    const isFolded = folded(it.arguments);
    const found = search && JSON.stringify(it.arguments).toLowerCase().includes(search.toLowerCase());
    return html`<h2 tabindex="-1" ref=${heading}><${Text} of=${it.capability} /></h2>
      <p class="ask"><strong><${Text} of=${it.client} /></strong> wants to call this.
        ${it.reason ? html` It is asked about because: <${Text} of=${it.reason} />` : null}</p>
      <h3>Arguments, ${isFolded ? "with large parts folded" : "whole"}</h3>
      ${isFolded ? html`<p class="notice held">Parts of these arguments are too large to show: their sizes and digests are there instead, and a search does not look into them. Do not approve what you would have to read.</p>` : null}
      <${Json} of=${it.arguments} label="Arguments" />
      <label class="filter"><span>Search in the arguments</span><input type="search" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} /></label>
      ${search ? html` <span role="status" class=${`mark ${found ? "held" : "open"}`}>${found ? "found" : isFolded ? "not in what is shown" : "not found"}</span>` : null}
      ${before ? html`<h3>Compared with the last call that was agreed to</h3>
        <p class="known">Asked for <${When} at=${before.requested} />, agreed to by <${Text} of=${before.decided_by} />.</p>
        <${Differences} of=${differences(before.arguments, it.arguments)} before="agreed to" after="asked now" />`
        : html`<p class="known">No earlier call of this client for this was agreed to.</p>`}
      ${it.state === "pending" ? html`<div class="decide">
        <label class="filter wide"><span>Reason (optional, on record)</span><input name="reason" value=${reason} maxlength="400" onInput=${(event) => setReason(event.currentTarget.value)} /></label>
        <${Act} label="Approve (a)" kind="good" needs="approver" role=${me.role} does=${() => decide("approve")} />
        <${Act} label="Deny (d)" kind="bad" needs="approver" role=${me.role} does=${() => decide("deny")} />
        <span class="known">Runs out ${apart(-left)}.</span></div>` : null}
      ${it.state === "approved" || it.state === "denied" ? html`<div class="decide">
        <${Act} label="Take the decision back" needs="approver" role=${me.role} does=${() => decide("revoke")} /></div>` : null}
      <p role="status" aria-live="polite">${said ? html`<${Text} of=${said} />` : null}</p>
      <${Facts} of=${[["State", it.state], ["Approval", it.id], ["Who may decide", it.needs], ["Asked for", html`<${When} at=${it.requested} />`],
        ["Decided by", it.decided_by ?? undefined], ["Proved by", it.decided_proof ?? undefined], ["Reason", it.decided_reason ?? undefined],
        ["Taken back by", it.revoked_by ?? undefined], ["Used by the call", it.used_by ? html`<a href=${`#/activity?call=${it.used_by}`}>${it.used_by}</a>` : undefined],
        ["Version of the rules", it.policy_version], ["Digest of what is agreed to", it.binding]]} />
      <p><${Copy} text=${`owlclaw-mcp approvals approve ${it.id} --by NAME`} label="Copy as command" /> <button class="quiet" onClick=${onNext}>Next (n)</button></p>`;
  }}</${Known}>`;
}
