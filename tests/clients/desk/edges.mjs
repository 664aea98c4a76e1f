// Uses the desk in a browser where things are not as they should be: hostile texts in every field, an API that is slow,
// fails, or answers by halves, sessions that end, pages of others; and with a certificate of the browser. Called by run.sh.
import { spawnSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { delimiter, dirname, join } from "node:path";
import { begin, carryOut, demand, directory, examine, freePort, launch, open, request, say, serve, step, until } from "./parts.mjs";

const [binary, repository] = process.argv.slice(2);
const MARKUP = "<img src=x onerror=\"document.title='pwned'\"><b onmouseover=\"alert(1)\">'; touch pwned; '\"</b>";
const HOSTILE = ` ${MARKUP}\u202Ecod.exe\u2066\u200B${"w".repeat(60)}`;
const ODD = /[\u200b-\u200f\u202a-\u202e\u2060-\u2069]/;
const LISTS = ["approvals", "activity", "activity?notes=1", "tools", "upstreams", "upstreams?pins=all", "usage", "health", "keys", "rules", "skills", "sessions", "tasks?state=all"];
const EXPECTED = ["Failed to load resource", "EventSource's response has a MIME type"];

// Words of the API's own, names that lead to other answers, times and digests stay as they are.
const OWN = new Set(["csrf", "role", "state", "status", "outcome", "verdict", "severity", "next", "id", "call", "used_by", "version", "digest", "to_approve", "binding", "hash", "hash_before", "currency", "cost", "works"]);
const DATA = new Set(["arguments", "result", "input_schema", "detail", "governance"]);
function poison(value, name = "", isData = false) {
  if (typeof value === "string") return OWN.has(name) || /^\d{4}-\d\d-\d\dT/.test(value) ? value : value + HOSTILE;
  if (Array.isArray(value)) return value.map((it) => poison(it, name, isData));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, it]) => [isData ? key + HOSTILE : key, poison(it, isData ? "" : key, isData || DATA.has(key))]));
}

/** The shop with an upstream that means no good, calls of several outcomes, and approvals. */
async function shop() {
  const work = directory("desk-edges");
  cpSync(join(repository, "examples/retail"), work, { recursive: true });
  const file = join(work, "mcp-server.yaml");
  const text = readFileSync(file, "utf8").replace("\n    port: 8080", "\n    port: 0")
    .replace("\n    tools:\n      margin", "\n    tools:\n      refund-issue: {confirmation: operator}\n      margin");
  writeFileSync(file, `${text}
  tasks: {after_seconds: 0}
  identity: {api_keys: {file: ./data/keys.json}}
  desk: {enabled: true, port: 0, clients: {abel: approver}}
  upstreams:
    stranger:
      command: ${JSON.stringify(process.execPath)}
      args: [${JSON.stringify(join(repository, "tests/clients/desk/stranger.mjs"))}]
      texts: as-is
`);
  const key = Object.fromEntries(["abel", "manager"].map((it) => [it, say(binary, work, ["keys", "create", "--principal", it])]));
  const server = await serve(binary, work);
  const call = async (name, args, capabilities) => JSON.stringify(await request(server, key.manager, "tools/call", { name, arguments: args }, capabilities));
  const waiting = [];
  for (const cents of [100, 200, 300]) {
    const told = await call("refund-issue", { order_id: "SO-1003", amount_cents: cents, reason: "damaged" });
    waiting.push(told.match(/apr_[0-9A-Za-z]{22}/)[0]);
  }
  await until("the upstream's tool is there", async () => !(await call("mcp_stranger_harmless", {})).includes("nknown"));
  await call("inventory-check", { sku: "none" });
  await call("no-such-tool", {});
  await call("inventory-check", {}, { extensions: { "io.modelcontextprotocol/tasks": {} } });
  return { work, key, server, waiting, call };
}

