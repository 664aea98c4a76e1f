// Keys of clients, secrets of the vault, credentials at upstreams: they are given here, and never shown again.
import { html, useState } from "./preact.js";
import { ask, query } from "./api.js";
import { Text, When } from "./shown.js";
import { Act, Copy, Filter, Known, useData, usePages, word } from "./parts.js";

export function Keys(all) {
  return html`<section aria-label="Keys and credentials"><${ClientKeys} ...${all} /><${Secrets} ...${all} /><${Credentials} ...${all} /></section>`;
}

const field = (label, name, value, set) => html`<label class="filter"><span>${label}</span><input name=${name} value=${value} onInput=${(event) => set(event.currentTarget.value)} /></label>`;

function ClientKeys({ me }) {
  const data = useData("/keys");
  const [principal, setPrincipal] = useState("");
  const [roles, setRoles] = useState("");
  const [expires, setExpires] = useState("90d");
  const [made, setMade] = useState(null);
  const create = async () => {
    const body = { principal, roles: roles.split(/[ ,]+/).filter(Boolean) };
    if (expires.trim()) body.expires = expires.trim();
    setMade(await ask("/keys", { method: "POST", body }));
    data.reload();
  };
  const revoke = (id) => async () => { await ask(`/keys/${encodeURIComponent(id)}`, { method: "DELETE" }); data.reload(); };
  return html`<h2>Keys of clients</h2>
    <${Known} of=${data} isEmpty=${(it) => it.takes_keys === false} empty="The server takes no keys: add identity: {api_keys: {}} to its configuration.">${({ keys }) => html`
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>${field("Client", "principal", principal, setPrincipal)}${field("Roles", "roles", roles, setRoles)}${field("Good for (90d, 12h; empty: until revoked)", "expires", expires, setExpires)}
        <${Act} label="Make a key" kind="good" needs="operator" role=${me.role} does=${create} /></form>
      ${made ? html`<div class="notice held" role="status"><strong>The key of <${Text} of=${made.record.principal} />, which is not shown again:</strong> <code class="key">${made.key}</code> <${Copy} text=${made.key} /> <button class="quiet" onClick=${() => setMade(null)}>I have it</button></div>` : null}
      ${keys.length ? html`<div class="wide" tabindex="0" role="region" aria-label="List of keys"><table><thead><tr>${["client", "key", "roles", "state", "made", "expires", ""].map((it) => html`<th scope="col">${it || html`<span class="hidden">revoke</span>`}</th>`)}</tr></thead>
        <tbody>${keys.map((it) => html`<tr key=${it.id}><th scope="row"><${Text} of=${it.principal} cut=${40} /></th><td><${Text} of=${it.id} />${it.label ? html` (<${Text} of=${it.label} cut=${40} />)` : null}</td><td><${Text} of=${it.roles} /></td><td><span class=${`mark ${it.state === "active" ? "good" : "open"}`}>${it.state}</span></td>
          <td><${When} at=${it.created} /></td><td><${When} at=${it.expires} /></td><td>${it.state === "active" ? html`<${Act} label="Revoke" confirm="Really, for good" kind="bad" needs="operator" role=${me.role} does=${revoke(it.id)} />` : null}</td></tr>`)}</tbody></table></div>` : html`<p class="empty">There are no keys.</p>`}`}</${Known}>`;
}

