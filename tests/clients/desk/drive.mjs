// Drives a browser at the desk; called by run.sh.
import { spawn, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const [binary, repository, screenshots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const work = mkdtempSync(join(tmpdir(), "desk-"));
const begun = Date.now();
let failures = 0;

function demand(condition, what) {
  if (condition) return;
  failures += 1;
  console.error(`FAILED ${what}`);
}
const step = (what) => console.log(`${((Date.now() - begun) / 1000).toFixed(1).padStart(5)} s  ${what}`);

function say(...words) {
  const said = spawnSync(binary, words, { cwd: work, encoding: "utf8" });
  if (said.status !== 0) throw new Error(`${words.join(" ")}: ${said.stderr}`);
  return said.stdout.trim();
}

// The shop, with people at its desk and two upstreams that are no good.
cpSync(join(repository, "examples/retail"), work, { recursive: true });
const more = `
  identity: {api_keys: {file: ./data/keys.json}}
  desk:
    enabled: true
    port: 0
    clients: {vera: viewer, abel: approver}
  upstreams:
    stranger:
      command: ${JSON.stringify(process.execPath)}
      args: [${JSON.stringify(join(repository, "tests/clients/desk/stranger.mjs"))}, ${JSON.stringify(join(work, "changed"))}]
      texts: as-is
    gone: {url: "http://127.0.0.1:1/mcp"}
`;
const file = join(work, "mcp-server.yaml");
const config = readFileSync(file, "utf8").replace("\n    port: 8080", "\n    port: 0")
  .replace("\n    tools:\n      margin", "\n    tools:\n      mcp_stranger_harmless: {confirmation: operator}\n      margin");
writeFileSync(file, config + more);
const key = Object.fromEntries(["vera", "abel", "manager"].map((name) => [name, say("keys", "create", "--principal", name)]));

const server = spawn(binary, ["start", "--transport", "http"], { cwd: work, stdio: ["ignore", "ignore", "pipe"] });
let log = "";
server.stderr.setEncoding("utf8").on("data", (text) => { log += text; });
const until = async (what, is) => {
  for (const end = Date.now() + 60_000; Date.now() < end; await sleep(50)) {
    const found = await is();
    if (found) return found;
  }
  throw new Error(`it never is that ${what}\n${log.slice(-4000)}`);
};

async function call(tool, args, name = "manager") {
  const response = await fetch(`${endpoint}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${key[name]}`, "content-type": "application/json", accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool,
    },
    body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(tool)},"arguments":${args},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"driver","version":"1"}}}}`,
  });
  return response.json();
}

const problems = [];
let endpoint;
let browser;
try {
  endpoint = await until("the server serves", () => /"url":"(http:[^"]*\/mcp)"/.exec(log)?.[1]);
  step("the server serves");
  const refund = (cents) => ["refund-issue", `{"order_id":"SO-1003","amount_cents":${cents},"reason":"damaged"}`];
  const hostile = ["mcp_stranger_harmless", JSON.stringify({ "<b onmouseover=alert(1)>": "\u202Eevil\u200B", n: 0 }).replace('"n":0', '"n":18446744073709551617.10')];
  const waiting = [];
  for (const [tool, args] of [refund(100), hostile, refund(300)]) {
    const answer = await until(`${tool} asks for an approval`, async () => {
      const told = JSON.stringify(await call(tool, args));
      // The lists of an upstream come when they come.
      if (!told.includes("apr_") && tool === "refund-issue") throw new Error(told);
      return told.includes("apr_") && told;
    });
    waiting.push(answer.match(/apr_[0-9A-Za-z]{22}/)[0]);
  }
  for (let count = 0; count < 5; count += 1) await call("inventory-check", "{}");
  await call("no-such-tool", "{}");

  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 }, timezoneId: "Europe/Berlin" });
  const watch = (page, expected = []) => {
    const note = (text) => { if (!expected.some((it) => text.includes(it))) problems.push(text); };
    page.on("console", (message) => { if (["error", "warning"].includes(message.type())) note(`console: ${message.text()}`); });
    page.on("pageerror", (error) => note(`error: ${error.stack}`));
    page.on("dialog", (dialog) => { note(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  };
  const page = await context.newPage();
  // Who is not signed in is told so by the API.
  watch(page, ["401 (Unauthorized)"]);
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  const examine = async (what) => {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact));
    demand(!serious.length, `${what}: ${serious.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 120)} (${node.any.map((any) => any.message).join("; ").slice(0, 160)})`).join(" | ")}`).join("\n  ")}`);
  };
  const shown = async (text) => page.getByText(text).first().waitFor({ timeout: 15_000 });

  const url = say("desk", "--no-open");
  const from = Date.now();
  await page.goto(url);
  await shown("refund-issue");
  step(`signed in, and approvals are shown after ${Date.now() - from} ms`);
  demand(!page.url().includes("sign-in"), `the secret stays in the address: ${page.url()}`);

  // Whole arguments, exact numbers, and nothing that hides.
  await page.locator(".row").filter({ hasText: "pending" }).nth(1).click();
  await shown("18446744073709551617.10");
  demand(await page.locator(".detail .odd").count() >= 2, "invisible characters are seen");
  demand(await page.locator(".detail b").count() === 0, "no markup of others");
  await examine("an approval");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-approvals.png") });
  // Approve and deny, by the keyboard alone.
  const decide = async (id, letter, state) => {
    await page.goto(`${url.split("#")[0]}#/approvals?id=${id}`);
    await page.getByRole("button", { name: "Approve (a)" }).waitFor();
    await page.keyboard.press(letter);
    await shown(`${state} by operator:`);
  };
  await decide(waiting[0], "a", "approved");
  await decide(waiting[1], "d", "denied");
  step("approved and denied by keys");
  const paid = await call(...refund(100));
  demand(!JSON.stringify(paid).includes("apr_"), `what was approved is called: ${JSON.stringify(paid)}`);
  const denied = JSON.parse(say("approvals", "show", waiting[1], "--format", "json"));
  demand(denied.decided_proof.startsWith("file of the server, read as OS user"), denied.decided_proof);

  // Activity as it comes, and an entry with its proof.
  await page.keyboard.press("2");
  await shown("live");
  await call("inventory-check", "{\"sku\":\"CF-ETH-1000\"}");
  await page.locator(".come li").first().waitFor();
  await page.locator(".come li a").first().click();
  await shown("the chain holds here");
  await examine("activity");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-activity.png") });
  await page.getByText("The ledger itself").click();
  await page.getByRole("button", { name: "Verify the whole ledger" }).click();
  await shown("sound");
  step("activity, an entry and the verification are shown");

  // Tools, hostile ones among them, and why somebody can call one.
  await page.keyboard.press("3");
  await shown("inventory-check");
  await page.goto(`${url.split("#")[0]}#/tools?q=harmless`);
  await page.locator(".row").first().click();
  await shown("As models are told");
  demand(await page.locator(".detail img").count() === 0, "no image of others");
  await page.goto(`${url.split("#")[0]}#/activity?client=manager&tool=mcp_stranger_harmless`);
  await page.locator(".row").first().click();
  await shown("Proof");
  demand(await page.locator(".detail .odd").count() >= 2, "turning characters of arguments are seen");
  demand(await page.locator(".detail b").count() === 0, "no markup of arguments");
  await examine("a tool");
  await page.goto(`${url.split("#")[0]}#/tools?name=stock-write-off`);
  await page.locator("input[name=explain-client]").fill("warehouse");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator(".mark.bad", { hasText: "refused" }).waitFor();
  await page.goto(`${url.split("#")[0]}#/tools?name=inventory-check`);
  await page.getByText("Try it: a real call").click();
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByRole("button", { name: "Really call" }).click();
  await page.getByText("See the record").waitFor();
  step("tools are shown, explained and tried");

  // Upstreams: what cannot be reached is not fine.
  await page.keyboard.press("4");
  await page.locator(".card", { hasText: "gone" }).waitFor();
  demand(await page.locator(".card", { hasText: "gone" }).locator(".mark.good").count() === 0, "what was never reached is not fine");
  await page.locator(".card", { hasText: "stranger" }).click();
  await shown("End of its standard error");
  await examine("upstreams");
  await page.getByRole("button", { name: "Recheck" }).click();
  await shown("connected anew");

  // What has changed is held, and approved or held again by a person who has seen how it differs.
  writeFileSync(join(work, "changed"), "");
  await page.getByRole("button", { name: "Recheck" }).click();
  await shown("Held: tool harmless");
  await page.getByText("Definitions that are held").click();
  await page.locator(".row", { hasText: "harmless" }).click();
  await shown("offered now");
  demand(await page.locator(".differences .odd").count() >= 2, "turning characters of a difference are seen");
  demand(await page.locator(".detail img, .detail script").count() === 0, "no markup of a difference");
  await examine("a definition that is held");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-pins.png") });
  const twice = async (label, sure) => {
    await page.getByRole("button", { name: label, exact: true }).click();
    await page.getByRole("button", { name: sure, exact: true }).click();
  };
  await page.locator("input[name=pin-reason]").fill("the words are fine");
  await twice("Approve this definition", "Really approve");
  await page.locator(".row", { hasText: "harmless" }).waitFor({ state: "detached" });
  await page.goto(`${url.split("#")[0]}#/tools?name=mcp_stranger_harmless`);
  await page.locator("input[name=pin-reason]").fill("not today");
  await twice("Hold", "Really hold");
  await shown("Held by");
  demand(JSON.stringify(await call(...hostile)).includes("held"), "what is held is refused");
  step("a definition is approved and another held");

  for (const [number, text] of [["5", "Calls by client and capability"], ["6", "Metrics, for Prometheus and Grafana"], ["7", "Keys of clients"], ["8", "Rules in force"], ["9", "Skills"], ["0", "Sessions of legacy clients"]]) {
    await page.locator("main").focus();
    await page.keyboard.press(number);
    await shown(text);
    await page.locator(".loading").first().waitFor({ state: "detached" });
    await examine(text);
  }
  // Rules: what they change and what they would have decided is shown before they are saved.
  await page.keyboard.press("8");
  const rules = page.locator("textarea[name=rules]");
  const text = await rules.inputValue();
  demand(text.includes("# Whoever is not named below"), "comments of the file are shown");
  await rules.fill(text.replace("monthly_budget: 5.0", "monthly_budget: five"));
  await page.getByRole("button", { name: "See what changes" }).click();
  await shown("These rules cannot be used");
  await page.locator("main .card button.link").first().click();
  demand((await rules.evaluate((it) => it.value.slice(it.selectionStart, it.selectionEnd))).includes("five"), "a mistake leads to its line");
  await examine("rules with a mistake");
  await rules.fill(text.replace('allow: ["inventory-check"]', 'allow: []').replace("max_calls_per_minute: 30", "max_calls_per_minute: 31"));
  await page.getByRole("button", { name: "See what changes" }).click();
  await shown("What would be written");
  demand(await page.locator(".diff del").count() >= 2 && await page.locator(".diff ins").count() >= 2, "the lines that differ are shown");
  await page.getByRole("button", { name: "Decide them again" }).click();
  await shown("would be decided differently");
  await examine("a dry run");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-rules.png"), fullPage: true });
  await twice("Save", "Really save");
  await shown("is in force");
  const kept = readFileSync(file, "utf8");
  demand(kept.includes("max_calls_per_minute: 31") && kept.includes("# Whoever is not named below"), "the file has the new rules and the old comments");
  step("rules are changed");

  await page.keyboard.press("7");
  await page.locator("input[name=principal]").fill("ci");
  await page.getByRole("button", { name: "Make a key" }).click();
  await page.locator("code.key").waitFor();
  step("every view is shown");

  // Other colours, and a narrow window.
  for (const scheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.goto(`${url.split("#")[0]}#/approvals?state=all&id=${waiting[1]}`);
    await shown("Arguments, whole");
    await examine(`approvals, ${scheme}`);
  }
  await page.setViewportSize({ width: 360, height: 740 });
  for (const view of ["approvals", "activity", "tools?name=inventory-check", "upstreams?name=stranger", "usage", "keys"]) {
    await page.goto(`${url.split("#")[0]}#/${view}`);
    await page.locator(".loading").first().waitFor({ state: "detached" });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    demand(wide <= 360, `${view} is ${wide} pixels wide in a window of 360`);
  }
  await page.setViewportSize({ width: 3840, height: 2160 });
  await page.goto(`${url.split("#")[0]}#/activity`);
  await shown("live");
  demand(await page.title() !== "pwned", "nothing of others has run");
  step("both themes, 360 and 3840 pixels");

  // A viewer sees, and changes nothing.
  const other = await browser.newContext();
  const viewer = await other.newPage();
  watch(viewer, ["401 (Unauthorized)"]);
  await viewer.goto(url.split("#")[0]);
  await viewer.locator("input[name=key]").fill("not-a-key");
  await viewer.getByRole("button", { name: "Sign in" }).click();
  await viewer.getByText("proves who you are").waitFor();
  await viewer.locator("input[name=key]").fill(key.vera);
  await viewer.getByRole("button", { name: "Sign in" }).click();
  await viewer.getByText("refund-issue").first().waitFor();
  await viewer.goto(`${url.split("#")[0]}#/approvals?id=${waiting[2]}`);
  await viewer.getByRole("button", { name: "Approve (a)" }).waitFor();
  demand(await viewer.getByRole("button", { name: "Approve (a)" }).isDisabled(), "a viewer approves nothing");
  const cookies = await other.cookies();
  demand(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", JSON.stringify(cookies));
  demand(await viewer.evaluate(() => document.cookie) === "", "the cookie is out of reach of scripts");
  // Signing out everywhere ends it at once.
  await viewer.locator(".me summary").click();
  await viewer.getByRole("button", { name: "Sign out everywhere" }).click();
  await viewer.getByRole("button", { name: "Sign in" }).waitFor();
  await other.close();
  step("a viewer looks and signs out");

  demand(!problems.length, `the browser complains:\n  ${problems.join("\n  ")}`);
  // A server that goes away: what is shown says that it is old.
  await page.setViewportSize({ width: 1180, height: 760 });
  await page.goto(`${url.split("#")[0]}#/health`);
  await shown("degraded");
  server.kill("SIGTERM");
  await shown("Stale.");
  await shown("health is unknown");
  await page.goto(`${url.split("#")[0]}#/rules`).catch(() => {});
  await shown("Unknown.");
  step("a server that goes away is not taken for one that is well");
} finally {
  await browser?.close();
  server.kill("SIGTERM");
  await new Promise((resolve) => { if (server.exitCode !== null || server.signalCode) resolve(); else server.on("exit", resolve); });
  rmSync(work, { recursive: true, force: true });
}
if (failures) { console.error(`${failures} failures`); process.exit(1); }
console.log("the desk works in a browser");
