// Tools: what they are, who could call them and why, and a call of one.
import { html, useEffect, useRef, useState } from "./preact.js";
import { ask, parse, query } from "./api.js";
import { Json, Text, plain } from "./shown.js";
import { Pin } from "./pins.js";
import { Act, Choice, Copy, Facts, Filter, Known, Rows, useData, usePages, word } from "./parts.js";

export function Tools({ view, go, me }) {
  const { name, q, upstream, held } = view;
  const pages = usePages(`/tools${query({ q, upstream, held, limit: 200 })}`, "tools", "after");
  return html`<div class="split"><section class="list" aria-label="Tools">
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} name="q" label="Name or description" value=${q} onChange=${(value) => go({ q: value })} />
      <${Filter} name="upstream" label="Upstream" value=${upstream} onChange=${(value) => go({ upstream: value })} />
      <${Choice} label="Show" value=${held} options=${[["", "all"], ["1", "held"]]} onChange=${(value) => go({ held: value })} />
    </form>
    <${Rows} of=${pages} label="Tools" total=${pages.first?.count} empty="No tool on offer meets this." onOpen=${(it) => go({ name: it.name })}
      row=${(it) => html`<strong><${Text} of=${it.name} cut=${60} /></strong> ${it.held ? html`<span class="mark bad">held</span>` : null} ${it.confirmation ? html`<span class="mark held">asks ${it.confirmation}</span>` : null}<br />
        <span class="known"><${Text} of=${it.origin ? `${it.origin[0]} · ${it.kind}` : it.kind} cut=${40} /> · risk <${Text} of=${it.risk ?? "unknown"} cut=${40} /> · <${Text} of=${it.description} cut=${90} /></span>`} />
  </section>
  <section class="detail" aria-label="Tool">${name ? html`<${Tool} key=${name} name=${name} me=${me} go=${go} />` : html`<p class="empty">Open a tool to see its schema, its rules and its pin.</p>`}</section></div>`;
}

