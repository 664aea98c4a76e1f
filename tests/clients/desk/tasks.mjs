// Looks at tasks and servers on the desk in a browser, and cancels tasks there: with a ledger in a file, and with two
// servers over one PostgreSQL, of which one is killed. Called by run.sh.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { begin, carryOut, demand, directory, examine, launch, open, postgres, request, say, serve, step, until } from "./parts.mjs";

const [binary, repository, screenshots] = process.argv.slice(2);
const TASKS = { extensions: { "io.modelcontextprotocol/tasks": {} }, elicitation: { form: {} } };
const HOSTILE = "<img src=x onerror=\"document.title='pwned'\">\u202Ecod.exe";
// Counting takes as long as it takes; a sheet that does not exist cannot be counted.
const COMMANDS = `
    count-shelves: {description: Counts what is on the shelves., run: ["sleep", "{seconds}"], input_schema: {type: object, properties: {seconds: {type: string}}, required: [seconds]}, output: text, timeout_seconds: 3600}
    lost-sheet: {description: Counts a sheet that is not there., run: ["cat", "/nonexistent/sheet"], input_schema: {type: object}, output: text, timeout_seconds: 10}`;

/** The shop, in which every call of who knows tasks is one. */
function shop(name, database) {
  const work = directory(name);
  cpSync(join(repository, "examples/retail"), work, { recursive: true });
  const file = join(work, "mcp-server.yaml");
  let text = readFileSync(file, "utf8").replace("\n    port: 8080", "\n    port: 0").replace("\n  commands:", `\n  commands:${COMMANDS}`);
  if (database) text = text.replace("path: ./data/ledger.db", `url: ${database}`);
  writeFileSync(file, `${text}
  tasks: {after_seconds: 0}
  identity: {api_keys: {file: ./data/keys.json}}
  desk: {enabled: true, port: 0, clients: {vera: viewer}}
`);
  return { work, key: Object.fromEntries(["vera", "manager", "warehouse"].map((it) => [it, say(binary, work, ["keys", "create", "--principal", it])])) };
}

const created = async (server, key, name, args) => {
  const { result, error } = await request(server, key, "tools/call", { name, arguments: args }, TASKS);
  if (result?.resultType !== "task") throw new Error(JSON.stringify(result ?? error));
  return result.taskId;
};
const state = async (server, key, id) => (await request(server, key, "tasks/get", { taskId: id }, TASKS)).result.status;
const reached = (server, key, id, wanted) => until(`${id} is ${wanted}`, async () => (await state(server, key, id)) === wanted);

