// The desk: signing in, the views and the way between them, keys.
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./preact.js";
import { ask, onSignedOut, setToken } from "./api.js";
import { Text, plain } from "./shown.js";
import { useData } from "./parts.js";
import { Approvals } from "./approvals.js";
import { Activity } from "./activity.js";
import { Tools } from "./tools.js";
import { Upstreams } from "./upstreams.js";
import { Rules } from "./rules.js";
import { Tasks } from "./tasks.js";
import { Keys } from "./keys.js";
import { Health, Sessions, Skills, Usage } from "./more.js";

const views = [["approvals", "Approvals", Approvals], ["activity", "Activity", Activity], ["tools", "Tools", Tools], ["upstreams", "Upstreams", Upstreams], ["usage", "Usage", Usage],
  ["health", "Health", Health], ["keys", "Keys and credentials", Keys], ["rules", "Rules", Rules], ["skills", "Skills", Skills], ["sessions", "Sessions", Sessions], ["tasks", "Tasks", Tasks]];

/** View and filters of the address, so that every state of the page is a link. */
function place() {
  const [path, rest] = location.hash.replace(/^#\/?/, "").split("?");
  const name = views.some(([it]) => it === path) ? path : "approvals";
  return { name, view: Object.fromEntries(new URLSearchParams(rest ?? "")) };
}

function setting(name, value) {
  try { if (value === undefined) return localStorage.getItem(name); localStorage.setItem(name, value); } catch { /* the browser keeps nothing: the default holds */ }
  return value ?? null;
}

/** A view, or that the answer for it is none that can be shown. */
function Guarded({ at, children }) {
  const [error, again] = useErrorBoundary();
  useEffect(() => { if (error) again(); }, [at]);
  if (!error) return children;
  return html`<div class="notice bad" role="alert"><strong>Unknown.</strong> The server's answer cannot be shown: <${Text} of=${error.message} />
    <button onClick=${again}>Try again</button></div>`;
}

function Desk({ me, onSignOut }) {
  const [at, setAt] = useState(place());
  const [theme, setTheme] = useState(setting("theme") ?? "");
  const [single, setSingle] = useState(setting("keys") !== "off");
  const [notify, setNotify] = useState(setting("notify") === "on");
  const help = useRef(null);
  const own = useRef({});
  const told = useRef(new Set());
  const waiting = useData("/approvals?limit=100", 5);
  const health = useData("/health", 10);
  useEffect(() => { const look = () => { own.current = {}; setAt(place()); }; addEventListener("hashchange", look); return () => removeEventListener("hashchange", look); }, []);
  useEffect(() => { document.documentElement.dataset.theme = theme; setting("theme", theme); }, [theme]);
  useEffect(() => { addEventListener("decided", waiting.reload); return () => removeEventListener("decided", waiting.reload); }, []);
  const count = waiting.error ? null : waiting.data?.approvals?.length;
  const title = views.find(([it]) => it === at.name)[1];
  useEffect(() => { document.title = `${count ? `(${count}) ` : ""}${title} · OwlClaw desk`; }, [count, title]);
  useEffect(() => {
    for (const it of waiting.data?.approvals ?? []) {
      if (told.current.has(it.id)) continue;
      told.current.add(it.id);
      if (notify && document.hidden && globalThis.Notification?.permission === "granted") new Notification("OwlClaw: a call waits for you", { body: plain(`${it.client} wants ${it.capability}`), tag: it.id });
    }
  }, [waiting.data, notify]);
  const go = (changes, name = at.name) => {
    const next = name === at.name ? { ...at.view, ...changes } : changes;
    const pairs = Object.entries(next).filter(([, value]) => value !== undefined && value !== "");
    location.hash = `#/${name}${pairs.length ? `?${new URLSearchParams(pairs)}` : ""}`;
  };
  useEffect(() => {
    const press = (event) => {
      if (!single || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
      const number = event.key === "0" ? 9 : Number(event.key) - 1;
      if (event.key === "?") { event.preventDefault(); help.current.showModal(); return; }
      if (help.current.open) return;
      if (event.key === "/") { event.preventDefault(); document.querySelector("main .filters input")?.focus(); return; }
      if (Number.isInteger(number) && views[number]) { location.hash = `#/${views[number][0]}`; return; }
      own.current[event.key]?.();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [single]);
  const askToNotify = async () => {
    const may = notify ? false : (await globalThis.Notification?.requestPermission?.()) === "granted";
    setting("notify", may ? "on" : "off");
    setNotify(may);
  };
  const [, , View] = views.find(([it]) => it === at.name);
  const state = health.error || typeof health.data?.status !== "string" ? ["unknown", "health is unknown"] : health.data.status === "ok" ? ["good", "ok"] : ["bad", health.data.status];
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>To the content</a>
    <header><strong class="name">OwlClaw desk</strong>
      <nav aria-label="Views">${views.map(([name, text], index) => html`<a href=${`#/${name}`} aria-current=${name === at.name ? "page" : undefined} title=${single && index < 10 ? `key ${(index + 1) % 10}` : undefined}>${text}${name === "approvals" ? html` <span class=${`count ${count ? "held" : ""}`} aria-label=${count === null || count === undefined ? "unknown" : `${count} wait`}>${count ?? "?"}${waiting.data?.next ? "+" : ""}</span>` : name === "health" ? html` <span class=${`mark ${state[0]}`}>${state[1]}</span>` : null}</a>`)}</nav>
      <details class="me"><summary><${Text} of=${me.name} cut=${30} /> (${me.role})</summary><div>
        <p class="known"><${Text} of=${me.proof} /></p>
        <label class="filter"><span>Colours</span><select onChange=${(event) => setTheme(event.currentTarget.value)}>${[["", "of the system"], ["light", "light"], ["dark", "dark"]].map(([value, text]) => html`<option value=${value} selected=${theme === value}>${text}</option>`)}</select></label>
        <label><input type="checkbox" checked=${single} onChange=${(event) => { setSingle(event.currentTarget.checked); setting("keys", event.currentTarget.checked ? "on" : "off"); }} /> keys for single letters</label>
        <label><input type="checkbox" checked=${notify} onChange=${askToNotify} /> notify me of approvals</label>
        <p><button onClick=${() => help.current.showModal()}>Keys (?)</button></p>
        <p><button onClick=${() => onSignOut(false)}>Sign out</button> <button onClick=${() => onSignOut(true)}>Sign out everywhere</button></p></div></details></header>
    <main id="main" tabindex="-1"><h1 class="hidden">${title}</h1><${Guarded} key=${at.name} at=${at}><${View} view=${at.view} go=${go} me=${me} keys=${(all) => { own.current = all; }} /></${Guarded}></main>
    <footer class="known"><${Text} of=${me.server} /></footer>
    <dialog ref=${help} aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2><dl class="facts">${[["1 … 9, 0", "the views in their order"], ["/", "to the filters"], ["j, k, arrows", "up and down in a list"], ["Enter", "opens what is chosen"], ["a", "approves the open approval"], ["d", "denies it"], ["n", "to the next approval"], ["?", "this help"]].map(([key, what]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <form method="dialog"><button>Close</button></form></dialog>`;
}

function SignIn({ onSignedIn, why }) {
  const [key, setKey] = useState("");
  const [state, setState] = useState({ busy: false, error: why });
  // The reason may come after the page, with the answer that says that nobody is signed in.
  useEffect(() => setState({ busy: false, error: why }), [why]);
  const sign = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: null });
    try { onSignedIn(await ask("/session", { method: "POST", key: key.trim() || undefined })); } catch (error) { setState({ busy: false, error: error.message }); }
    setKey("");
  };
  const [issuers, setIssuers] = useState([]);
  useEffect(() => { ask("/sign-in").then((it) => setIssuers(it.issuers), () => {}); }, []);
  const leave = async (issuer) => {
    setState({ busy: true, error: null });
    try {
      const { url } = await ask("/sign-in", { method: "POST", body: { issuer } });
      // The view is kept here, so that no address that leads back can name another.
      sessionStorage.setItem("view", location.hash);
      location.assign(url);
    } catch (error) { setState({ busy: false, error: error.message }); }
  };
  return html`<main class="sign-in"><h1>OwlClaw desk</h1><form onSubmit=${sign}>
    <label class="filter wide"><span>API key or token</span><input type="password" name="key" autocomplete="off" value=${key} onInput=${(event) => setKey(event.currentTarget.value)} autofocus /></label>
    <button class="good" disabled=${state.busy}>Sign in</button></form>
    ${issuers.length ? html`<p>${issuers.map((it) => html`<button key=${it} disabled=${state.busy} onClick=${() => leave(it)}>Sign in with ${it}</button> `)}</p>` : null}
    <p class="known">Without one, a certificate of your browser counts. On the machine of the server, <code>owlclaw-mcp desk</code> signs you in.</p>
    <div role="alert">${state.error ? html`<p class="notice bad"><${Text} of=${state.error} /></p>` : null}</div></main>`;
}

// Taken from the address before anything else can change that. A secret has no business in the history.
const once = /^#\/sign-in\/(.+)$/.exec(location.hash)?.[1];
if (once) history.replaceState(null, "", "/#/approvals");

function All() {
  const [me, setMe] = useState(undefined);
  const [why, setWhy] = useState(null);
  const signedIn = (session) => { setToken(session.csrf); setMe(session); };
  useEffect(() => {
    const out = onSignedOut(() => { setToken(null); setMe((it) => { if (it) setWhy("You were signed out: the session has ended."); return null; }); });
    const back = location.pathname.startsWith("/sign-in/") ? location.pathname + location.search : null;
    if (back) { history.replaceState(null, "", `/${sessionStorage.getItem("view") ?? ""}`); sessionStorage.removeItem("view"); }
    const begin = back ? ask("/session", { method: "POST", body: { came_back: back } }) : once ? ask("/session", { method: "POST", body: { ticket: once } }) : ask("/session");
    // Whom a certificate of the browser proves has no session yet, which alone ends, and is on record.
    begin.then((it) => (it.csrf ? signedIn(it) : setMe(null)), (error) => { setWhy(once || back || error.status !== 401 ? error.message : null); setMe(null); });
    return out;
  }, []);
  const signOut = async (everywhere) => {
    try { await ask(`/session${everywhere ? "?everywhere=1" : ""}`, { method: "DELETE" }); setWhy(null); } catch (error) { setWhy(`Whether you are signed out is unknown: ${error.message}`); }
    setToken(null);
    setMe(null);
  };
  if (me === undefined) return html`<p class="begin" role="status">Looking who you are…</p>`;
  return me ? html`<${Desk} me=${me} onSignOut=${signOut} />` : html`<${SignIn} onSignedIn=${signedIn} why=${why} />`;
}

// A page that the browser has kept shows what may be nobody's to see any more.
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
const whole = document.getElementById("desk");
whole.replaceChildren();
render(html`<${All} />`, whole);