function Tool({ name, me, go }) {
  const path = `/tools/${encodeURIComponent(name)}`;
  const data = useData(path);
  const heading = useRef(null);
  useEffect(() => heading.current?.focus(), [data.data === null]);
  return html`<${Known} of=${data}>${({ tool: it, input_schema: schema, pin }) => html`
    <h2 tabindex="-1" ref=${heading}><${Text} of=${it.name} /></h2>
    ${it.held ? html`<p class="notice bad" role="alert"><strong>Held: every call is refused.</strong> <${Text} of=${it.held} /></p>` : null}
    <h3>As models are told</h3><p class="prose"><${Text} of=${it.description} /></p>
    <${Facts} of=${[["Title", it.title ?? undefined], ["Source", it.kind],
      ["Origin", it.origin ? html`<a href=${`#/upstreams?name=${encodeURIComponent(it.origin[0])}`}><${Text} of=${it.origin[0]} /></a> as <${Text} of=${it.origin[1]} />` : "this server"],
      ["Risk", it.risk ?? "unknown"], ["Confirmation", it.confirmation ? `by ${it.confirmation}` : "none by its rules; conditions may ask for one"], ["Expected cost", it.estimated_cost ?? "none"],
      ["Calls a minute, of a client", it.max_calls_per_minute ?? "no limit"], ["Calls a day, of a client", it.max_calls_per_day ?? "no limit"],
      ["Ended after", `${it.timeout_seconds} s`], ["Tokens of context", `about ${it.estimated_tokens}`]]} />
    <p><a href=${`#/activity?tool=${encodeURIComponent(it.name)}`}>Its calls</a> · <a href=${`#/usage?tool=${encodeURIComponent(it.name)}`}>Its use</a></p>
    ${pin ? html`<h3>Pin</h3><${Pin} of=${pin} me=${me} onDecided=${data.reload} />` : null}
    <${Explain} path=${path} schema=${schema} name=${it.name} />
    <${Try} path=${path} name=${it.name} schema=${schema} me=${me} go=${go} />
    <details><summary>Schema of its arguments</summary><${Json} of=${schema} label="Schema" /></details>`}</${Known}>`;
}

/** Text of JSON, if it is some. */
function wrong(text) {
  try { const value = parse(text); return value !== null && typeof value === "object" && !Array.isArray(value) ? null : "an object is needed"; } catch (error) { return error.message; }
}

/** An object with a place for each argument that is required. */
function blank(schema) {
  const names = Array.isArray(schema?.required) ? schema.required : [];
  const value = (name) => { const type = schema.properties?.[name]?.type; return type === "number" || type === "integer" ? 0 : type === "boolean" ? false : type === "array" ? [] : type === "object" ? {} : ""; };
  return JSON.stringify(Object.fromEntries(names.map((name) => [name, value(name)])), null, 2);
}

function Explain({ path, schema, name }) {
  const [client, setClient] = useState("");
  const [roles, setRoles] = useState("");
  const [text, setText] = useState("");
  const [told, setTold] = useState(null);
  const named = roles.split(/[ ,]+/).filter(Boolean);
  const explain = async () => {
    if (text.trim() && wrong(text)) throw new Error(`Arguments: ${wrong(text)}`);
    const members = [`"client": ${JSON.stringify(client)}`, `"roles": ${JSON.stringify(named)}`];
    if (text.trim()) members.push(`"arguments": ${text}`);
    setTold(await ask(`${path}/explain`, { method: "POST", body: `{${members.join(",")}}` }));
  };
  const kind = { allowed: "good", refused: "bad", to_be_confirmed: "held" };
  return html`<h3>Why can a client call this?</h3>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label class="filter"><span>Client</span><input name="explain-client" value=${client} onInput=${(event) => setClient(event.currentTarget.value)} /></label>
      <label class="filter"><span>Roles of its credentials</span><input value=${roles} onInput=${(event) => setRoles(event.currentTarget.value)} /></label>
      <label class="filter wide"><span>Arguments (JSON; without, conditions stay open)</span><textarea rows="3" spellcheck="false" value=${text} placeholder=${plain(blank(schema))} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
      <${Act} label="Explain" needs="viewer" role="viewer" does=${explain} />
      <${Copy} text=${`owlclaw-mcp governance explain --as ${word(client)} --tool ${word(name)}${named.map((it) => ` --role ${word(it)}`).join("")}${text.trim() ? ` --args ${word(text.trim())}` : ""}`} label="Copy as command" />
    </form>
    <div role="status">${told ? html`<p><span class=${`mark ${kind[told.verdict] ?? "unknown"}`}>${told.verdict.replaceAll("_", " ")}</span> ${told.reason ? html`<${Text} of=${told.reason} />` : null} ${told.confirmation ? `by ${told.confirmation}` : null}</p>
      ${told.steps ? html`<table><caption>Checks in their order</caption><thead><tr><th scope="col">check</th><th scope="col">outcome</th><th scope="col">rule</th></tr></thead>
        <tbody>${told.steps.map((it) => html`<tr><th scope="row">${it.check}</th><td><${Text} of=${it.outcome} /></td><td><${Text} of=${it.rule} /></td></tr>`)}</tbody></table>` : null}
      ${told.violations?.length ? html`<p class="notice bad">The arguments do not fit: <${Text} of=${told.violations.join("; ")} /></p>` : null}
      ${told.remaining ? html`<details><summary>What is left of limits</summary><${Json} of=${told.remaining} label="Limits" /></details>` : null}` : null}</div>`;
}

function Try({ path, name, schema, me, go }) {
  const [text, setText] = useState(blank(schema));
  const [told, setTold] = useState(null);
  const call = async () => {
    if (wrong(text)) throw new Error(`Arguments: ${wrong(text)}`);
    setTold(await ask(`${path}/call`, { method: "POST", patience: 600, body: `{"arguments": ${text}}` }));
  };
  return html`<details><summary>Try it: a real call, as <${Text} of=${me.name} /></summary>
    <p class="known">It passes every rule, costs what it costs, and is on record like any call.</p>
    <label class="filter wide"><span>Arguments (JSON)</span><textarea rows="6" name="try" spellcheck="false" value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea></label>
    <${Act} label="Call" confirm="Really call" needs="operator" role=${me.role} does=${call} />
    <div role="status">${told ? html`<p><span class=${`mark ${told.error || told.result?.isError ? "bad" : "good"}`}>${told.error ? "refused or failed" : told.result?.isError ? "the tool failed" : "answered"}</span>
      <button class="link" onClick=${() => go({ tool: name }, "activity")}>See the record</button></p><${Json} of=${told.error ?? told.result} label="Answer" />` : null}</div></details>`;
}
