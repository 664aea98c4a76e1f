// Looks at the gateway example on the desk in a browser: the shop and three servers of others behind one endpoint, their
// tools and pins, secrets of the vault and credentials of clients, and the links to dashboards. Called by run.sh.
import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { begin, carryOut, demand, directory, examine, freePort, launch, open, request, say, serve, step, until } from "./parts.mjs";

const [binary, repository, screenshots] = process.argv.slice(2);
const SECRET = "qzx-desk-7c4n4ry81";

/** The gateway of the example, with people at its desk, a vault, and an upstream that each client has a credential for. */
function gateway() {
  const work = directory("desk-gateway");
  for (const name of ["gateway", "retail"]) cpSync(join(repository, "examples", name), join(work, name), { recursive: true });
  const cwd = join(work, "gateway");
  const file = join(cwd, "mcp-server.yaml");
  const own = `  upstreams:
    # Each client has its own credential for this one.
    drawer:
      command: mcp-server-filesystem
      args: [./shelf]
      credentials: per-client
      env: {DRAWER_TOKEN: "\${credential:token}", DRAWER_KEY: "\${vault:DRAWER_KEY}"}
`;
  const text = readFileSync(file, "utf8").replace("port: 8080", "port: 0").replace("  upstreams:\n", own).replace('"mcp_files_*"]', '"mcp_files_*", "mcp_drawer_read_*"]');
  writeFileSync(file, `${text}
  identity: {api_keys: {file: ./keys.json}}
  vault: {path: ./vault, key_file: ./vault.key}
  desk:
    enabled: true
    port: 0
    clients: {vera: viewer}
    links:
      Grafana: https://grafana.example.com/d/owlclaw?var=a
      "<b>Prometheus</b>": http://prometheus.example.com:9090/graph
`);
  const people = ["vera", "manager", "warehouse"];
  return { cwd, key: Object.fromEntries(people.map((it) => [it, say(binary, cwd, ["keys", "create", "--principal", it])])) };
}

