// Definitions of upstreams: what is held of them, how it differs, and decisions on it.
import { html, useState } from "./preact.js";
import { ask, query } from "./api.js";
import { Text, When } from "./shown.js";
import { Act, Choice, Copy, Differences, Facts, Filter, Rows, usePages } from "./parts.js";

const Mark = ({ of: it }) => html`<span class=${`mark ${it.state === "pinned" ? "good" : "held"}`}>${it.state}</span>${it.severity !== "-" ? html` <span class=${`mark ${it.severity === "high" ? "bad" : "held"}`}>${it.severity}: ${it.changes}</span>` : null}`;

/** A pinned definition, its differences, and what an operator may decide. */
export function Pin({ of: it, me, onDecided }) {
  const [reason, setReason] = useState("");
  const [said, setSaid] = useState(null);
  const decide = (what) => async () => {
    const body = { item: `${it.kind}/${it.name}`, reason };
    if (what === "approve") body.digest = it.to_approve;
    await ask(`/upstreams/${encodeURIComponent(it.upstream)}/pins/${what}`, { method: "POST", body });
    setSaid(what === "approve" ? "Approved." : "Held: calls of it are refused.");
    setReason("");
    onDecided();
  };
  return html`<p><${Mark} of=${it} />${it.since ? html` since <${When} at=${it.since} />` : null}</p>
    ${it.held_by ? html`<p class="notice held">Held by <${Text} of=${it.held_by[0]} />: <${Text} of=${it.held_by[1]} /></p>` : null}
    ${it.state.startsWith("changed") || it.state.startsWith("new") || it.differences.length ? html`<${Differences} of=${it.differences} before="pinned" after="offered now" />` : null}
    <${Facts} of=${[["Pinned", it.digest], ["To approve", it.to_approve ?? undefined], ["Approved by", it.approved_by ?? "nobody: seen first"], ["Reason", it.approved_reason ?? undefined]]} />
    <div class="decide"><label class="filter wide"><span>Reason (on record)</span><input name="pin-reason" value=${reason} maxlength="400" onInput=${(event) => setReason(event.currentTarget.value)} /></label>
      ${it.to_approve ? html`<${Act} label="Approve this definition" confirm="Really approve" kind="good" needs="operator" role=${me.role} does=${decide("approve")} />` : null}
      ${it.held_by ? null : html`<${Act} label="Hold" confirm="Really hold" kind="bad" needs="operator" role=${me.role} does=${decide("hold")} />`}
      ${it.approve_command ? html`<${Copy} text=${it.approve_command} label="Copy as command" />` : null}</div>
    <p role="status">${said ? html`<${Text} of=${said} />` : null}</p>`;
}

/** All definitions, those that are held first asked for. */
export function Pins({ view, go, me }) {
  const held = view.pins === "all" ? undefined : "1";
  const pages = usePages(`/pins${query({ held, upstream: view.of, limit: 200 })}`, "pins", "after");
  const chosen = pages.items.find((it) => `${it.upstream}/${it.kind}/${it.name}` === view.pin);
  return html`<div class="split"><section class="list" aria-label="Definitions"><p><a href="#/upstreams">Upstreams</a></p>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="Show" value=${view.pins} options=${[["held", "held"], ["all", "all"]]} onChange=${(value) => go({ pins: value, pin: undefined })} />
      <${Filter} name="of" label="Upstream" value=${view.of} onChange=${(value) => go({ of: value, pin: undefined })} /></form>
    <${Rows} of=${pages} label="Definitions" total=${pages.first?.count} empty=${held ? "Nothing is held." : "Nothing is pinned."} onOpen=${(it) => go({ pin: `${it.upstream}/${it.kind}/${it.name}` })}
      row=${(it) => html`<strong><${Text} of=${it.name} cut=${60} /></strong> <${Mark} of=${it} /><br /><span class="known"><${Text} of=${it.kind} /> of <${Text} of=${it.upstream} cut=${40} /></span>`} /></section>
  <section class="detail" aria-label="Definition">${chosen ? html`<h2 tabindex="-1"><${Text} of=${chosen.name} /></h2><${Pin} key=${view.pin} of=${chosen} me=${me} onDecided=${pages.reload} />`
    : html`<p class="empty">${view.pin ? "It is not in this list." : "Open a definition to see how it differs, and to decide."}</p>`}</section></div>`;
}
