// Parts that several of these tests have: servers with a desk, a browser that complains, a PostgreSQL of one's own.
import { spawn, spawnSync } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const begun = Date.now();
const children = [];
const directories = [];
let failures = 0;

export function demand(condition, what) {
  if (condition) return;
  failures += 1;
  console.error(`FAILED ${what}`);
}
export const step = (what) => console.log(`${((Date.now() - begun) / 1000).toFixed(1).padStart(5)} s  ${what}`);

export async function until(what, is, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await sleep(50)) {
    const found = await is();
    if (found) return found;
  }
  throw new Error(`it never is that ${what}`);
}

export const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, "127.0.0.1", () => { const { port } = server.address(); server.close(() => resolve(port)); });
});

/** A directory that goes with the test. */
export function directory(name) {
  const path = mkdtempSync(join(tmpdir(), `${name}-`));
  directories.push(path);
  return path;
}

/** A program that ends with the test. */
export function begin(command, args, options) {
  const child = spawn(command, args, options);
  children.push(child);
  return child;
}

/** A command of the program in a directory; its output. */
export function say(binary, cwd, words, input) {
  const said = spawnSync(binary, words, { cwd, encoding: "utf8", input });
  if (said.status !== 0) throw new Error(`${words.join(" ")}: ${said.stderr}`);
  return said.stdout.trim();
}

/** A server over HTTP in a directory with a configuration. */
export async function serve(binary, cwd) {
  const child = begin(binary, ["start", "--transport", "http"], { cwd, stdio: ["ignore", "ignore", "pipe"] });
  const it = { child, cwd, log: "" };
  child.stderr.setEncoding("utf8").on("data", (text) => { it.log += text; });
  try {
    it.endpoint = await until("the server serves", () => /"url":"(https?:[^"]*\/mcp)"/.exec(it.log)?.[1]);
  } catch (error) { throw new Error(`${error.message}\n${it.log.slice(-4000)}`); }
  return it;
}

/** A request of the current protocol revision. */
export async function request(server, key, method, params, capabilities = {}) {
  const names = { "tools/call": params.name, "tasks/get": params.taskId, "tasks/update": params.taskId, "tasks/cancel": params.taskId };
  const response = await fetch(server.endpoint, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`, "content-type": "application/json", accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28", "mcp-method": method, ...(names[method] ? { "mcp-name": names[method] } : {}),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": capabilities, "io.modelcontextprotocol/clientInfo": { name: "driver", version: "1" } } } }),
  });
  const text = await response.text();
  return JSON.parse(text.startsWith("{") ? text : text.split("\n").filter((it) => it.startsWith("data: {")).at(-1).slice(6));
}

export const launch = (more = []) => chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", ...more],
});

/** A page whose complaints are failures, but for those that are expected. */
export async function open(context, expected = []) {
  const page = await context.newPage();
  const note = (text) => { if (!expected.some((it) => text.includes(it))) demand(false, `the browser complains: ${text}`); };
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) note(`console: ${message.text()}`); });
  page.on("pageerror", (error) => note(`error: ${error.stack}`));
  page.on("dialog", (dialog) => { note(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  return page;
}

/** Looks for what keeps people from using a page. */
export async function examine(page, what) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact));
  demand(!serious.length, `${what}: ${serious.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`).join("\n  ")}`);
}

/** A PostgreSQL of the test's own; its address, or nothing where it is not installed. */
export async function postgres() {
  const programs = spawnSync("sh", ["-c", "command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb"], { encoding: "utf8" }).stdout.trim().split("\n").at(-1);
  if (!programs) {
    if (process.env.CI === "true") throw new Error("PostgreSQL is not installed");
    return null;
  }
  const bin = spawnSync("readlink", ["-f", programs], { encoding: "utf8" }).stdout.trim().replace(/\/initdb$/, "");
  const home = directory("desk-postgres");
  const data = join(home, "data");
  mkdirSync(data, { mode: 0o700 });
  writeFileSync(join(home, "password"), "not-a-secret\n");
  // It refuses to run as root.
  const nobody = process.getuid() === 0 ? { uid: 65534, gid: 65534 } : {};
  if (nobody.uid) for (const path of [home, data, join(home, "password")]) chownSync(path, nobody.uid, nobody.gid);
  const options = { cwd: home, encoding: "utf8", env: { PATH: process.env.PATH, LC_ALL: "C" }, ...nobody };
  const made = spawnSync(join(bin, "initdb"), ["--no-sync", "--encoding=UTF8", "--no-locale", "--auth=scram-sha-256", "--pwfile", "password", "--username", "owlclaw", "--pgdata", "data"], options);
  if (made.status !== 0) throw new Error(`initdb: ${made.stderr}`);
  const port = await freePort();
  const server = begin(join(bin, "postgres"), ["-D", "data", "-p", String(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"], { ...options, stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  server.stderr.setEncoding("utf8").on("data", (text) => { log += text; });
  await until("PostgreSQL is there", () => log.includes("ready to accept connections"));
  return `postgres://owlclaw:not-a-secret@127.0.0.1:${port}/postgres`;
}

/** Does the work, ends all that it has begun, and says whether it was well. */
export async function carryOut(work) {
  let browser;
  const kept = { set browser(it) { browser = it; } };
  try {
    await work(kept);
  } catch (error) {
    failures += 1;
    console.error(error);
    for (const page of browser?.contexts().flatMap((it) => it.pages()) ?? []) console.error(page.url(), (await page.locator("body").innerText().catch(() => "")).slice(0, 3000));
  } finally {
    await browser?.close();
    // The last first: servers before the database that they use.
    for (const child of children.reverse()) {
      child.kill("SIGTERM");
      await Promise.race([new Promise((resolve) => { if (child.exitCode !== null || child.signalCode) resolve(); else child.on("exit", resolve); }), sleep(10_000)]);
      child.kill("SIGKILL");
    }
    for (const path of directories) rmSync(path, { recursive: true, force: true });
  }
  if (failures) console.error(`${failures} failures`);
  process.exit(failures ? 1 : 0);
}
