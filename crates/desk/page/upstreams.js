// Upstreams: their states, since when, and from what those are known.
import { html, useEffect, useRef, useState } from "./preact.js";
import { ask } from "./api.js";
import { Text, When, milliseconds, number } from "./shown.js";
import { Act, Copy, Facts, Known, useData, word } from "./parts.js";
import { Pin, Pins } from "./pins.js";

/** A state; what was never asked is not good, and not bad either. */
function State({ of }) {
  const kind = of.works === true ? "good" : of.works === false ? "bad" : of.state === "held" ? "held" : "unknown";
  return html`<span class=${`mark ${kind}`}>${of.state.replaceAll("_", " ")}${of.works === null && !["held", "off"].includes(of.state) ? ": unknown whether it works" : ""}</span>`;
}

export function Upstreams(all) {
  return all.view.pins ? html`<${Pins} ...${all} />` : html`<${States} ...${all} />`;
}

function States({ view, go, me }) {
  const data = useData("/upstreams", 5);
  return html`<div class="split"><section class="list" aria-label="Upstreams"><p><a href="#/upstreams?pins=held">Definitions that are held</a></p><${Known} of=${data} isEmpty=${(it) => !it.upstreams.length} empty="No upstreams are configured.">${({ upstreams }) => html`
    <ul class="cards">${upstreams.map((it) => html`<li key=${it.name}><button class=${`card ${view.name === it.name ? "chosen" : ""}`} aria-pressed=${view.name === it.name} onClick=${() => go({ name: it.name })}>
      <strong><${Text} of=${it.name} cut=${60} /></strong> <${State} of=${it} /><br />
      <span class="known"><${Text} of=${it.reason} cut=${140} /> · since <${When} at=${it.since} past /> · ${it.tools} tools${it.tools_withheld ? `, ${it.tools_withheld} withheld` : ""}</span></button></li>`)}</ul>`}</${Known}></section>
  <section class="detail" aria-label="Upstream">${view.name ? html`<${Upstream} key=${view.name} name=${view.name} me=${me} />` : html`<p class="empty">Open an upstream to see why it is in its state.</p>`}</section></div>`;
}

function Upstream({ name, me }) {
  const path = `/upstreams/${encodeURIComponent(name)}`;
  const data = useData(path, 10);
  const [said, setSaid] = useState(null);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), [data.data === null]);
  const recheck = async () => {
    const told = await ask(`${path}/recheck`, { method: "POST" });
    setSaid(told.failure ?? "connected anew");
    data.reload();
  };
  return html`<${Known} of=${data}>${({ upstream: it, tools, held, log }) => html`
    <h2 tabindex="-1" ref=${heading}><${Text} of=${it.name} /></h2>
    <p><${State} of=${it} /> since <${When} at=${it.since} />: <${Text} of=${it.reason} /></p>
    <p class="known">Known from ${it.connections ? `${it.connections} open connections` : "no open connection"}${it.lists_age_seconds === null ? "; its lists were never read" : ` and from lists that are ${it.lists_age_seconds} s old`}.</p>
    ${it.error ? html`<div class="notice bad"><${Text} of=${it.error} />${it.cure ? html`<br /><strong>Remedy:</strong> <${Text} of=${it.cure} />` : null}</div>` : null}
    <p><${Act} label="Recheck" needs="operator" role=${me.role} does=${recheck} /> <${Copy} text=${`owlclaw-mcp upstream recheck ${word(it.name)}`} label="Copy as command" />
      ${it.state === "login_needed" ? html`<${Copy} text=${`owlclaw-mcp upstream login ${word(it.name)}`} label="Copy the command that signs in" />` : null}</p>
    <p role="status">${said ? html`<${Text} of=${said} />` : null}</p>
    ${held.map((item) => html`<h3>Held: <${Text} of=${item.kind} /> <${Text} of=${item.name} /></h3><${Pin} key=${`${item.kind}/${item.name}`} of=${item} me=${me} onDecided=${data.reload} />`)}
    <${Facts} of=${[["Place", it.place], ["Server", it.server ?? "unknown"], ["Revision", it.revision ?? "unknown"], ["Resources", it.resources], ["Prompts", it.prompts],
      ["Calls since the start", number(it.calls)], ["Calls whose outcome is unknown", number(it.calls_lost)], ["Calls under way", it.calls_under_way], ["Connecting took", milliseconds(it.connect_ms)],
      ["Last fault", it.last_error ? html`<${When} at=${it.last_error_at} />: <${Text} of=${it.last_error} />` : "none since the start"]]} />
    ${it.left_out.length ? html`<h3>Left out</h3><ul>${it.left_out.map((text) => html`<li><${Text} of=${text} /></li>`)}</ul>` : null}
    <h3>Tools</h3>${tools.length ? html`<ul class="names">${tools.map(([own, offered]) => html`<li>${offered ? html`<a href=${`#/tools?name=${encodeURIComponent(offered)}`}><${Text} of=${offered} /></a>` : html`<${Text} of=${own} /> <span class="mark open">not on offer</span>`}</li>`)}</ul>` : html`<p class="empty">None.</p>`}
    <h3>End of its standard error</h3>${log === null ? html`<p class="empty">It is no program of this machine, or was not started.</p>` : log ? html`<pre class="json" tabindex="0" role="region" aria-label="Log"><${Text} of=${log} /></pre>` : html`<p class="empty">It has written nothing.</p>`}`}</${Known}>`;
}
