// Requests to the API, and JSON whose numbers keep all of their digits.

/** Number as it was written, where a double is not the same. */
export class Exact {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}

/** Parses JSON; a number that a double cannot hold becomes an `Exact`. */
export function parse(text) {
  let at = 0;
  const fail = () => { throw new SyntaxError(`no JSON at ${at}`); };
  const space = /[ \t\r\n]*/y;
  const number = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
  const string = /"(?:[^"\\]|\\.)*"/ys;
  const skip = () => { space.lastIndex = at; space.test(text); at = space.lastIndex; };
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) fail();
    at = pattern.lastIndex;
    return found[0];
  };
  const word = (name, meaning) => {
    if (!text.startsWith(name, at)) fail();
    at += name.length;
    return meaning;
  };
  const items = (end, one) => {
    at++;
    skip();
    if (text[at] === end) { at++; return; }
    for (;;) {
      one();
      skip();
      const next = text[at++];
      if (next === end) return;
      if (next !== ",") fail();
      skip();
    }
  };
  const value = () => {
    skip();
    switch (text[at]) {
      case "{": {
        const members = [];
        items("}", () => {
          const name = JSON.parse(take(string));
          skip();
          if (text[at++] !== ":") fail();
          members.push([name, value()]);
        });
        return Object.fromEntries(members);
      }
      case "[": { const all = []; items("]", () => all.push(value())); return all; }
      case "\"": return JSON.parse(take(string));
      case "t": return word("true", true);
      case "f": return word("false", false);
      case "n": return word("null", null);
      default: {
        const written = take(number);
        const plain = Number(written);
        return String(plain) === written ? plain : new Exact(written);
      }
    }
  };
  const whole = value();
  skip();
  if (at !== text.length) fail();
  return whole;
}

/** JSON of a parsed value, in lines, with every digit. */
export function write(value, indent = "") {
  if (value instanceof Exact) return value.text;
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((it) => inner + write(it, inner)).join(",\n")}\n${indent}]`;
  }
  if (value !== null && typeof value === "object") {
    const members = Object.entries(value);
    if (!members.length) return "{}";
    const told = members.map(([name, it]) => `${inner}${JSON.stringify(name)}: ${write(it, inner)}`);
    return `{\n${told.join(",\n")}\n${indent}}`;
  }
  return JSON.stringify(value);
}

const root = "/admin/v1";
let csrf = null;
const listeners = new Set();

/** Calls `listener` when a request finds that nobody is signed in. */
export const onSignedOut = (listener) => { listeners.add(listener); return () => listeners.delete(listener); };
export const setToken = (token) => { csrf = token; };

/** Problem that the server tells of, or that it cannot be reached. */
export class Problem extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

/** Sends a request. `background` says that no person has asked for it, `match` what was looked at, `patience` for how many seconds an answer is waited for. */
export async function ask(path, { method = "GET", body, key, background, signal, match, patience = method === "GET" ? 15 : 60 } = {}) {
  const headers = { accept: "application/json" };
  if (csrf) headers["x-csrf-token"] = csrf;
  if (match) headers["if-match"] = `"${match}"`;
  if (key) headers.authorization = `Bearer ${key}`;
  if (background) headers["x-desk-background"] = "1";
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  let text;
  const late = AbortSignal.timeout(patience * 1000);
  try {
    response = await fetch(root + path, {
      method, headers, signal: signal ? AbortSignal.any([signal, late]) : late, cache: "no-store",
      body: body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body),
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (late.aborted) throw new Problem(0, method === "GET" ? `no answer within ${patience} s` : `no answer within ${patience} s: whether this was done is unknown`);
    throw new Problem(0, "the server cannot be reached");
  }
  let told = null;
  try { told = parse(text); } catch { /* told below */ }
  if (response.ok && told !== null) return told;
  if (response.ok) throw new Problem(response.status, "the answer broke off, so nothing of it is shown");
  if (response.status === 401 && !key) for (const listener of listeners) listener();
  throw new Problem(response.status, told?.error ?? `the server answers with status ${response.status}`);
}

/** A query of a URL of what has a value. */
export function query(members) {
  const pairs = Object.entries(members).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = pairs.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join("&");
  return text ? `?${text}` : "";
}

export const stream = (path) => new EventSource(root + path);
export const address = (path) => root + path;