await carryOut(async (kept) => {
  const remote = await freePort();
  begin("mcp-server-everything", ["streamableHttp"], { env: { ...process.env, PORT: String(remote) }, stdio: "ignore" });
  process.env.REMOTE_URL = `http://127.0.0.1:${remote}/mcp`;
  process.env.OPERATOR_TOKEN = "a-token-of-operators-for-this-example-alone";
  await until("the remote server listens", () => fetch(process.env.REMOTE_URL).then(() => true, () => false));
  const { cwd, key } = gateway();
  const server = await serve(binary, cwd);
  step("the gateway serves");
  const call = async (name, args, by = "manager") => JSON.stringify(await request(server, key[by], "tools/call", { name, arguments: args }));
  const calls = async (part, name, args, by) => {
    let last = "";
    try { await until(`${name} says ${part}`, async () => (last = await call(name, args, by)).includes(part)); } catch (error) { throw new Error(`${error.message}: ${last}`); }
  };
  await calls("Asia/Tokyo", "mcp_time_get_current_time", { timezone: "Asia/Tokyo" }, "warehouse");
  await calls("shelf A-02", "mcp_files_read_text_file", { path: "where.txt" }, "warehouse");
  await calls("42", "mcp_remote_get-sum", { a: 19, b: 23 });
  const asked = await call("mcp_files_write_file", { path: "new.txt", content: "from the desk" });
  const approval = asked.match(/apr_[0-9A-Za-z]{22}/)?.[0];
  if (!approval) throw new Error(asked);
  step("tools of each upstream are called");

  const browser = await launch();
  kept.browser = browser;
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 }, timezoneId: "Europe/Berlin" });
  const page = await open(context, ["401 (Unauthorized)", "409 (Conflict)", "400 (Bad Request)"]);
  const url = say(binary, cwd, ["desk", "--no-open"]);
  const at = (view) => `${url.split("#")[0]}#/${view}`;
  const shown = (text) => page.getByText(text).first().waitFor({ timeout: 15_000 });
  const twice = async (where, label, sure) => {
    await where.getByRole("button", { name: label, exact: true }).click();
    await where.getByRole("button", { name: sure, exact: true }).click();
  };
  await page.goto(url);
  await shown("mcp_files_write_file");

  // Upstreams that were called are ready, and say what they are.
  await page.goto(at("upstreams"));
  for (const name of ["time", "files", "remote"]) {
    const card = page.locator(".card", { hasText: name }).first();
    await card.locator(".mark.good", { hasText: "ready" }).waitFor();
  }
  await page.locator(".card", { hasText: "drawer" }).locator(".mark.held", { hasText: "held" }).waitFor();
  await examine(page, "upstreams of the gateway");
  await page.goto(at("upstreams?name=files"));
  await shown("secure-filesystem-server");
  await shown("End of its standard error");
  demand(await page.locator("li", { hasText: "move_file" }).locator(".mark.open", { hasText: "not on offer" }).count() === 1, "what is denied is not on offer");
  demand(await page.getByRole("link", { name: "mcp_files_read_text_file" }).count() === 1, "what is offered leads to the tool");
  await examine(page, "an upstream of the gateway");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-upstreams.png") });
  await page.getByRole("button", { name: "Recheck" }).click();
  await shown("connected anew");
  step("upstreams are shown");

  // A tool of theirs: origin and pin, who may call it, and a call.
  await page.goto(at("tools?name=mcp_files_write_file"));
  await shown("As models are told");
  await page.locator("input[name=explain-client]").fill("warehouse");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.locator(".mark.bad", { hasText: "refused" }).waitFor();
  await examine(page, "a tool of an upstream");
  await page.goto(at("tools?name=mcp_time_get_current_time"));
  await page.getByText("Try it: a real call").click();
  await page.locator("textarea").last().fill('{"timezone": "Asia/Tokyo"}');
  await page.getByRole("button", { name: "Call", exact: true }).click();
  await page.getByRole("button", { name: "Really call" }).click();
  await page.getByText("See the record").waitFor();
  await shown("Asia/Tokyo");

  // A pinned definition is held by a person, and approved again.
  await page.goto(at("tools?name=mcp_time_convert_time"));
  await page.locator("input[name=pin-reason]").fill("looked at");
  await twice(page, "Hold", "Really hold");
  await shown("Held by");
  demand((await call("mcp_time_convert_time", { source_timezone: "UTC", time: "12:00", target_timezone: "UTC" })).includes("held"), "what is held is refused");
  await page.goto(at("upstreams?pins=held"));
  await page.locator(".row", { hasText: "convert_time" }).click();
  await page.locator("input[name=pin-reason]").fill("it is well");
  await twice(page, "Approve this definition", "Really approve");
  await page.locator(".row", { hasText: "convert_time" }).waitFor({ state: "detached" });
  await calls("12:00", "mcp_time_convert_time", { source_timezone: "UTC", time: "12:00", target_timezone: "UTC" });
  step("tools and pins of upstreams are shown and decided on");

  // What is written waits for a person.
  await page.goto(at(`approvals?id=${approval}`));
  await page.getByRole("button", { name: "Approve (a)" }).click();
  await shown("approved by operator:");
  await call("mcp_files_write_file", { path: "new.txt", content: "from the desk" });
  demand(existsSync(join(cwd, "shelf/new.txt")), "what was approved is done");

  // Usage and health lead to dashboards.
  for (const view of ["usage", "health"]) {
    await page.goto(at(view));
    const link = page.getByRole("link", { name: "Grafana" });
    await link.waitFor();
    demand(await link.getAttribute("href") === "https://grafana.example.com/d/owlclaw?var=a" && await link.getAttribute("rel") === "noopener noreferrer", `${view} links to the dashboard`);
    demand(await page.getByRole("link", { name: "<b>Prometheus</b>" }).count() === 1 && await page.locator("main b").count() === 0, "the name of a link is no markup");
    await examine(page, view);
  }
  await page.goto(at("usage"));
  await shown("tool/mcp_files_read_text_file");
  step("usage, health and links are shown");

  // Without a vault it is said how to make one.
  await page.goto(at("keys"));
  await shown("There is no vault at");
  await shown("owlclaw-mcp vault init");
  await shown("There is no vault, beside which they would be kept.");
  await examine(page, "no vault");
  say(binary, cwd, ["vault", "init"]);
  await page.goto(at("health"));
  await page.goto(at("keys"));
  await shown("The vault is empty.");
  const value = page.locator("input[name=secret-value]");
  const set = async (name, text) => {
    await page.locator("input[name=secret-name]").fill(name);
    await value.fill(text);
    await page.getByRole("button", { name: "Set", exact: true }).click();
  };
  await set("not a name", SECRET);
  await shown("a name in a vault is");
  demand(await value.inputValue() === "", "a value is gone from the page, whatever came of it");
  await set("DRAWER_KEY", SECRET);
  await shown("DRAWER_KEY is set.");
  await page.locator("tr", { hasText: "DRAWER_KEY" }).getByText("upstreams.drawer.env.DRAWER_KEY").waitFor();
  demand(await value.inputValue() === "" && await value.getAttribute("type") === "password", "a value is not shown");
  demand(!(await page.content()).includes(SECRET), "a value is not in the page");
  demand(await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, history.state])).then((it) => !it.includes("7c4n4ry")), "a value is not kept by the browser");
  await set("DRAWER_KEY", `${SECRET}-new`);
  await shown("DRAWER_KEY is replaced.");
  await set("SHORT", "hunter2");
  await shown("not redacted");
  await examine(page, "secrets of the vault");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-keys.png"), fullPage: true });
  await twice(page.locator("tr", { hasText: "SHORT" }), "Remove", "Really remove");
  await shown("SHORT is removed.");
  step("secrets are set and removed");

  // Credentials of clients: one that is missed, one that is kept, and one that is forgotten.
  await until("the upstream is taken up", () => /"cause":"(?:desk|vault)"/.test(server.log));
  say(binary, cwd, ["upstream", "credential", "set", "drawer", "--client", "manager"], `${SECRET}-manager\n`);
  await calls("shelf A-02", "mcp_drawer_read_text_file", { path: "where.txt" });
  await calls("of this client's own", "mcp_drawer_read_text_file", { path: "where.txt" }, "warehouse");
  await page.goto(at("health"));
  await page.goto(at("keys?upstream=drawer"));
  const row = (client) => page.getByRole("region", { name: "List of credentials" }).locator("tr", { hasText: client });
  await row("manager").locator(".mark.unknown", { hasText: "unknown whether it is good" }).waitFor();
  await row("warehouse").locator(".mark.bad", { hasText: "missing" }).waitFor();
  demand(await row("warehouse").getByText("credential set drawer --client warehouse").count() === 1, "what is missed says how to give it");
  await examine(page, "credentials of clients");
  await twice(row("manager"), "Forget", "Really forget");
  await row("manager").waitFor({ state: "detached" });
  await calls("of this client's own", "mcp_drawer_read_text_file", { path: "where.txt" });
  await row("manager").locator(".mark.bad", { hasText: "missing" }).waitFor({ timeout: 20_000 });
  const notes = say(binary, cwd, ["ledger", "query", "--format", "json"]);
  demand(!notes.includes("7c4n4ry") && !server.log.includes("7c4n4ry"), "no value is in the ledger or the log");
  step("credentials are shown and forgotten");

  // Other colours, a narrow window, and somebody who only looks.
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(at("upstreams?name=remote"));
  await shown("connected");
  await examine(page, "an upstream, dark");
  await page.goto(at("keys"));
  await page.getByRole("region", { name: "List of credentials" }).waitFor();
  await examine(page, "keys and credentials, dark");
  await page.setViewportSize({ width: 360, height: 740 });
  for (const view of ["upstreams?name=files", "tools?name=mcp_files_write_file", "keys", "health", "usage"]) {
    await page.goto(at(view));
    await page.locator(".loading").first().waitFor({ state: "detached" });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    demand(wide <= 360, `${view} is ${wide} pixels wide in a window of 360`);
  }
  const other = await browser.newContext();
  const viewer = await open(other, ["401 (Unauthorized)"]);
  await viewer.goto(at("keys"));
  await viewer.locator("input[name=key]").fill(key.vera);
  await viewer.getByRole("button", { name: "Sign in" }).click();
  await viewer.getByText("Secrets of the vault").waitFor();
  await viewer.locator("tr", { hasText: "DRAWER_KEY" }).waitFor();
  for (const name of ["Set", "Remove", "Make a key"]) demand(await viewer.getByRole("button", { name, exact: true }).first().isDisabled(), `a viewer cannot: ${name}`);
  step("both themes, a narrow window, and a viewer");
});