await carryOut(async (kept) => {
  const { work, key } = shop("desk-tasks");
  const server = await serve(binary, work);
  step("a server serves");
  const done = await created(server, key.warehouse, "inventory-check", {});
  const wrong = await created(server, key.manager, "lost-sheet", {});
  const asking = await created(server, key.manager, "goods-return", { order_id: "O-5007" });
  const running = await created(server, key.warehouse, "stock-count-sheet", {}).then(() => created(server, key.manager, "count-shelves", { seconds: "600" }));
  const taken = await created(server, key.manager, "count-shelves", { seconds: "601" });
  await reached(server, key.warehouse, done, "completed");
  await reached(server, key.manager, wrong, "completed");
  await reached(server, key.manager, asking, "input_required");
  await request(server, key.manager, "tasks/cancel", { taskId: taken }, TASKS);
  await reached(server, key.manager, taken, "cancelled");

  const browser = await launch();
  kept.browser = browser;
  const context = await browser.newContext({ viewport: { width: 1180, height: 760 }, timezoneId: "Europe/Berlin" });
  const page = await open(context, ["401 (Unauthorized)", "409 (Conflict)"]);
  const url = say(binary, work, ["desk", "--no-open"]);
  const at = (view) => `${url.split("#")[0]}#/${view}`;
  await page.goto(url);
  await page.getByRole("link", { name: "Tasks" }).click();
  const row = (id, on = page) => on.locator("tr", { hasText: id });
  await row(running).waitFor();
  // What is not over, first.
  demand(await row(asking).locator(".mark.held", { hasText: "input required" }).count() === 1, "a task that waits for answers says so");
  demand(await row(running).getByText("this server").count() === 1, "a task says who carries it out");
  demand(await row(done).count() === 0 && await row(taken).count() === 0, "what is over is shown on request");
  await page.getByText("No other server shares this ledger").waitFor();
  demand(await page.locator("tr", { hasText: "(this one)" }).locator(".mark.good", { hasText: "alive" }).count() === 1, "this server is alive");
  await examine(page, "tasks that run");

  // All, by the keyboard: the filter is reached by `/`, and the address is a link to what is shown.
  await page.locator("main").focus();
  await page.keyboard.press("/");
  demand(await page.evaluate(() => document.activeElement.name) === "client", "`/` leads to the filters");
  await page.keyboard.press("Tab");
  await page.keyboard.press("a");
  await row(done).waitFor();
  demand(page.url().includes("state=all"), `the filter is in the address: ${page.url()}`);
  demand(await row(done).locator(".mark.good", { hasText: "completed" }).count() === 1, "a task that is done is shown as done");
  demand(await row(wrong).locator(".mark.bad", { hasText: "completed with an error" }).count() === 1, "a tool that failed is not shown as well");
  demand(await row(taken).locator(".mark.open", { hasText: "cancelled" }).count() === 1, "a cancelled task is shown as such");
  await examine(page, "all tasks");
  await page.goto(at("tasks?state=all&client=warehouse"));
  await row(done).waitFor();
  demand(await row(running).count() === 0, "the filter by client holds");
  await page.goto(at("tasks?state=failed"));
  await page.getByText("There is no such task.").waitFor();
  await page.goto(at(`tasks?client=${encodeURIComponent(HOSTILE)}`));
  await page.getByText("There is no such task.").waitFor();
  demand(await page.title() !== "pwned" && await page.locator("main img").count() === 0, "a filter is no markup");
  for (const scheme of ["dark", "light"]) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.goto(at("tasks?state=all"));
    await row(running).waitFor();
    await examine(page, `tasks, ${scheme}`);
  }
  for (const width of [360, 3840]) {
    await page.setViewportSize({ width, height: 760 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    demand(wide <= width, `tasks are ${wide} pixels wide in a window of ${width}`);
  }
  await page.setViewportSize({ width: 1180, height: 760 });
  step("tasks are shown and filtered by the keyboard, in both themes");

  // Cancelled by the keyboard, after a question.
  await page.goto(at("tasks"));
  const button = row(running).getByRole("button");
  await button.focus();
  await page.keyboard.press("Enter");
  await row(running).getByRole("button", { name: "Really cancel" }).waitFor();
  demand(await state(server, key.manager, running) === "working", "one press cancels nothing");
  await page.keyboard.press("Enter");
  await row(running).waitFor({ state: "detached" });
  await reached(server, key.manager, running, "cancelled");
  demand(say(binary, work, ["ledger", "export"]).includes("task_cancel"), "the cancellation is on record");
  // What has ended meanwhile is not cancelled, and the page says why.
  await row(asking).getByRole("button", { name: "Cancel" }).click();
  await request(server, key.manager, "tasks/cancel", { taskId: asking }, TASKS);
  await row(asking).getByRole("button", { name: "Really cancel" }).click();
  await row(asking).getByText("over already").waitFor();
  step("a task is cancelled");

  const other = await browser.newContext();
  const viewer = await open(other, ["401 (Unauthorized)"]);
  await viewer.goto(at("tasks"));
  await viewer.locator("input[name=key]").fill(key.vera);
  await viewer.getByRole("button", { name: "Sign in" }).click();
  const last = await created(server, key.manager, "count-shelves", { seconds: "602" });
  await viewer.goto(at("tasks?state=working"));
  await row(last, viewer).waitFor();
  demand(await row(last, viewer).getByRole("button", { name: "Cancel" }).isDisabled(), "a viewer cancels nothing");
  await other.close();
  step("a viewer looks at tasks");

  const database = await postgres();
  if (!database) { step("SKIPPED several servers, since PostgreSQL is not installed"); return; }
  const [first, second] = [shop("desk-node", database), shop("desk-node", database)];
  const nodes = [await serve(binary, first.work), await serve(binary, second.work)];
  step("two servers serve over one PostgreSQL");
  const theirs = await created(nodes[1], second.key.manager, "count-shelves", { seconds: "600" });
  const lost = await created(nodes[1], second.key.manager, "count-shelves", { seconds: "601" });
  const place = say(binary, first.work, ["desk", "--no-open"]);
  await page.goto(place);
  await page.goto(`${place.split("#")[0]}#/tasks`);
  await row(theirs).waitFor();
  demand(await row(theirs).getByText("this server").count() === 0 && await row(theirs).getByText("process ").count() === 1, "a task of another server names it");
  await until("both servers are alive", async () => (await page.locator("section table").last().locator(".mark.good", { hasText: "alive" }).count()) === 2);
  demand(await page.getByText("(this one)").count() === 1, "one of the servers is this one");
  await examine(page, "two servers");
  if (screenshots) await page.screenshot({ path: join(screenshots, "desk-tasks.png"), fullPage: true });
  await row(theirs).getByRole("button", { name: "Cancel" }).click();
  await row(theirs).getByRole("button", { name: "Really cancel" }).click();
  await row(theirs).waitFor({ state: "detached" });
  await reached(nodes[0], first.key.manager, theirs, "cancelled");
  step("a task of another server is cancelled");

  nodes[1].child.kill("SIGKILL");
  // By the page alone, which asks again by itself.
  await page.getByText("its tasks are taken up by others").waitFor({ timeout: 90_000 });
  demand(await page.locator("section table").last().locator(".mark.good").count() === 1, "a killed server is not alive");
  await page.goto(`${place.split("#")[0]}#/tasks?state=failed`);
  await until("the task of the killed server has failed", async () => {
    await page.getByRole("button", { name: "Ask again" }).first().click();
    return await row(lost).locator(".mark.bad", { hasText: "failed" }).count();
  });
  await examine(page, "a failed task and a silent server");
  step("a killed server is silent, and its task has failed");
});
