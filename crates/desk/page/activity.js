// The ledger as it grows, and as it was: filters that are links, and what proves an entry.
import { html, useEffect, useRef, useState } from "./preact.js";
import { address, ask, parse, query, stream } from "./api.js";
import { Json, Outcome, Text, When, milliseconds } from "./shown.js";
import { Act, Choice, Copy, Facts, Filter, Known, Rows, useData, usePages, word } from "./parts.js";

const outcomes = ["", "succeeded", "failed", "denied", "invalid", "timed_out", "cancelled", "abandoned", "unknown", "open"].map((it) => [it, it || "any"]);
const live = 200;

export function Activity({ view, go, me }) {
  const { call, client, tool, outcome, reason, since, notes, paused } = view;
  const filter = query({ client, tool, outcome, reason, since });
  return html`<div class="split"><section class="list" aria-label="Activity">
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} name="client" label="Client" value=${client} onChange=${(value) => go({ client: value })} />
      <${Filter} name="tool" label="Tool" value=${tool} onChange=${(value) => go({ tool: value })} />
      <${Choice} label="Outcome" value=${outcome} options=${outcomes} onChange=${(value) => go({ outcome: value })} />
      <${Filter} name="since" label="Since (90m, 7d, 2026-11-23)" value=${since} onChange=${(value) => go({ since: value })} />
      <${Choice} label="Show" value=${notes} options=${[["", "calls"], ["1", "events"]]} onChange=${(value) => go({ notes: value })} />
    </form>
    ${notes ? null : html`<${Live} filter=${{ client, tool, outcome, reason }} paused=${paused} go=${go} />`}
    ${notes ? html`<${Notes} go=${go} />` : html`<${Before} filter=${filter} go=${go} />`}
    <${Ledger} me=${me} filter=${filter} client=${client} tool=${tool} outcome=${outcome} since=${since} />
  </section>
  <section class="detail" aria-label="Entry">${call ? html`<${Entry} key=${call} id=${call} go=${go} />` : html`<p class="empty">Open a call to see all of it, and what proves it.</p>`}</section></div>`;
}

const line = (it) => html`<${Outcome} of=${it.outcome} reason=${it.reason} /> <strong><${Text} of=${it.capability} cut=${60} /></strong><br />
  <${Text} of=${it.client} cut=${40} /> · <${When} at=${it.time} /> · ${milliseconds(it.duration_ms)}`;

