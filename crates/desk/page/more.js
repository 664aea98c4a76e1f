// Use, health, skills and prompts, sessions.
import { html } from "./preact.js";
import { ask, query } from "./api.js";
import { Text, When, milliseconds, number, plain } from "./shown.js";
import { Act, Choice, Copy, Facts, Filter, Known, useData } from "./parts.js";

/** A bar of what is used; beside it the numbers, since a picture alone says too little. */
function Bar({ part, whole }) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return html`<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"><rect class="whole" width="100" height="8" /><rect class=${share >= 1 ? "over" : share >= 0.8 ? "near" : "part"} width=${100 * share} height="8" /></svg>`;
}

/** Links to dashboards that the configuration names. */
function Links({ of }) {
  const links = Object.entries(of ?? {}).filter(([, url]) => /^https?:\/\//i.test(url));
  return links.length ? html`<p>Dashboards: ${links.map(([name, url]) => html`<a class="link" key=${name} href=${url} target="_blank" rel="noopener noreferrer"><${Text} of=${name} /></a> `)}</p>` : null;
}

export function Usage({ view, go }) {
  const { client, tool, since } = view;
  const data = useData(`/usage${query({ client, tool, since })}`, 30);
  const limits = useData("/limits", 15);
  const health = useData("/health");
  return html`<section aria-label="Usage"><form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} name="client" label="Client" value=${client} onChange=${(value) => go({ client: value })} />
      <${Filter} name="tool" label="Tool" value=${tool} onChange=${(value) => go({ tool: value })} />
      <${Choice} label="Since" value=${since} options=${[["", "7 days"], ["1d", "1 day"], ["30d", "30 days"], ["366d", "a year"]]} onChange=${(value) => go({ since: value })} /></form>
    <${Links} of=${health.data?.links} />
    <h2>Calls by client and capability</h2>
    <${Known} of=${data} isEmpty=${(it) => !it.usage.length} empty="No call in this time.">${({ usage, currency }) => {
      const most = Math.max(...usage.map((it) => it.calls));
      return html`<div class="wide" tabindex="0" role="region" aria-label="Use"><table><thead><tr>${["client", "capability", "calls", "", "failed", "refused", "unknown", "open", `cost, ${currency}`, "half within", "95 % within"].map((it) => html`<th scope="col">${it}</th>`)}</tr></thead>
        <tbody>${usage.map((it) => html`<tr key=${it.client + it.capability}><th scope="row"><a href=${`#/activity?client=${encodeURIComponent(it.client)}`}><${Text} of=${it.client} cut=${40} /></a></th><td><${Text} of=${it.capability} cut=${60} /></td>
          <td class="number">${number(it.calls)}</td><td><${Bar} part=${it.calls} whole=${most} /></td><td class="number">${number(it.failed + it.invalid + it.timed_out)}</td>
          <td class="number" title=${plain(Object.entries(it.refused_by_reason).map(([reason, count]) => `${reason}: ${count}`).join(", "))}>${number(it.refused)}</td><td class="number">${number(it.unknown)}</td><td class="number">${number(it.open)}</td>
          <td class="number"><${Text} of=${it.cost} /></td><td class="number">${milliseconds(it.p50_ms)}</td><td class="number">${milliseconds(it.p95_ms)}</td></tr>`)}</tbody></table></div>`;
    }}</${Known}>
    <h2>Limits now</h2>
    <${Known} of=${limits} isEmpty=${(it) => !it.usage?.length} empty="No client has used anything that is counted.">${(it) => html`<div class="wide" tabindex="0" role="region" aria-label="Limits"><table><thead><tr>${["client", "spent this month", "of a budget of", "", "at this pace by its end", "calls this minute", "calls this day", "running"].map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${it.usage.map((row) => html`<tr key=${row.principal}><th scope="row"><${Text} of=${row.principal} cut=${40} /></th><td class="number"><${Text} of=${row.spent} /></td><td class="number"><${Text} of=${row.limits.monthly_budget ?? "no budget"} /></td>
        <td>${row.limits.monthly_budget ? html`<${Bar} part=${Number(row.spent)} whole=${Number(row.limits.monthly_budget)} />` : null}</td><td class="number">${pace(Number(row.spent))}</td>
        <td class="number">${row.calls_minute} of ${row.limits.calls_minute ?? "any"}</td><td class="number">${row.calls_day} of ${row.limits.calls_day ?? "any"}</td><td class="number">${row.running}</td></tr>`)}</tbody></table></div>`}</${Known}></section>`;
}

/** What would be spent by the end of the month (UTC) if it went on like this. */
function pace(spent) {
  const now = new Date();
  const begin = Date.UTC(now.getUTCFullYear(), now.getUTCMonth());
  const end = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1);
  const share = (now.getTime() - begin) / (end - begin);
  return share < 0.02 ? "too early to say" : `about ${(spent / share).toFixed(2)}`;
}

export function Health() {
  const data = useData("/health", 5);
  return html`<section aria-label="Health"><${Known} of=${data}>${(it) => html`
    <h2>${it.status === "ok" ? html`<span class="mark good">every part says that it works</span>` : html`<span class="mark bad">${it.status}</span>`}</h2>
    <ul class="cards">${it.parts.map((part) => html`<li key=${part.name} class="card"><strong><${Text} of=${part.name.replaceAll("_", " ")} /></strong> <span class=${`mark ${part.ok ? "good" : "bad"}`}>${part.ok ? "works" : "does not work"}</span>
      ${part.detail ? html`<p><${Text} of=${part.detail} /></p>` : null}${part.remedy ? html`<p><strong>Remedy:</strong> <${Text} of=${part.remedy} /></p>` : null}</li>`)}</ul>
    <${Facts} of=${[["Version", it.version], ["Metrics, for Prometheus and Grafana", it.metrics ? `at ${it.metrics} of the HTTP transport` : "only with transport: http"]]} />
    <${Links} of=${it.links} />
    <p><${Copy} text="owlclaw-mcp doctor" label="Copy the command that examines more" /></p>`}</${Known}></section>`;
}

export function Skills() {
  const skills = useData("/skills");
  const prompts = useData("/prompts");
  return html`<section aria-label="Skills and prompts"><h2>Skills</h2><${Known} of=${skills} isEmpty=${(it) => !it.skills.length} empty="There are no skills.">${(it) => html`<ul class="cards">${it.skills.map((skill) => html`<li class="card" key=${skill.uri}><strong><${Text} of=${skill.name} /></strong> <code><${Text} of=${skill.uri} /></code><p><${Text} of=${skill.description} /></p>
      <p class="known">${skill.category ? html`<${Text} of=${skill.category} /> · ` : null}${number(skill.size)} bytes · ${skill.files} other files${skill.tags.length ? html` · <${Text} of=${skill.tags.join(", ")} />` : null}</p></li>`)}</ul>`}</${Known}>
    <h2>Prompts</h2><${Known} of=${prompts} isEmpty=${(it) => !it.prompts.length} empty="There are no prompts.">${(it) => html`<ul class="cards">${it.prompts.map((prompt) => html`<li class="card" key=${prompt.name}><strong><${Text} of=${prompt.name} /></strong><p><${Text} of=${prompt.description} /></p><p class="known">Arguments (* required): <${Text} of=${prompt.arguments.join(", ")} /></p></li>`)}</ul>`}</${Known}></section>`;
}

export function Sessions({ me }) {
  const data = useData("/sessions", 10);
  const end = (id) => async () => { await ask(`/sessions/${encodeURIComponent(id)}`, { method: "DELETE" }); data.reload(); };
  return html`<section aria-label="Sessions"><h2>Sessions of legacy clients</h2><${Known} of=${data} isEmpty=${(it) => it.open === null} empty="Without HTTP there are no sessions.">${(it) => html`<p>${it.open} of ${it.max} are open.</p>
    ${it.sessions.length ? html`<div class="wide" tabindex="0" role="region" aria-label="List of sessions"><table><thead><tr>${["client", "session", "revision", "idle", "requests", "listens", ""].map((head) => html`<th scope="col">${head || html`<span class="hidden">end</span>`}</th>`)}</tr></thead><tbody>
      ${it.sessions.map((row) => html`<tr key=${row.id}><th scope="row"><${Text} of=${row.client} cut=${40} /></th><td><${Text} of=${row.id} /></td><td>${row.version}</td><td class="number">${row.idle_seconds} s</td><td class="number">${row.requests}</td><td>${row.streaming ? "yes" : "no"}</td>
        <td><${Act} label="End" confirm="Really end" kind="bad" needs="operator" role=${me.role} does=${end(row.id)} /></td></tr>`)}</tbody></table></div>` : html`<p class="empty">None is open.</p>`}`}</${Known}></section>`;
}