function Secrets({ me }) {
  const data = useData("/secrets", 30);
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [said, setSaid] = useState(null);
  const set = async () => {
    // A value stays in the page no longer than it takes to send it, whatever comes of that.
    const body = { name: name.trim(), value };
    setValue("");
    setSaid(null);
    const told = await ask("/secrets", { method: "POST", body });
    setSaid(`${told.name} is ${told.was_there ? "replaced" : "set"}.${told.is_short ? " It has fewer than 8 bytes: in logs and answers it is not recognised, and not redacted." : ""}`);
    data.reload();
  };
  const remove = (it) => async () => { await ask(`/secrets/${encodeURIComponent(it)}`, { method: "DELETE" }); setSaid(`${it} is removed.`); data.reload(); };
  return html`<h2>Secrets of the vault</h2>
    <${Known} of=${data} needs="secrets">${({ vault, is_there: isThere, secrets }) => isThere === false ? html`<div class="empty"><p>There is no vault at <code><${Text} of=${vault} /></code>: references such as <code>${"${vault:NAME}"}</code> lead to nothing.</p>
        <p>This command of the server's user makes one, and a key beside it: <code>owlclaw-mcp vault init</code> <${Copy} text="owlclaw-mcp vault init" label="Copy the command" /></p></div>` : html`
      <form class="filters" autocomplete="off" onSubmit=${(event) => event.preventDefault()}>${field("Name", "secret-name", name, setName)}
        <label class="filter"><span>Value (not shown, now or later)</span><input type="password" name="secret-value" autocomplete="off" spellcheck="false" value=${value} onInput=${(event) => setValue(event.currentTarget.value)} /></label>
        <${Act} label="Set" kind="good" needs="operator" role=${me.role} does=${set} /></form>
      <p class="known">For a value of several lines: <code>owlclaw-mcp vault set NAME --file PATH</code>. A reference to it is written <code>${"${vault:NAME}"}</code>.</p>
      <p role="status">${said ? html`<${Text} of=${said} />` : null}</p>
      ${secrets.length ? html`<div class="wide" tabindex="0" role="region" aria-label="List of secrets"><table><thead><tr>${["name", "first set", "value set", "used in", ""].map((it) => html`<th scope="col">${it || html`<span class="hidden">change</span>`}</th>`)}</tr></thead>
        <tbody>${secrets.map((it) => html`<tr key=${it.name}><th scope="row"><${Text} of=${it.name} /></th><td><${When} at=${it.created_at} /></td><td><${When} at=${it.changed_at} /></td><td>${it.used_in.length ? html`<${Text} of=${it.used_in.join(", ")} />` : html`<span class="known">nothing that is known</span>`}</td>
          <td><button class="quiet" onClick=${() => { setName(it.name); document.querySelector("input[name=secret-value]")?.focus(); }}>Set anew</button> <${Act} label="Remove" confirm="Really remove" kind="bad" needs="operator" role=${me.role} does=${remove(it.name)} /> <${Copy} text=${`owlclaw-mcp vault set ${word(it.name)}`} label="Copy as command" /></td></tr>`)}</tbody></table></div>` : html`<p class="empty">The vault is empty.</p>`}`}</${Known}>`;
}

/** How a credential stands; of what was never tried nobody knows whether it is good. */
function Standing({ of }) {
  const kind = of.works === true ? "good" : of.works === false ? "bad" : of.state === "unused" ? "open" : "unknown";
  return html`<span class=${`mark ${kind}`}>${of.state}${of.state === "kept" ? ": unknown whether it is good" : ""}</span>${of.why ? html` <${Text} of=${of.why} />` : null}${of.cure ? html`<br /><strong>Remedy:</strong> <${Text} of=${of.cure} />` : null}`;
}

function Credentials({ view, go, me }) {
  const { upstream, client } = view;
  const pages = usePages(`/credentials${query({ upstream, client, limit: 100 })}`, "credentials", "after", 10);
  const forget = (it) => async () => { await ask("/credentials/forget", { method: "POST", body: { upstream: it.upstream, client: it.client, name: it.name } }); pages.reload(); };
  const of = { data: pages.isKnown ? pages.first : null, read: pages.read, error: pages.error, busy: pages.busy, reload: pages.reload };
  const expires = (it) => it.expires ? html`<${When} at=${it.expires} />${it.is_renewed ? ", renewed by itself" : ""}` : it.kind === "login" && it.name ? "unknown" : "";
  return html`<h2>Credentials at upstreams</h2><form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Filter} name="credential-upstream" label="Upstream" value=${upstream} onChange=${(value) => go({ upstream: value })} />
      <${Filter} name="credential-client" label="Client" value=${client} onChange=${(value) => go({ client: value })} /></form>
    <${Known} of=${of} isEmpty=${() => !pages.items.length} empty=${pages.first?.credentials === null ? "There is no vault, beside which they would be kept." : "None is kept, and none is missed."}>${() => html`
      <div class="wide" tabindex="0" role="region" aria-label="List of credentials"><table><thead><tr>${["upstream", "client", "kind", "state", "since", "expires", ""].map((head) => html`<th scope="col">${head || html`<span class="hidden">forget</span>`}</th>`)}</tr></thead><tbody>
        ${pages.items.map((it) => html`<tr key=${JSON.stringify([it.upstream, it.client, it.name])}><th scope="row"><a href=${`#/upstreams?name=${encodeURIComponent(it.upstream)}`}><${Text} of=${it.upstream} cut=${40} /></a></th><td>${it.client === null ? "all clients" : html`<${Text} of=${it.client} cut=${40} />`}</td>
          <td>${it.kind === "login" ? html`sign-in${it.issuer ? html` at <${Text} of=${it.issuer} cut=${60} />` : ""}` : html`secret${it.name ? html` <code><${Text} of=${it.name} /></code>` : ""}`}</td><td><${Standing} of=${it} /></td><td><${When} at=${it.since} /></td><td>${expires(it)}</td>
          <td>${it.name ? html`<${Act} label="Forget" confirm="Really forget" kind="bad" needs="operator" role=${me.role} does=${forget(it)} />` : null}</td></tr>`)}</tbody></table></div>
      ${pages.next ? html`<p><button onClick=${pages.more} disabled=${pages.busy}>More</button></p>` : null}`}</${Known}>`;
}
