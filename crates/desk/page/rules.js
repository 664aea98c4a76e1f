// Rules: those in force, other rules with what they would change, and what they would have decided.
import { html, useRef, useState } from "./preact.js";
import { ask, write } from "./api.js";
import { Json, Text, When, number } from "./shown.js";
import { Act, Choice, Copy, Known, rank, useData } from "./parts.js";

/** Lines of two texts, with a mark for those that are in one of them only; far from these, their number. */
function compared(before, after) {
  const [a, b] = [before, after].map((it) => (it ? it.replace(/\n$/, "").split("\n") : []));
  let from = 0;
  let [i, j] = [a.length, b.length];
  while (from < i && from < j && a[from] === b[from]) from++;
  while (i > from && j > from && a[i - 1] === b[j - 1]) { i--; j--; }
  const [x, y] = [a.slice(from, i), b.slice(from, j)];
  const longest = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let n = x.length - 1; n >= 0; n--) for (let m = y.length - 1; m >= 0; m--) longest[n][m] = x[n] === y[m] ? longest[n + 1][m + 1] + 1 : Math.max(longest[n + 1][m], longest[n][m + 1]);
  const all = a.slice(0, from).map((it) => [" ", it]);
  for (let [n, m] = [0, 0]; n < x.length || m < y.length;) {
    if (n < x.length && m < y.length && x[n] === y[m]) { all.push([" ", x[n]]); n++; m++; }
    else if (n < x.length && (m === y.length || longest[n + 1][m] >= longest[n][m + 1])) all.push(["-", x[n++]]);
    else all.push(["+", y[m++]]);
  }
  all.push(...a.slice(i).map((it) => [" ", it]));
  const near = (at) => all.slice(Math.max(0, at - 3), at + 4).some(([mark]) => mark !== " ");
  return all.reduce((shown, line, at) => {
    if (near(at)) shown.push(line);
    else if (shown.at(-1)?.[0] === "…") shown.at(-1)[1]++;
    else shown.push(["…", 1]);
    return shown;
  }, []);
}

function Lines({ before, after }) {
  return html`<pre class="json diff" tabindex="0" role="region" aria-label="Difference of the texts">${compared(before, after).map(([mark, line]) => mark === "…" ? html`<span class="none">… ${line} lines as they are\n</span>`
    : mark === "+" ? html`<ins>+ <${Text} of=${line || " "} />\n</ins>` : mark === "-" ? html`<del>- <${Text} of=${line || " "} />\n</del>` : html`  <${Text} of=${line || " "} />\n`)}</pre>`;
}

const kinds = { allowed: "good", refused: "bad", to_be_confirmed: "held" };
const Decision = ({ of }) => html`<span class=${`mark ${kinds[of.verdict]}`}>${of.verdict.replaceAll("_", " ")}${of.reason ? ` (${of.reason})` : ""}</span>${of.rule ? html`<br /><${Text} of=${of.rule} cut=${300} />` : null}`;

