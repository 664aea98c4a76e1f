// Parts that several views have: data that says how it is known, lists that stay small, forms.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { ask, write } from "./api.js";
import { Text, When, apart, plain } from "./shown.js";

/** Data at a path of the API, read again every so many seconds, and how it is known. */
export function useData(path, every = 0) {
  const [known, setKnown] = useState({ path: null, data: null, read: null, error: null, busy: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!path) return undefined;
    const gone = new AbortController();
    let timer = null;
    const look = async (background) => {
      setKnown((it) => ({ ...it, busy: true }));
      try {
        const data = await ask(path, { background, signal: gone.signal });
        setKnown({ path, data, read: Date.now(), error: null, busy: false });
      } catch (error) {
        if (error.name === "AbortError") return;
        setKnown((it) => ({ ...it, path, data: it.path === path ? it.data : null, error, busy: false }));
      }
      if (every && !gone.signal.aborted) timer = setTimeout(() => look(true), every * 1000);
    };
    look(false);
    return () => { gone.abort(); clearTimeout(timer); };
  }, [path, every, turn]);
  const own = known.path === path ? known : { ...known, data: null, error: null, busy: true };
  return { ...own, reload: () => setTurn((it) => it + 1) };
}

/** What is known, or why it is not: loading, failed, stale and empty are different things. */
export function Known({ of, empty, isEmpty, needs, children }) {
  const [, tick] = useState(0);
  useEffect(() => { const timer = setInterval(() => tick((it) => it + 1), 5000); return () => clearInterval(timer); }, []);
  if (of.data === null && of.error) {
    return html`<div class="notice bad" role="alert"><strong>Unknown.</strong> <${Text} of=${of.error.message} />
      <button onClick=${of.reload}>Try again</button></div>`;
  }
  if (of.data === null) return html`<p class="loading" role="status" aria-busy="true">Loading…</p>`;
  if (needs && of.data[needs] === undefined) throw new Error(`the answer has no ${needs}`);
  const age = (Date.now() - of.read) / 1000;
  return html`${of.error ? html`<div class="notice held" role="alert"><strong>Stale.</strong> This is how it was ${apart(age)}; since then: <${Text} of=${of.error.message} /> <button onClick=${of.reload}>Try again</button></div>` : null}
    ${isEmpty?.(of.data) ? html`<p class="empty">${empty}</p>` : children(of.data)}
    <p class="known">Asked ${age < 2 ? "just now" : apart(age)}${of.data.at ? html`, as of <${When} at=${of.data.at} />` : null}.
      <button class="quiet" onClick=${of.reload} disabled=${of.busy}>Ask again</button></p>`;
}

/** Pages of a list, one after another by their cursors. The first is read again every so many seconds while it is the only one. */
export function usePages(path, list, cursor, every = 0) {
  const [pages, setPages] = useState({ path: null, items: [], next: null, first: null, error: null, busy: true });
  const asked = useRef(0);
  const isLonger = useRef(false);
  const more = async (from, before, background) => {
    const turn = ++asked.current;
    setPages((it) => ({ ...it, busy: true, error: background ? it.error : null }));
    try {
      const joint = path.includes("?") ? "&" : "?";
      const data = await ask(path + (from ? `${joint}${cursor}=${encodeURIComponent(from)}` : ""), { background });
      if (turn !== asked.current) return;
      if (data[list] === undefined) throw new Error("the answer has no such list");
      isLonger.current = from !== null;
      setPages({ path, items: [...before, ...(data[list] ?? [])], next: data.next, first: data, read: Date.now(), error: null, busy: false });
    } catch (error) {
      if (turn === asked.current) setPages((it) => ({ ...it, path, items: background ? it.items : before, error, busy: false }));
    }
  };
  useEffect(() => { more(null, []); return () => { asked.current++; }; }, [path]);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => { if (!isLonger.current) more(null, [], true); }, every * 1000);
    return () => clearInterval(timer);
  }, [path, every]);
  const own = pages.path === path;
  return {
    ...pages, items: own ? pages.items : [], isKnown: own && pages.first !== null && (!pages.error || pages.items.length > 0),
    more: () => { if (own && pages.next && !pages.busy) more(pages.next, pages.items); },
    reload: () => more(null, []),
  };
}

