// Tasks of clients, and the servers that carry them out.
import { html } from "./preact.js";
import { ask, query } from "./api.js";
import { Text, When, number } from "./shown.js";
import { Act, Choice, Filter, Known, useData, usePages } from "./parts.js";

const states = [["running", "not over"], ["", "all"], ["working", "working"], ["input_required", "waits for answers"], ["completed", "completed"], ["failed", "failed"], ["cancelled", "cancelled"]];
const span = (seconds) => (seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.floor(seconds / 60)} min` : seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`);
const marks = { working: "open", input_required: "held", completed: "good", failed: "bad", cancelled: "open" };

/** Who carries a task out, and whether that is sure. */
function Owner({ of }) {
  if (!of) return html`<span class="known">over</span>`;
  const name = of.state === "this" ? "this server" : of.name ? html`<${Text} of=${of.name} cut=${40} />` : "a server that is not known";
  if (of.has_lapsed) return html`<span class="mark held">waits to be taken up</span> from ${name}`;
  return html`${name} ${of.state === "silent" ? html`<span class="mark held">silent</span>` : of.state === "stopped" ? html`<span class="mark held">stopped</span>` : of.state === "unknown" ? html`<span class="mark unknown">unknown</span>` : null}`;
}

function Nodes() {
  const data = useData("/nodes", 10);
  const state = (it) => (it.state === "alive" ? html`<span class="mark good">alive</span>` : it.state === "stopped" ? html`<span class="mark open">stopped</span>` : html`<span class="mark bad">silent for ${span(it.silent_seconds)}: killed, or cut off; its tasks are taken up by others</span>`);
  return html`<h2>Servers</h2><${Known} of=${data} isEmpty=${(it) => !it.nodes.length} empty="No server has said that it is there.">${(it) => html`
    ${it.is_shared ? null : html`<p class="known">No other server shares this ledger: it is a file.</p>`}
    <div class="wide" tabindex="0" role="region" aria-label="List of servers"><table><thead><tr>${["server", "state", "heard of", "version", "there for", "tasks", "sessions"].map((head) => html`<th scope="col">${head}</th>`)}</tr></thead><tbody>
      ${it.nodes.map((row) => html`<tr key=${row.id}><th scope="row"><${Text} of=${row.name} cut=${60} />${row.is_this ? " (this one)" : ""}</th><td>${state(row)}</td><td class="number">${row.silent_seconds ? `${span(row.silent_seconds)} ago` : "now"}</td><td><${Text} of=${row.version} cut=${30} /></td>
        <td class="number">${row.age_seconds === null ? "" : span(row.age_seconds)}</td><td class="number">${number(row.tasks)}</td><td class="number">${row.sessions === null ? "none can be" : number(row.sessions)}</td></tr>`)}</tbody></table></div>`}</${Known}>`;
}

export function Tasks({ view, go, me }) {
  const { client } = view;
  const state = view.state ?? "running";
  const pages = usePages(`/tasks${query({ client, state: state === "all" ? "" : state, limit: 100 })}`, "tasks", "before", 10);
  const cancel = (id) => async () => { await ask(`/tasks/${encodeURIComponent(id)}/cancel`, { method: "POST" }); pages.reload(); };
  const of = { data: pages.isKnown ? pages.first : null, read: pages.read, error: pages.error, busy: pages.busy, reload: pages.reload };
  return html`<section aria-label="Tasks and servers"><form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} name="client" label="Client" value=${client} onChange=${(value) => go({ client: value })} />
      <${Choice} label="State" value=${state === "all" ? "" : state} options=${states} onChange=${(value) => go({ state: value || "all" })} /></form>
    <h2>Tasks</h2>
    <${Known} of=${of} isEmpty=${() => !pages.items.length} empty=${pages.first?.tasks === null ? "Calls become no tasks here: tasks.enabled is false." : "There is no such task."}>${(first) => html`
      ${first.nodes_unknown ? html`<p class="notice held" role="alert">Which server carries what out is unknown: <${Text} of=${first.nodes_unknown} /></p>` : null}
      <div class="wide" tabindex="0" role="region" aria-label="List of tasks"><table><thead><tr>${["client", "tool", "state", "age", "begun", "carried out by", "message", "task", ""].map((head) => html`<th scope="col">${head || html`<span class="hidden">cancel</span>`}</th>`)}</tr></thead><tbody>
        ${pages.items.map((row) => html`<tr key=${row.id}><th scope="row"><${Text} of=${row.client} cut=${40} /></th><td><${Text} of=${row.capability} cut=${60} /></td><td><span class=${`mark ${row.is_error ? "bad" : marks[row.state]}`}>${row.is_error ? "completed with an error" : row.state.replaceAll("_", " ")}</span></td>
          <td class="number" title=${row.created}>${span(row.age_seconds)}</td><td class="number">${row.attempt === null ? "" : row.attempt === 1 ? "once" : `${row.attempt} times`}</td><td><${Owner} of=${row.owner} /></td><td><${Text} of=${row.message ?? ""} cut=${80} /></td><td><code><${Text} of=${row.id} /></code></td>
          <td>${row.owner ? html`<${Act} label="Cancel" confirm="Really cancel" kind="bad" needs="operator" role=${me.role} does=${cancel(row.id)} />` : html`<span class="known">changed <${When} at=${row.updated} /></span>`}</td></tr>`)}</tbody></table></div>
      ${pages.next ? html`<p><button onClick=${pages.more} disabled=${pages.busy}>More</button></p>` : null}`}</${Known}>
    <${Nodes} /></section>`;
}