function DryRun({ of: it }) {
  return html`<p><strong>${number(it.different)} of ${number(it.calls)} calls</strong> would be decided differently${it.first ? html`, since <${When} at=${it.first} />` : null}${it.is_partial ? "; older ones were not looked at" : ""}.
      ${it.undecided ? html` <span class="mark unknown">${number(it.undecided)} cannot be told: a condition asks about arguments that are not whole on record</span>` : null}
      ${it.unlike_record ? html` <span class="mark unknown">${number(it.unlike_record)} were decided otherwise then than the rules in force would: other rules, or roles that are not on record</span>` : null}
      ${it.without_roles ? html` <span class="mark unknown">${number(it.without_roles)} are of clients without an API key; roles of tokens count for nothing here</span>` : null}</p>
    ${it.differing.length ? html`<div class="wide" tabindex="0" role="region" aria-label="Calls that would be decided differently"><table><caption>${it.differing.length < it.different ? `The last ${it.differing.length} of them` : "Each of them"}</caption><thead><tr>${["call", "client", "capability", "now", "then"].map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${it.differing.map((call) => html`<tr key=${call.call}><th scope="row"><a href=${`#/activity?call=${call.call}`}><${When} at=${call.time} /></a></th><td><${Text} of=${call.client} cut=${40} /></td><td><${Text} of=${call.capability} cut=${60} /></td><td><${Decision} of=${call.before} /></td><td><${Decision} of=${call.after} /></td></tr>`)}</tbody></table></div>` : null}`;
}

function Editor({ file, me, onSaved }) {
  const [base, setBase] = useState(file);
  const [text, setText] = useState(file.text);
  const [checked, setChecked] = useState(null);
  const [run, setRun] = useState(null);
  const [since, setSince] = useState("1d");
  const [said, setSaid] = useState(null);
  const box = useRef(null);
  const take = (it) => { setBase(it); setText(it.text); setChecked(null); setRun(null); };
  const is = checked?.text === text ? checked : null;
  const check = async () => { setSaid(null); setChecked({ text, ...await ask("/rules/check", { method: "POST", body: { text } }) }); };
  const dry = async () => setRun({ text, ...await ask("/rules/dry-run", { method: "POST", patience: 600, body: { text, since } }) });
  const save = async () => {
    const done = await ask("/rules", { method: "PUT", body: { text }, match: base.digest });
    setSaid(done.in_force ? `Saved; version ${done.version} is in force.` : `Saved, and not in force: ${done.problem}`);
    take({ ...base, text, digest: done.digest });
    onSaved();
  };
  const to = (line) => () => {
    const begin = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    box.current.focus();
    box.current.setSelectionRange(begin, begin + (text.split("\n")[line - 1] ?? "").length);
  };
  return html`${file.digest !== base.digest ? html`<div class="notice held" role="alert">The file has other rules than those that you began with. <button onClick=${() => take(file)}>Take those, and drop mine</button></div>` : null}
    <label class="filter wide"><span>The section governance in <${Text} of=${file.path} /></span><textarea ref=${box} name="rules" rows="16" spellcheck="false" value=${text} readonly=${rank[me.role] < rank.operator} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
    <p><${Act} label="See what changes" needs="operator" role=${me.role} does=${check} /> <button onClick=${() => take(file)} disabled=${text === file.text}>As in the file</button></p>
    <div role="status">${said ? html`<p class="notice"><${Text} of=${said} /></p>` : null}
    ${is?.problems.length ? html`<ul class="cards">${is.problems.map((it) => html`<li class="card"><span class=${`mark ${it.severity === "error" ? "bad" : "held"}`}>${it.severity}</span> ${it.line ? html`<button class="link" onClick=${to(it.line)}>${it.place}</button>` : html`<${Text} of=${it.place} />`}: <${Text} of=${it.message} />${it.hint ? html`<br /><strong>Remedy:</strong> <${Text} of=${it.hint} />` : null}</li>`)}</ul>` : null}
    ${is && !is.is_valid ? html`<p class="notice bad">These rules cannot be used; nothing is written.</p>` : null}</div>
    ${is?.is_valid ? html`<h3>What would be written</h3><${Lines} before=${base.text} after=${text} />
      <h3>Settings that change</h3>${is.changes.length + is.at_restart.length ? html`<div class="wide" tabindex="0" role="region" aria-label="Settings that change"><table class="differences"><thead><tr><th scope="col">setting</th><th scope="col">now</th><th scope="col">then</th></tr></thead><tbody>
        ${is.changes.map((it) => html`<tr key=${it.key}><th scope="row"><${Text} of=${it.key} /></th><td class="before"><${Text} of=${it.from === undefined ? null : write(it.from)} /></td><td class="after"><${Text} of=${it.to === undefined ? null : write(it.to)} /></td></tr>`)}
        ${is.at_restart.map((key) => html`<tr key=${key}><th scope="row"><${Text} of=${key} /></th><td colspan="2">at the next start</td></tr>`)}</tbody></table></div>` : html`<p class="empty">None: the text alone changes.</p>`}
      <h3>What they would have decided</h3><form class="filters" onSubmit=${(event) => event.preventDefault()}><${Choice} label="Calls since" value=${since} options=${[["1h", "an hour"], ["1d", "a day"], ["7d", "7 days"], ["30d", "30 days"]]} onChange=${setSince} />
        <${Act} label="Decide them again" needs="operator" role=${me.role} does=${dry} /></form>
      <div role="status">${run?.text === text ? html`<${DryRun} of=${run} />` : null}</div>
      <div class="decide"><${Act} label="Save" confirm="Really save" kind="good" needs="operator" role=${me.role} does=${save} /><span class="known">It is on record with your name, and in force at once.</span></div>` : null}`;
}

export function Rules({ me }) {
  const data = useData("/rules", 15);
  return html`<section aria-label="Rules"><h2>Rules in force</h2><${Known} of=${data} needs="governance">${(it) => html`<p>Version <code>${it.version}</code>. <a href="#/activity?notes=1">Events</a> tell of each change.</p>
    <details open=${!it.file}><summary>All of them, with their defaults</summary><${Json} of=${it.governance} label="Rules" /></details>
    <h2>In the configuration file</h2>${it.file ? html`<${Editor} file=${it.file} me=${me} onSaved=${data.reload} />` : html`<p class="notice held">They cannot be changed here: <${Text} of=${it.unchangeable} /></p>`}
    <p><${Copy} text="owlclaw-mcp config validate" label="Copy the command that checks the file" /></p>`}</${Known}></section>`;
}
