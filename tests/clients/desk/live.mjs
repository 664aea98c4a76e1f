// Leaves the page's live view open for an hour, sixty times as fast, while 100,000 entries come, and says how much memory
// the page takes. Called by run.sh.
import { spawn, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const [binary, repository] = process.argv.slice(2);
const ENTRIES = Number(process.env.ENTRIES ?? 100_000);
const AT_ONCE = 1_000;
const FASTER = 60;
const SECONDS = 3_600 / FASTER;
// What the page may take at most besides what it takes when its lists are full.
const MAX_MORE_BYTES = 4 * 1024 * 1024;
const MAX_MORE_NODES = 500;

const work = mkdtempSync(join(tmpdir(), "live-"));
cpSync(join(repository, "examples/retail"), work, { recursive: true });
const file = join(work, "mcp-server.yaml");
const config = readFileSync(file, "utf8").replace("\n    port: 8080", "\n    port: 0");
writeFileSync(file, `${config}\n  identity: {api_keys: {file: ./data/keys.json}}\n  desk: {enabled: true, port: 0}\n`);
const say = (...words) => {
  const said = spawnSync(binary, words, { cwd: work, encoding: "utf8" });
  if (said.status !== 0) throw new Error(`${words.join(" ")}: ${said.stderr}`);
  return said.stdout.trim();
};
const key = say("keys", "create", "--principal", "manager");
const server = spawn(binary, ["start", "--transport", "http"], { cwd: work, stdio: ["ignore", "ignore", "pipe"] });
let log = "";
server.stderr.setEncoding("utf8").on("data", (text) => { log += text; });
const until = async (what, is, limit = 120_000) => {
  for (const end = Date.now() + limit; Date.now() < end; await sleep(50)) {
    const found = await is();
    if (found) return found;
  }
  throw new Error(`it never is that ${what}; ${sent} entries were sent\n${log.slice(-2000)}`);
};

let browser;
let failures = 0;
let sent = 0;
try {
  const endpoint = await until("the server serves", () => /"url":"(http:[^"]*\/mcp)"/.exec(log)?.[1]);
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const page = await (await browser.newContext()).newPage();
  page.setDefaultTimeout(120_000);
  page.on("pageerror", (error) => { failures += 1; console.error(`FAILED error: ${error.stack}`); });
  await page.addInitScript((faster) => {
    const { setTimeout: once, setInterval: often } = globalThis;
    globalThis.setTimeout = (work, time, ...more) => once(work, time / faster, ...more);
    globalThis.setInterval = (work, time, ...more) => often(work, time / faster, ...more);
  }, FASTER);
  // What really comes, to be sent again and again with other names.
  let template = null;
  let holds = true;
  await page.route("**/admin/v1/activity", async (route) => {
    if (!template || holds) { await route.continue(); return; }
    const events = [];
    for (let count = 0; count < AT_ONCE && sent < ENTRIES; count += 1, sent += 1) {
      const id = `019a0000-0000-7000-8000-${sent.toString(16).padStart(12, "0")}`;
      const time = new Date(Date.UTC(2030, 0, 1) + sent).toISOString();
      const it = JSON.parse(template);
      Object.assign(it.call, { call: id, time, client: `client-${sent % 997}` });
      events.push(`id: ${sent + 1}\nevent: entry\ndata: ${JSON.stringify(it)}\n`);
    }
    await sleep((SECONDS * 1000 * AT_ONCE) / ENTRIES);
    await route.fulfill({ status: 200, headers: { "content-type": "text/event-stream" }, body: `retry: 1\n\n${events.join("\n")}\n` });
  });
  const url = say("desk", "--no-open");
  await page.goto(url);
  await page.getByRole("link", { name: "Approvals" }).waitFor();
  const origin = url.split("#")[0];
  const session = await page.evaluate(async () => (await (await fetch("/admin/v1/session")).json()).csrf);
  await page.goto(`${origin}#/activity`);
  await page.getByText("live", { exact: true }).waitFor();
  const real = page.evaluate(() => new Promise((resolve) => {
    const source = new EventSource("/admin/v1/activity");
    source.addEventListener("entry", (event) => { if (JSON.parse(event.data).call?.outcome === "succeeded") { source.close(); resolve(event.data); } });
  }));
  await sleep(500);
  const response = await fetch(endpoint, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key}`, "content-type": "application/json", accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "inventory-check",
    },
    body: '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"inventory-check","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"driver","version":"1"}}}}',
  });
  if (!response.ok || !session) throw new Error(`${response.status} ${await response.text()}`);
  template = await real;
  await page.getByText("inventory-check").first().waitFor();

  const devtools = await page.context().newCDPSession(page);
  await devtools.send("Performance.enable");
  await devtools.send("HeapProfiler.enable");
  const measure = async () => {
    await devtools.send("HeapProfiler.collectGarbage");
    await devtools.send("HeapProfiler.collectGarbage");
    const { metrics } = await devtools.send("Performance.getMetrics");
    const of = (name) => metrics.find((it) => it.name === name).value;
    return { heap: of("JSHeapUsedSize"), nodes: of("Nodes"), listeners: of("JSEventListeners") };
  };
  holds = false;
  // Pausing and going on opens the stream anew.
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Go on" }).click();
  await until("the lists are full", () => 5 * AT_ONCE <= sent);
  const before = await measure();
  await until("all entries came", () => ENTRIES <= sent, 600_000);
  await sleep(2_000);
  const after = await measure();
  const shown = await page.locator("ol.come li").count();
  const told = (it) => `${(it.heap / 1048576).toFixed(1)} MiB, ${it.nodes} nodes, ${it.listeners} listeners`;
  console.log(`${ENTRIES} entries in an hour, ${FASTER} times as fast: ${told(before)} with full lists, ${told(after)} at the end; ${shown} are shown`);
  if (before.heap + MAX_MORE_BYTES < after.heap || before.nodes + MAX_MORE_NODES < after.nodes || before.listeners + 100 < after.listeners) {
    failures += 1;
    console.error("FAILED the page takes more and more memory");
  }
  if (shown !== 50) { failures += 1; console.error(`FAILED ${shown} entries are shown, not 50`); }
} catch (error) {
  failures += 1;
  console.error(error);
} finally {
  await browser?.close();
  server.kill("SIGKILL");
  rmSync(work, { recursive: true, force: true });
}
process.exit(failures ? 1 : 0);