await carryOut(async (kept) => {
  const { work, key, server, waiting, call } = await shop();
  const url = say(binary, work, ["desk", "--no-open"]);
  const origin = url.split("/#")[0];
  const at = (view) => `${origin}/#/${view}`;
  const browser = await launch();
  kept.browser = browser;
  const signedIn = async (options, ticket = say(binary, work, ["desk", "--no-open"])) => {
    const context = await browser.newContext({ viewport: { width: 1180, height: 760 }, ...options });
    const page = await open(context, EXPECTED);
    await page.goto(ticket);
    await page.getByText("(operator)").waitFor();
    return { context, page };
  };
  const { context, page } = await signedIn({ timezoneId: "Asia/Kolkata", locale: "en-US" }, url);
  step("a server serves, and a person is signed in");

  // A sign-in is good once, and the page says so.
  const late = await open(await browser.newContext(), EXPECTED);
  await late.goto(url);
  await late.getByText("this sign-in was used or is too old").waitFor();
  demand(!late.url().includes("sign-in"), `the secret stays in the address: ${late.url()}`);
  await late.context().close();

  // Times are those of whoever reads, with the exact one beside them.
  const moment = async (on, zone) => {
    await on.goto(at("activity"));
    const time = on.locator(".list .row time").first();
    await time.waitFor();
    const told = await time.evaluate((it) => [it.dateTime, it.textContent, it.title]);
    const expected = new Intl.DateTimeFormat("en-US", { dateStyle: "short", timeStyle: "medium", timeZone: zone }).format(new Date(told[0]));
    demand(told[1] === expected, `${told[1]} is not ${expected}, in ${zone}`);
    demand(told[2].includes(zone) || zone === "Asia/Kolkata" && told[2].includes("Asia/Calcutta"), `${told[2]} has no ${zone}`);
  };
  await moment(page, "Asia/Kolkata");
  const elsewhere = await signedIn({ timezoneId: "America/St_Johns", locale: "en-US" });
  await moment(elsewhere.page, "America/St_Johns");
  step("times are in the zone of whoever reads");

  // Lists, help and views by the keyboard.
  await page.goto(at("approvals"));
  await page.locator(".row").nth(2).waitFor();
  await page.locator(".rows").focus();
  for (const letter of ["j", "ArrowDown", "k", "Enter"]) await page.keyboard.press(letter);
  await page.getByRole("button", { name: "Approve (a)" }).waitFor();
  demand(page.url().includes(waiting[1]), `the second of three is opened: ${page.url()}`);
  demand(await page.evaluate(() => document.activeElement.tagName) === "H2", "what is opened has the focus");
  await page.keyboard.press("n");
  await until("the next one is open", () => page.url().includes(waiting[0]));
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await examine(page, "the help");
  await page.keyboard.press("3");
  demand(!page.url().includes("tools"), "keys do nothing behind the help");
  await page.keyboard.press("Escape");
  await page.locator(".me summary").click();
  await page.getByText("keys for single letters").click();
  await page.locator("main").focus();
  await page.keyboard.press("3");
  demand(!page.url().includes("tools"), "keys that are switched off do nothing");
  await page.getByText("keys for single letters").click();
  await page.locator(".me summary").click();
  step("lists and the help are used by keys");

  // Who looks elsewhere is told of a call that waits, once.
  const away = await browser.newContext();
  const absent = await open(away, EXPECTED);
  await absent.addInitScript(() => {
    globalThis.told = [];
    globalThis.Notification = class { static permission = "granted"; static async requestPermission() { return "granted"; } constructor(title, { body }) { globalThis.told.push(`${title}: ${body}`); } };
    Object.defineProperty(document, "hidden", { get: () => true });
  });
  await absent.goto(say(binary, work, ["desk", "--no-open"]));
  await absent.locator(".me summary").click();
  await absent.getByText("notify me of approvals").click();
  await call("refund-issue", { order_id: "SO-1003", amount_cents: 400, reason: "late" });
  await absent.getByText("4", { exact: true }).waitFor();
  const notices = await until("the person is told", async () => { const all = await absent.evaluate(() => globalThis.told); return all.length && all; });
  demand(JSON.stringify(notices) === JSON.stringify(["OwlClaw: a call waits for you: manager wants tool/refund-issue"]), `told: ${JSON.stringify(notices)}`);
  demand((await absent.title()).startsWith("(4) "), `the title counts: ${await absent.title()}`);
  // What is exported is what is filtered for.
  await absent.goto(at("activity?tool=refund-issue"));
  await absent.getByText("The ledger itself").click();
  const [exported] = await Promise.all([absent.waitForEvent("download"), absent.getByRole("link", { name: "Export" }).click()]);
  const lines = readFileSync(await exported.path(), "utf8").trim().split("\n").map((it) => JSON.parse(it));
  demand(exported.suggestedFilename() === "ledger.jsonl" && 4 <= lines.length && lines.every((it) => JSON.stringify(it).includes("refund-issue")), `${lines.length} lines of others are exported`);
  await away.close();
  step("a person is told of a call that waits, and exports the calls of one tool");

  // What is copied is a command that there is, whatever is in it.
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin });
  const calls = JSON.parse(await page.evaluate(async () => (await fetch("/admin/v1/calls?limit=5")).text())).calls;
  const commands = [];
  for (const view of [`approvals?id=${waiting[2]}`, `activity?call=${calls[0].call}`, `activity?client=${encodeURIComponent("a'; touch pwned; 'b")}&since=1d`, "tools?name=inventory-check", "upstreams?name=stranger", "health", "rules"]) {
    await page.goto(at("sessions"));
    await page.getByText("Sessions of legacy clients").waitFor();
    await page.goto(at(view));
    if (view.startsWith("activity")) await page.getByText("The ledger itself").click();
    if (view.includes("call=")) await page.getByText("Proof").waitFor();
    if (view.startsWith("tools")) await page.locator("input[name=explain-client]").fill("a'; touch pwned; 'b");
    const copies = page.locator("button[title^='owlclaw-mcp']:visible");
    await copies.first().waitFor();
    for (let count = await copies.count(), place = 0; place < count; place += 1) {
      await copies.nth(place).click();
      await page.getByText("Copied").first().waitFor();
      commands.push(await page.evaluate(() => navigator.clipboard.readText()));
      await page.getByText("Copied").first().waitFor({ state: "detached" });
    }
  }
  demand(7 <= commands.length, `${commands.length} commands were copied`);
  for (const command of commands) {
    const said = spawnSync("sh", ["-c", command], { cwd: work, encoding: "utf8", env: { ...process.env, PATH: `${dirname(binary)}${delimiter}${process.env.PATH}` } });
    // 2 says that there is no such command or option; the doctor finds what there is to find.
    demand(said.status === 0 || said.status === 1 && command.includes("doctor"), `${command}: ${said.status} ${said.stderr}`);
  }
  demand(spawnSync("ls", [join(work, "pwned")]).status !== 0, "a copied command runs nothing else");
  step(`${commands.length} commands are copied and run`);

  // Texts of others in every field of every answer.
  const legacy = { open: 1, max: 10, at: new Date().toISOString(), sessions: [{ id: "s", client: "c", version: "2025-06-18", idle_seconds: 1, requests: 2, streaming: true }] };
  const session = await page.evaluate(async () => (await fetch("/admin/v1/session")).json());
  await page.route("**/admin/v1/**", async (route) => {
    const path = new URL(route.request().url()).pathname;
    if (path.endsWith("/activity")) {
      await route.fulfill({ status: 200, headers: { "content-type": "text/event-stream" }, body: `retry: 60000\n\nid: 1\nevent: entry\ndata: ${JSON.stringify({ call: poison(calls[0]) })}\n\n` });
    } else if (path.endsWith("/sessions")) await route.fulfill({ json: poison(legacy) });
    else {
      // Names that are hostile lead to what they named before.
      const asked = decodeURIComponent(route.request().url()).replaceAll(HOSTILE, "");
      const answer = await route.fetch({ url: encodeURI(asked) }).catch(() => null);
      if (!answer) return route.abort();
      await route.fulfill({ response: answer, body: JSON.stringify(poison(JSON.parse(await answer.text()))) });
    }
    return undefined;
  });
  const pins = (await (await context.request.get(`${origin}/admin/v1/pins?limit=10`)).json()).pins;
  const details = [`approvals?id=${waiting[2]}`, `activity?call=${calls.at(-1).call}`, "tools?name=mcp_stranger_harmless", "tools?name=inventory-check", "upstreams?name=stranger", `upstreams?pins=all&pin=${encodeURIComponent(`${pins[0].upstream}${HOSTILE}/${pins[0].kind}${HOSTILE}/${pins[0].name}${HOSTILE}`)}`];
  for (const view of [...LISTS, ...details, `tools?q=${encodeURIComponent(HOSTILE)}`, `activity?client=${encodeURIComponent(HOSTILE)}`]) {
    await page.goto("about:blank");
    await page.goto(at(view));
    await page.locator("main section, main .notice").first().waitFor();
    await page.locator(".loading").first().waitFor({ state: "detached" });
    if (view.startsWith("activity?call") || view === "activity") await page.locator(".come li").first().waitFor();
    if (details.includes(view)) await page.locator(".detail h2").waitFor();
    await page.locator("main details").evaluateAll((all) => all.forEach((it) => { it.open = true; }));
    const found = await page.evaluate(([odd]) => {
      const is = new RegExp(odd);
      const all = [...document.querySelectorAll("body *")];
      return {
        text: document.body.innerText.split("\n").filter((it) => is.test(it)),
        attributes: all.flatMap((it) => [...it.attributes].filter((attribute) => ["title", "aria-label", "placeholder"].includes(attribute.name) && is.test(attribute.value)).map((attribute) => `${it.tagName} ${attribute.name}=${attribute.value}`)),
        markup: all.filter((it) => it.matches("img, b, iframe, object, script, [onerror], [onmouseover]")).map((it) => it.outerHTML),
        links: all.filter((it) => it.href?.baseVal === undefined && it.href && !it.href.startsWith(`${location.origin}/`)).map((it) => it.href),
        title: document.title, poisoned: document.body.innerText.includes("onerror"),
      };
    }, [ODD.source]);
    demand(!found.text.length, `${view}: nobody sees what is in: ${JSON.stringify(found.text.slice(0, 3))}`);
    demand(!found.attributes.length, `${view}: nobody sees what is in: ${JSON.stringify(found.attributes.slice(0, 3))}`);
    demand(!found.markup.length, `${view}: markup of others: ${found.markup.slice(0, 3)}`);
    demand(!found.links.length, `${view}: links to others: ${found.links}`);
    demand(found.title !== "pwned" && !ODD.test(found.title), `${view}: a text of others has run, or is the title: ${found.title}`);
    demand(found.poisoned, `${view} shows no text of others`);
    await examine(page, `${view} with hostile texts`);
    for (const width of [360, 3840, 1180]) {
      await page.setViewportSize({ width, height: 760 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      demand(wide <= width, `${view} is ${wide} pixels wide in a window of ${width}`);
    }
  }
  await page.unrouteAll({ behavior: "ignoreErrors" });
  step("hostile texts are shown as what they are, in windows of 360 to 3,840 pixels");

  // An API that is slow, fails, answers by halves, or answers something else: nothing is shown as fine.
  const told = (await context.request.get(`${origin}/admin/v1/tools`)).text();
  const modes = {
    slow: (route) => { held.push(route); },
    failing: (route) => route.fulfill({ status: 500, json: { error: "the disk is full" } }),
    "not there": (route) => route.abort("connectionrefused"),
    "cut off": async (route) => route.fulfill({ status: 200, contentType: "application/json", body: (await told).slice(0, 300) }),
    nonsense: (route) => route.fulfill({ status: 200, json: {} }),
    "something else": (route) => route.fulfill({ status: 200, contentType: "text/html", body: "<h1>Proxy</h1>" }),
  };
  let held = [];
  const words = { slow: /Loading…/, failing: /Unknown\. the disk is full/, "not there": /Unknown\. the server cannot be reached/, "cut off": /Unknown\. the answer broke off/, nonsense: /Unknown\./, "something else": /Unknown\. the answer broke off/ };
  await page.emulateMedia({ reducedMotion: "reduce" });
  for (const [mode, does] of Object.entries(modes)) {
    // What is not an answer is told by one place for all views.
    const views = ["not there", "something else"].includes(mode) ? ["approvals", "health"] : LISTS;
    for (const view of [...views, `approvals?id=${waiting[2]}`, `activity?call=${calls[0].call}`, "tools?name=inventory-check", "upstreams?name=stranger"]) {
      await page.goto("about:blank");
      await page.route((it) => it.pathname.startsWith("/admin/v1/") && it.pathname !== "/admin/v1/session", does);
      await page.goto(at(view));
      const whole = page.locator("main").filter({ hasText: words[mode] });
      await whole.waitFor({ timeout: 15_000 }).catch(async () => demand(false, `${view}, ${mode}: not said: ${(await page.locator("main").innerText()).slice(0, 200)}`));
      demand(await page.locator(".mark.good").count() === 0, `${view}, ${mode}: something is shown as good`);
      demand(await page.locator("nav .mark.unknown").count() === 1, `${view}, ${mode}: health is not unknown`);
      demand((await page.locator("nav .count").innerText()) === "?", `${view}, ${mode}: approvals are counted`);
      demand(!/Nothing waits|takes no keys|There are no|There is no|No tool|No call in|is configured/.test(await page.locator("main").innerText()), `${view}, ${mode}: what is unknown is said to be empty`);
      if (mode === "slow" && view === "health") demand(await page.locator(".loading").evaluate((it) => getComputedStyle(it, "::before").animationName) === "none", "nothing moves for who wants that");
      if (mode === "failing") await examine(page, `${view}, ${mode}`);
      await page.unrouteAll({ behavior: "ignoreErrors" });
      for (const route of held) await route.abort().catch(() => {});
      held = [];
    }
    step(`an API that is ${mode} is not taken for one that is well`);
  }
  // It is known again on request.
  await page.route("**/admin/v1/upstreams", modes.failing);
  await page.goto(at("upstreams"));
  await page.getByText("the disk is full").waitFor();
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.getByRole("button", { name: "Try again" }).first().click();
  await page.locator(".card", { hasText: "stranger" }).waitFor();
  // A decision whose answer is lost is not taken for one that was made.
  await page.route("**/decision", (route) => route.abort("connectionreset"));
  await page.goto(at(`approvals?id=${waiting[1]}`));
  await page.getByRole("button", { name: "Approve (a)" }).click();
  await page.locator(".decide").getByText("the server cannot be reached").waitFor();
  demand(await page.getByText("approved by").count() === 0, "nothing is said to be approved");
  await page.unrouteAll({ behavior: "ignoreErrors" });
  step("a lost answer is not taken for a decision");

  // Pages of others on this machine, to which the browser sends the same cookies.
  const evil = createServer((_, answer) => answer.writeHead(200, { "content-type": "text/html" }).end(`<!doctype html><title>evil</title><iframe src="${origin}/"></iframe>
    <form method="post" enctype="text/plain" action="${origin}/admin/v1/approvals/${waiting[1]}/decision" target="_blank"><input name='{"decision":"approve","x":"' value='"}'></form>`));
  await new Promise((resolve) => evil.listen(0, "127.0.0.1", resolve));
  const trap = await context.newPage();
  await trap.goto(`http://127.0.0.1:${evil.address().port}/`);
  await trap.waitForLoadState("load");
  demand(await trap.frames()[1].locator("body").innerText().then((it) => !it.includes("OwlClaw desk")), "the desk is in no frame");
  const read = await trap.evaluate((path) => fetch(path, { credentials: "include" }).then(() => "read", () => "refused"), `${origin}/admin/v1/approvals`);
  demand(read === "refused", "pages of others read nothing");
  await trap.evaluate((path) => fetch(path, { method: "POST", mode: "no-cors", credentials: "include", body: '{"decision":"approve"}' }).catch(() => {}), `${origin}/admin/v1/approvals/${waiting[1]}/decision`);
  await Promise.all([context.waitForEvent("page").then((it) => it.waitForLoadState()), trap.evaluate(() => document.forms[0].submit())]);
  demand(JSON.parse(say(binary, work, ["approvals", "show", waiting[1], "--format", "json"])).state === "pending", "pages of others decide nothing");
  evil.close();
  for (const it of context.pages()) if (it !== page) await it.close();
  step("pages of others neither show, read nor decide");

  // Sessions that end: in this page, in another page of the browser, and everywhere.
  await page.goto(at("activity"));
  const second = await open(context, EXPECTED);
  await second.goto(at("upstreams"));
  await second.locator(".card", { hasText: "stranger" }).waitFor();
  await page.locator(".list .row").first().waitFor();
  await page.locator(".me summary").click();
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await second.getByText("You were signed out").waitFor();
  demand(!(await second.locator("body").innerText()).includes("stranger"), "nothing stays in a page of a session that has ended");
  await page.goBack();
  await page.reload();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  demand(await page.locator(".row").count() === 0, "the history has nothing of a session that has ended");
  const kept_ = await page.evaluate(async () => ({ local: Object.keys(localStorage), session: Object.keys(sessionStorage), caches: await caches.keys(), databases: (await indexedDB.databases()).length }));
  demand(kept_.local.every((it) => ["theme", "keys", "notify"].includes(it)) && !kept_.session.length && !kept_.caches.length && !kept_.databases, `the browser keeps ${JSON.stringify(kept_)}`);
  await elsewhere.page.goto(at("keys"));
  await elsewhere.page.getByText("Keys of clients").waitFor();
  await elsewhere.context.clearCookies();
  await elsewhere.page.getByText("You were signed out: the session has ended.").waitFor();
  const [third, fourth] = [await signedIn({}), await signedIn({})];
  await third.page.locator(".me summary").click();
  await third.page.getByRole("button", { name: "Sign out everywhere" }).click();
  await fourth.page.getByText("You were signed out").waitFor();
  // A key that is revoked takes its sessions along.
  await fourth.page.locator("input[name=key]").fill(key.abel);
  await fourth.page.getByRole("button", { name: "Sign in" }).click();
  await fourth.page.getByText("abel (approver)").waitFor();
  const id = JSON.parse(say(binary, work, ["keys", "list", "--format", "json"])).find((it) => it.principal === "abel").id;
  say(binary, work, ["keys", "revoke", id]);
  await fourth.page.getByText("You were signed out").waitFor();
  await Promise.all([elsewhere, third, fourth].map((it) => it.context.close()));
  demand(!server.log.includes(key.abel) && !server.log.includes(session.csrf), "no secret is in the log");
  step("sessions end, and leave nothing behind");

  // With a certificate of the browser, over TLS.
  const tls = directory("desk-tls");
  const ssl = (...words) => { const said = spawnSync("openssl", words, { cwd: tls, encoding: "utf8" }); if (said.status !== 0) throw new Error(`openssl ${words.join(" ")}: ${said.stderr}`); };
  const issue = (name, subject, more) => {
    writeFileSync(join(tls, `${name}.ext`), more);
    ssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", subject);
    ssl("x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", `${name}.ext`, "-out", `${name}.pem`);
  };
  ssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "1", "-subj", "/CN=Authority", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign");
  issue("server", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n");
  issue("olga", "/CN=olga", "subjectAltName=DNS:olga.people\nextendedKeyUsage=clientAuth\n");
  issue("nora", "/CN=nora", "subjectAltName=DNS:nora.people\nextendedKeyUsage=clientAuth\n");
  const port = await freePort();
  writeFileSync(join(tls, "mcp-server.yaml"), `mcp_server:
  transport: http
  http: {port: 0, tls: {enabled: true, cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem}}
  identity: {certificates: {principal: san_dns}}
  desk: {enabled: true, port: ${port}, clients: {olga.people: operator}}
`);
  await serve(binary, tls);
  const secure = `https://localhost:${port}`;
  const certified = async (name) => {
    const it = await browser.newContext({ ignoreHTTPSErrors: true, ...(name ? { clientCertificates: [{ origin: secure, certPath: join(tls, `${name}.pem`), keyPath: join(tls, `${name}.key`) }] } : {}) });
    const page = await open(it, EXPECTED);
    await page.goto(`${secure}/`);
    await page.getByRole("button", { name: "Sign in" }).click();
    return page;
  };
  const olga = await certified("olga");
  await olga.getByText("olga.people (operator)").click();
  await olga.getByText(/certificate of olga\.people, operator of the desk/).waitFor();
  const cookies = await olga.context().cookies();
  demand(cookies.length === 1 && cookies[0].name.startsWith("__Host-") && cookies[0].secure && cookies[0].httpOnly && cookies[0].sameSite === "Strict", JSON.stringify(cookies));
  demand(say(binary, tls, ["ledger", "export"]).includes("client certificate of olga.people"), "who signed in, and how, is on record");
  await olga.getByRole("button", { name: "Sign out", exact: true }).click();
  await olga.getByRole("button", { name: "Sign in" }).waitFor();
  await olga.reload();
  await olga.getByRole("button", { name: "Sign in" }).waitFor();
  demand((await olga.context().cookies()).length === 0, "who has signed out stays so, whatever the browser could prove");
  const nora = await certified("nora");
  await nora.getByText("you have no rights here").waitFor();
  const nobody = await certified(null);
  await nobody.getByText("no key, token or certificate proves who you are").waitFor();
  demand((await nobody.context().cookies()).length === 0, "who is nobody has no session");
  step("a certificate of the browser signs in");
});