/** What comes, for as long as the page is open; only so much of it is kept. */
function Live({ filter, paused, go }) {
  const [state, setState] = useState("connecting");
  const [calls, setCalls] = useState([]);
  const [skipped, setSkipped] = useState(0);
  const waiting = useRef([]);
  const key = JSON.stringify(filter);
  useEffect(() => {
    if (paused) return undefined;
    setCalls([]);
    const takes = (it) => (!filter.client || it.client === filter.client) && (!filter.tool || it.capability === `tool/${filter.tool}`)
      && (!filter.outcome || it.outcome === filter.outcome) && (!filter.reason || it.reason === filter.reason);
    let frame = null;
    const show = () => {
      frame = null;
      const fresh = waiting.current.splice(0);
      setCalls((known) => {
        const named = new Map(known.map((it) => [it.call, it]));
        for (const it of fresh) { if (takes(it)) named.set(it.call, it); else named.delete(it.call); }
        return [...named.values()].sort((one, other) => (one.time < other.time ? 1 : -1)).slice(0, live);
      });
    };
    const source = stream("/activity");
    // A server that hangs keeps its connections, and says nothing.
    let heard = Date.now();
    const hear = () => { heard = Date.now(); setState("live"); };
    const watch = setInterval(() => { if (Date.now() - heard > 15000) setState((it) => (it === "live" ? "silent" : it)); }, 1000);
    source.onopen = hear;
    source.addEventListener("alive", hear);
    source.onerror = () => setState("broken");
    source.addEventListener("failed", () => setState("failed"));
    source.addEventListener("lagged", (event) => setSkipped((it) => it + (parse(event.data).skipped ?? 0)));
    source.addEventListener("entry", (event) => {
      hear();
      const told = parse(event.data);
      if (told.call) waiting.current.push(told.call);
      if (waiting.current.length > 10 * live) { setSkipped((it) => it + waiting.current.length - live); waiting.current.splice(0, waiting.current.length - live); }
      frame ??= requestAnimationFrame(show);
    });
    return () => { clearInterval(watch); source.close(); if (frame) cancelAnimationFrame(frame); waiting.current = []; };
  }, [key, paused]);
  const words = { connecting: "connecting", live: "live", broken: "connection lost; trying again: what happens now is unknown", silent: "nothing is heard of the server: what happens now is unknown", failed: "the ledger cannot be read: what happens now is unknown" };
  return html`<div class="live"><p><span role="status" class=${`mark ${paused ? "open" : state === "live" ? "good" : state === "connecting" ? "open" : "bad"}`}>${paused ? "paused" : words[state]}</span>
      ${skipped ? html` <span class="mark held">${skipped} entries were too many to show; they are in the list</span>` : null}
      <button class="quiet" onClick=${() => go({ paused: paused ? undefined : "1" })}>${paused ? "Go on" : "Pause"}</button></p>
    ${calls.length ? html`<ol class="come" aria-label="Calls since this page was opened" tabindex="0">${calls.slice(0, 50).map((it) => html`<li key=${it.call}><a href=${`#/activity?call=${it.call}`}>${line(it)}</a></li>`)}</ol>`
      : state === "live" ? html`<p class="empty">No call since this page was opened.</p>` : null}</div>`;
}

function Before({ filter, go }) {
  const pages = usePages(`/calls${filter}${filter ? "&" : "?"}limit=100`, "calls", "before");
  return html`<h3>Before</h3><${Rows} of=${pages} label="Calls in the ledger" empty="No call in the ledger meets this." row=${line} onOpen=${(it) => go({ call: it.call })} />`;
}

function Notes() {
  const pages = usePages("/notes?limit=100", "notes", "before");
  const [open, setOpen] = useState(null);
  return html`<h3>Events</h3><${Rows} of=${pages} label="Events in the ledger" empty="No event in the ledger." onOpen=${setOpen}
    row=${(it) => html`<strong><${Text} of=${it.kind} /></strong> <${Text} of=${it.subject} cut=${40} /><br /><${Text} of=${it.actor} cut=${40} /> · <${When} at=${it.time} /> · entry ${it.sequence}`} />
    ${open ? html`<${Json} of=${open} label=${`Event ${open.sequence}`} />` : null}`;
}

function Ledger({ me, filter, client, tool, outcome, since }) {
  const data = useData("/ledger", 15);
  const [verified, setVerified] = useState(null);
  const flags = [["--client", client], ["--tool", tool], ["--outcome", outcome], ["--since", since]].filter(([, it]) => it).map(([flag, it]) => `${flag} ${word(it)}`);
  return html`<details class="ledger"><summary>The ledger itself</summary><${Known} of=${data}>${(it) => html`
    <${Facts} of=${[["Entries", it.entries], ["Calls", it.calls], ["Open calls", it.open_calls], ["Sealed through entry", it.sealed_through || "none: no checkpoint yet"],
      ["Checkpoints are signed", it.signs_checkpoints ? "yes" : "no key is configured"]]} />
    <p><${Act} label="Verify the whole ledger" needs="viewer" role=${me.role} does=${async () => setVerified(await ask("/ledger/verify", { method: "POST", patience: 3600 }))} />
      <a class="button" href=${address(`/ledger/export${filter}`)} download="ledger.jsonl">Export</a>
      <${Copy} text=${`owlclaw-mcp ledger export ${flags.join(" ")}`} label="Copy as command" /></p>
    <div role="status">${verified ? html`<p><span class=${`mark ${verified.sound ? "good" : "bad"}`}>${verified.sound ? "sound" : "damaged"}</span>
      ${verified.entries} entries were read${verified.sealed ? ", sealed to the end" : `; sealed through ${verified.sealed_through} only`}.</p><${Json} of=${verified} label="Outcome of the verification" />` : null}</div>`}</${Known}></details>`;
}

function Entry({ id, go }) {
  const data = useData(`/calls/${id}`);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), [data.data === null]);
  return html`<${Known} of=${data}>${({ call: it, proof, notes }) => html`
    <h2 tabindex="-1" ref=${heading}><${Text} of=${it.capability} /></h2>
    <p><${Outcome} of=${it.outcome} reason=${it.reason} /> after ${milliseconds(it.duration_ms)}, by <button class="link" onClick=${() => go({ client: it.client })}><${Text} of=${it.client} /></button></p>
    <h3>Arguments</h3><${Json} of=${it.arguments} label="Arguments" />
    <h3>Result</h3>${it.outcome === "open" ? html`<p class="empty">It has not ended.</p>` : html`<${Json} of=${it.result} label="Result" />`}
    ${it.message ? html`<p class="notice bad"><${Text} of=${it.message} /></p>` : null}
    <h3>Proof</h3>
    ${proof ? html`<p><span class=${`mark ${proof.is_intact ? "good" : "bad"}`}>${proof.is_intact ? "the chain holds here" : "the chain is broken here"}</span>
        <span class=${`mark ${proof.sealed_through >= proof.sequence ? "good" : "open"}`}>${proof.sealed_through >= proof.sequence ? "sealed by a checkpoint" : "not sealed by a checkpoint yet"}</span></p>
      <${Facts} of=${[["Entry", proof.sequence], ["Hashed with entries", `${proof.group_first} to ${proof.group_last}`], ["Hash before", proof.hash_before], ["Hash", proof.hash]]} />`
      : html`<p class="notice bad">The entry is not in the chain: verify the ledger.</p>`}
    <h3>All of it</h3>
    <${Facts} of=${Object.entries(it).filter(([name, value]) => value !== null && !["arguments", "result"].includes(name)).map(([name, value]) => [name.replaceAll("_", " "), value])} />
    ${notes.length ? html`<h3>Events about it</h3><${Json} of=${notes} label="Events" />` : null}
    <p><${Copy} text=${`owlclaw-mcp ledger show ${it.call}`} label="Copy as command" /></p>`}</${Known}>`;
}
