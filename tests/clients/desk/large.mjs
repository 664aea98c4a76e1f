// Measures the views of the desk with many tools, upstreams and entries; called by large.sh.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const [binary, upstreams, calls] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const most = 100;
const work = mkdtempSync(join(tmpdir(), "desk-large-"));

/** As many MCP servers of 50 tools each as are asked for, at /NUMBER/mcp. */
const topics = ["orders", "stock", "refunds", "staff"];
const tools = (of) => Array.from({ length: 50 }, (_, at) => ({
  name: `tool_${at}`, title: `Tool ${at} of ${of}`, description: `Looks up ${topics[at % 4]} of department ${of}, sums them up and says what is unusual.`,
  inputSchema: { type: "object", properties: { id: { type: "string", description: "The record" }, limit: { type: "integer" } }, required: ["id"] },
}));
const servers = createServer(async (asked, answer) => {
  let body = "";
  for await (const part of asked) body += part;
  if (asked.method !== "POST") return answer.writeHead(405).end();
  const { id, method } = JSON.parse(body);
  if (id === undefined) return answer.writeHead(202).end();
  const of = asked.url.split("/")[1];
  const result = { initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: `s${of}`, version: "1" } }, "tools/list": { tools: tools(of) } }[method];
  const told = result ? { result } : { error: { code: -32601, message: "unknown" } };
  return answer.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", id, ...told }));
});
await new Promise((resolve) => servers.listen(0, "127.0.0.1", resolve));

mkdirSync(join(work, "skills/shop/hours"), { recursive: true });
writeFileSync(join(work, "skills/shop/hours/SKILL.md"), "---\nname: hours\ndescription: Opening hours.\n---\n# Hours\n");
const lines = Array.from({ length: upstreams }, (_, at) => `    s${at}: {url: "http://127.0.0.1:${servers.address().port}/${at}/mcp"}`);
writeFileSync(join(work, "mcp-server.yaml"), `mcp_server:
  http: {port: 0}
  resources: {skills_dir: skills}
  ledger: {durability: relaxed}
  desk: {enabled: true, port: 0}
  governance:
    default_quota: {max_calls_per_minute: 1000000000, max_calls_per_day: 1000000000}
  upstreams:
${lines.join("\n")}
`);
const server = spawn(binary, ["start", "--transport", "http"], { cwd: work, stdio: ["ignore", "ignore", "pipe"] });
let log = "";
server.stderr.setEncoding("utf8").on("data", (text) => { log += text; });
const until = async (what, is) => {
  for (const end = Date.now() + 600_000; Date.now() < end; await sleep(200)) {
    const found = await is();
    if (found) return found;
    if (server.exitCode !== null) break;
  }
  throw new Error(`it never is that ${what}\n${log.slice(-2000)}`);
};

let browser;
let failures = 0;
try {
  const begun = Date.now();
  const url = await until("the desk is served", () => spawnSync(binary, ["desk", "--no-open"], { cwd: work, encoding: "utf8" }).stdout.trim());
  const endpoint = await until("the server serves", () => /"url":"(http:[^"]*\/mcp)"/.exec(log)?.[1]);
  console.log(`served after ${((Date.now() - begun) / 1000).toFixed(1)} s`);

  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const uri = "skill://shop/hours/SKILL.md";
  const read = (id) => new Promise((resolve, reject) => {
    const body = JSON.stringify({ jsonrpc: "2.0", id, method: "resources/read", params: { uri, _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/clientInfo": { name: "load", version: "1" } } } });
    const sent = request(endpoint, { agent, method: "POST", headers: { "content-type": "application/json", accept: "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28", "mcp-method": "resources/read", "mcp-name": uri, "x-mcp-client-id": `client-${id % 40}`, "content-length": Buffer.byteLength(body) } }, (answer) => {
      answer.resume().on("end", () => (answer.statusCode === 200 ? resolve() : reject(new Error(`status ${answer.statusCode}`))));
    });
    sent.on("error", reject).end(body);
  });
  let next = 0;
  await Promise.all(Array.from({ length: 64 }, async () => { while (next < calls) await read(next++); }));
  agent.destroy();
  console.log(`${calls} calls after ${((Date.now() - begun) / 1000).toFixed(1)} s`);

  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  const page = await (await browser.newContext()).newPage();
  // The first is good for a minute only.
  await page.goto(calls ? spawnSync(binary, ["desk", "--no-open"], { cwd: work, encoding: "utf8" }).stdout.trim() : url);
  await page.getByText("Nothing waits for you").first().waitFor();
  /** Time from the change of the address until what is asked for is in the page. */
  const measure = async (name, hash, ready) => {
    const took = [];
    for (let turn = 0; turn < 5; turn += 1) {
      await page.evaluate(() => { location.hash = "#/sessions"; });
      await page.getByRole("heading", { name: "Sessions of legacy clients" }).waitFor();
      took.push(await page.evaluate(([hash, ready]) => new Promise((resolve) => {
        const from = performance.now();
        const watch = new MutationObserver(() => {
          if (!document.querySelector(ready)) return;
          watch.disconnect();
          requestAnimationFrame(() => resolve(performance.now() - from));
        });
        watch.observe(document.body, { childList: true, subtree: true, attributes: true });
        setTimeout(() => resolve(15_000), 15_000);
        location.hash = hash;
      }), [hash, ready]));
    }
    took.sort((one, other) => one - other);
    const is = took[2] <= most;
    if (!is) failures += 1;
    console.log(`${is ? "      " : "SLOW  "}${name.padEnd(32)} ${took.map((it) => it.toFixed(0).padStart(5)).join(" ")} ms`);
  };
  const last = upstreams - 1;
  const list = ".list .row, .list .empty";
  for (const [name, hash, ready] of [
    ["approvals", "#/approvals", list], ["activity", "#/activity", ".list h3 + .rows"], ["activity of a client", "#/activity?client=client-7", ".list h3 + .rows"],
    ["activity of nobody", "#/activity?client=nobody", ".list h3 + .empty"], ["activity that failed", "#/activity?outcome=failed", ".list h3 + .empty"], ["events", "#/activity?notes=1", ".list .row"],
    ["tools", "#/tools", ".list .row"], ["tools by a word", "#/tools?q=refunds", ".list .row"], ["tools of an upstream", `#/tools?upstream=s${last}`, ".list .row"],
    ["tools that are held", "#/tools?held=1", list], ["a tool", `#/tools?name=mcp_s${last}_tool_3`, ".detail h2"], ["upstreams", "#/upstreams", ".card"], ["an upstream", `#/upstreams?name=s${last}`, ".detail h2"],
    ["definitions that are held", "#/upstreams?pins=held", list], ["all definitions", "#/upstreams?pins=all", ".list .row"], ["usage", "#/usage", "table"], ["health", "#/health", ".card"], ["rules", "#/rules", "main pre.json"],
  ]) await measure(name, hash, ready);
} finally {
  await browser?.close();
  server.kill("SIGTERM");
  await new Promise((resolve) => { if (server.exitCode !== null || server.signalCode) resolve(); else server.on("exit", resolve); });
  servers.close();
  servers.closeAllConnections();
  rmSync(work, { recursive: true, force: true });
}
if (failures) { console.error(`${failures} views are slow`); process.exit(1); }
