// Texts of others as people may safely read them, times, and amounts.
import { html } from "./preact.js";
import { Exact, write } from "./api.js";

// What nobody sees, or what turns the order of what is seen; line ends and tabs are left.
const odd = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;

const numbered = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** The same for what shows text and no markup: hints of the browser, and notifications. */
export const plain = (text) => String(text).replace(odd, numbered);

/** A text in which every character is seen, apart from the texts around it. */
export function Text({ of, cut }) {
  if (of === null || of === undefined || of === "") return html`<span class="none" title="nothing">–</span>`;
  let text = String(of);
  const whole = text.length;
  if (cut && whole > cut) text = text.slice(0, cut);
  const pieces = [];
  let from = 0;
  for (const found of text.matchAll(odd)) {
    pieces.push(text.slice(from, found.index));
    const code = numbered(found[0]);
    pieces.push(html`<span class="odd" title=${`invisible or turning character ${code}`}>${code}</span>`);
    from = found.index + found[0].length;
  }
  pieces.push(text.slice(from));
  return html`<bdi>${pieces}${cut && whole > cut ? html`<span class="none">… (${whole} characters)</span>` : null}</bdi>`;
}

/** Lines of JSON, whole. */
export function Json({ of, label }) {
  return html`<pre class="json" tabindex="0" role="region" aria-label=${label}><${Text} of=${write(of ?? null)} /></pre>`;
}

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

/** A moment on the clock of whoever reads, with the exact one beside it. */
export function When({ at, past }) {
  if (!at) return html`<span class="none">never</span>`;
  const moment = new Date(at);
  const ago = (Date.now() - moment.getTime()) / 1000;
  return html`<time datetime=${at} title=${`${at} (${zone})`}>${past ? apart(ago) : clock.format(moment)}</time>`;
}

/** How long ago, or in how long. */
export function apart(seconds) {
  const away = Math.abs(seconds);
  const [count, unit] = away < 60 ? [away, "s"] : away < 3600 ? [away / 60, "min"] : away < 86400 ? [away / 3600, "h"] : [away / 86400, "d"];
  const text = `${Math.floor(count)} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

export const number = (value) => value === null || value === undefined ? "unknown"
  : value instanceof Exact ? value.text : value.toLocaleString();

export const milliseconds = (value) => value === null || value === undefined ? "–"
  : value < 1000 ? `${Number(value).toFixed(value < 10 ? 1 : 0)} ms` : `${(value / 1000).toFixed(1)} s`;

/** Words for what a call came to; nothing that is not known is shown as good. */
export function Outcome({ of, reason }) {
  const kind = of === "succeeded" ? "good" : of === "open" ? "open" : of === "unknown" ? "unknown" : of === "denied" ? "held" : "bad";
  return html`<span class=${`mark ${kind}`}>${of}${reason ? html` <${Text} of=${reason} />` : null}</span>`;
}

/** Differences of two JSON values, by their places. */
export function differences(before, after, at = "") {
  const isObject = (it) => it !== null && typeof it === "object" && !(it instanceof Exact);
  if (isObject(before) && isObject(after) && Array.isArray(before) === Array.isArray(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((name) => differences(before[name], after[name], `${at}/${name}`));
  }
  const told = (it) => it === undefined ? undefined : write(it);
  return told(before) === told(after) ? [] : [{ at: at || "/", before, after }];
}