/** A list of which only what is seen is in the page. Rows are equally high; arrows move. */
export function Rows({ of, rowHeight = 64, label, row, onOpen, empty, total }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [at, setAt] = useState(0);
  const { items } = of;
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
    look();
    const watch = new ResizeObserver(look);
    watch.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => { watch.disconnect(); element.removeEventListener("scroll", look); };
  }, [of.isKnown, items.length > 0]);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - 5);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / rowHeight) + 5);
  useEffect(() => { if (items.length - last < 20) of.more(); }, [last, items.length]);
  const go = (to) => {
    const next = Math.max(0, Math.min(items.length - 1, to));
    setAt(next);
    const element = box.current;
    const [top, bottom] = [next * rowHeight, (next + 1) * rowHeight];
    if (top < element.scrollTop) element.scrollTop = top;
    if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
  };
  const keys = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 };
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in keys) { event.preventDefault(); go(at + keys[event.key]); }
    if (event.key === "Enter" && items[at]) { event.preventDefault(); onOpen(items[at]); }
  };
  if (of.error && !items.length) {
    return html`<div class="notice bad" role="alert"><strong>Unknown.</strong> <${Text} of=${of.error.message} /> <button onClick=${of.reload}>Try again</button></div>`;
  }
  if (!of.isKnown) return html`<p class="loading" role="status" aria-busy="true">Loading…</p>`;
  if (!items.length) return html`<p class="empty">${empty}</p>`;
  const shown = items.slice(first, last);
  return html`<div class="rows" ref=${box} tabindex="0" role="listbox" aria-label=${label} onKeyDown=${press}
      aria-activedescendant=${at >= first && at < last ? `row-${at}` : undefined}>
      <div role="presentation" style=${{ height: `${items.length * rowHeight}px`, position: "relative" }}>
        ${shown.map((item, index) => {
          const place = first + index;
          return html`<div key=${place} id=${`row-${place}`} role="option" aria-selected=${place === at} aria-setsize=${of.next ? -1 : items.length}
            aria-posinset=${place + 1} class="row" style=${{ position: "absolute", top: `${place * rowHeight}px`, height: `${rowHeight}px` }}
            onClick=${() => { setAt(place); onOpen(item); }}>${row(item)}</div>`;
        })}
      </div>
    </div>
    <p class="known">${items.length}${total !== undefined ? ` of ${total}` : of.next ? " and more" : ""} shown${of.read ? html`, asked at <${When} at=${new Date(of.read).toISOString()} />` : null}.
      ${of.error ? html`<span class="mark bad">The next ones: ${of.error.message}</span>` : null}
      <button class="quiet" onClick=${of.reload} disabled=${of.busy}>Ask again</button></p>`;
}

/** A button that does something of weight, and says what came of it. */
export function Act({ label, does, kind = "", needs, role, confirm }) {
  const [state, setState] = useState({ busy: false, error: null, sure: false });
  const may = rank[role] >= rank[needs];
  const act = async () => {
    if (confirm && !state.sure) { setState({ busy: false, error: null, sure: true }); return; }
    setState({ busy: true, error: null, sure: false });
    try { await does(); setState({ busy: false, error: null, sure: false }); } catch (error) { setState({ busy: false, error, sure: false }); }
  };
  return html`<span class="act"><button class=${kind} onClick=${act} disabled=${!may || state.busy}
      title=${may ? undefined : `This takes the rights of an ${needs}.`}>${state.busy ? "…" : state.sure ? confirm : label}</button>
    ${state.error ? html` <span role="alert" class="mark bad"><${Text} of=${state.error.message} /></span>` : null}</span>`;
}

/** A word of a command for a POSIX shell: texts of others end no quotes. */
export const word = (text) => (/^[\w.\/][\w.,:\/@%+=-]*$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

export const rank = { viewer: 1, approver: 2, operator: 3 };

/** Copies a text, such as the command that does the same. */
export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(null);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); setDone("Copied"); } catch { setDone("Not copied"); }
    setTimeout(() => setDone(null), 1500);
  };
  return html`<button class="quiet" title=${plain(text)} onClick=${copy}><span aria-live="polite">${done ?? label}</span></button>`;
}

/** Names and values. */
export function Facts({ of }) {
  return html`<dl class="facts">${of.filter(([, value]) => value !== undefined).map(([name, value]) => html`<div><dt>${name}</dt>
    <dd>${Array.isArray(value) || (value !== null && typeof value === "object" && "type" in Object(value)) ? value : html`<${Text} of=${value} />`}</dd></div>`)}</dl>`;
}

/** Places at which two values differ. */
export function Differences({ of, before = "before", after = "now" }) {
  if (!of.length) return html`<p class="empty">No difference.</p>`;
  const told = (value) => value === undefined || value === null ? html`<span class="none">nothing</span>` : html`<pre class="json" tabindex="0"><${Text} of=${write(value)} /></pre>`;
  return html`<table class="differences"><thead><tr><th scope="col">place</th><th scope="col">${before}</th><th scope="col">${after}</th></tr></thead>
    <tbody>${of.map((it) => html`<tr><th scope="row"><${Text} of=${it.at} /></th><td class="before">${told(it.before)}</td><td class="after">${told(it.after)}</td></tr>`)}</tbody></table>`;
}

/** Text that a person types, as a filter of the address. */
export function Filter({ name, label, value, onChange, type = "search", list }) {
  const [text, setText] = useState(value ?? "");
  useEffect(() => setText(value ?? ""), [value]);
  return html`<label class="filter"><span>${label}</span><input type=${type} name=${name} value=${text} list=${list} spellcheck="false" autocomplete="off"
    onInput=${(event) => setText(event.currentTarget.value)} onChange=${(event) => onChange(event.currentTarget.value.trim())} /></label>`;
}

export function Choice({ label, value, options, onChange }) {
  return html`<label class="filter"><span>${label}</span><select value=${value ?? ""} onChange=${(event) => onChange(event.currentTarget.value)}>
    ${options.map(([name, text]) => html`<option value=${name} selected=${name === (value ?? "")}>${text}</option>`)}</select></label>`;
}
