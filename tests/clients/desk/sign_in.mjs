// Signs people in at an issuer that others have written (oidc-provider), in a browser: on the desk, and on the page where
// users of clients give credentials. Called by run.sh.
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const [binary, provider] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const work = mkdtempSync(join(tmpdir(), "sign-in-"));
const begun = Date.now();
// How long an ID token lasts, which says nothing of the session.
const SECONDS = 5;
let failures = 0;

function demand(condition, what) {
  if (condition) return;
  failures += 1;
  console.error(`FAILED ${what}`);
}
const step = (what) => console.log(`${((Date.now() - begun) / 1000).toFixed(1).padStart(5)} s  ${what}`);
const freePort = () => new Promise((resolve) => { const server = createServer().listen(0, "127.0.0.1", () => { const { port } = server.address(); server.close(() => resolve(port)); }); });
const until = async (what, is) => {
  for (const end = Date.now() + 60_000; Date.now() < end; await sleep(50)) {
    const found = await is();
    if (found) return found;
  }
  throw new Error(`it never is that ${what}\n${log.slice(-4000)}`);
};

const children = [];
function begin(command, args, options) {
  const child = spawn(command, args, options);
  children.push(child);
  return child;
}

let log = "";
let browser;
const problems = [];
try {
  const issuing = begin(process.execPath, [provider], { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, SECONDS: String(SECONDS) } });
  let told = "";
  issuing.stdout.setEncoding("utf8").on("data", (text) => { told += text; });
  const issuer = await until("the issuer is there", () => /^http\S+/.exec(told)?.[0]);
  const [port, desk] = [await freePort(), await freePort()];
  const metadata = await (await fetch(`${issuer}/.well-known/openid-configuration`)).json();
  const register = async (members) => {
    const answer = await fetch(metadata.registration_endpoint, {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ grant_types: ["authorization_code"], response_types: ["code"], ...members }),
    });
    const client = await answer.json();
    if (!client.client_id) throw new Error(JSON.stringify(client));
    return client;
  };
  const places = (name) => [`http://127.0.0.1:${desk}/sign-in/${name}`, `http://127.0.0.1:${port}/sign-in/with/${name}`];
  // One that has a secret, and a public one.
  const secretive = await register({ redirect_uris: places("corp"), token_endpoint_auth_method: "client_secret_basic" });
  writeFileSync(join(work, "mcp-server.yaml"), `mcp_server:
  transport: http
  http: {port: ${port}}
  identity:
    resource: http://127.0.0.1:${port}/mcp
    jwt:
      corp:
        issuer: ${issuer}
        audience: [tools]
        principal_prefix: "corp:"
        min_refetch_seconds: 1
        sign_in: {client_id: ${secretive.client_id}, client_secret: "\${vault:sign-in}"}
  vault: {path: vault, key_file: vault.key}
  desk:
    enabled: true
    port: ${desk}
    clients: {"corp:ana": approver}
  upstreams:
    web:
      url: http://127.0.0.1:1/mcp
      credentials: per-client
      headers: {Authorization: "Bearer \${credential:token}"}
`);
  const say = (words, input) => {
    const said = spawnSync(binary, words, { cwd: work, encoding: "utf8", input });
    if (said.status !== 0) throw new Error(`${words.join(" ")}: ${said.stderr}`);
    return said.stdout;
  };
  say(["vault", "init"]);
  say(["vault", "set", "sign-in"], secretive.client_secret);
  const server = begin(binary, ["start"], { cwd: work, stdio: ["ignore", "ignore", "pipe"] });
  server.stderr.setEncoding("utf8").on("data", (text) => { log += text; });
  await until("the server serves", () => /"url":"(http:[^"]*\/mcp)"/.test(log));
  step("the issuer and the server are there");

  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const context = await browser.newContext();
  const page = await context.newPage();
  page.setDefaultTimeout(120_000);
  page.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !message.text().includes("401 (Unauthorized)")) problems.push(`console: ${message.text()}`); });
  page.on("pageerror", (error) => problems.push(`error: ${error.stack}`));
  await page.addInitScript(() => document.addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  const examine = async (what) => {
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const serious = violations.filter((it) => ["serious", "critical"].includes(it.impact));
    demand(!serious.length, `${what}: ${serious.map((it) => it.id).join(", ")}`);
  };
  const origin = `http://127.0.0.1:${desk}`;
  const button = page.getByRole("button", { name: "Sign in with corp" });
  const signIn = async (what) => {
    await button.click();
    await page.getByText("corp:ana (approver)").waitFor({ timeout: 60_000 });
    demand(!page.url().includes("code="), `the code stays in the address ${what}: ${page.url()}`);
  };

  await page.goto(`${origin}/#/activity`);
  await button.waitFor();
  await examine("the page that signs in");
  await signIn("at first");
  demand(page.url() === `${origin}/#/activity`, `the view is the one that was asked for: ${page.url()}`);
  const cookies = (await context.cookies(origin)).filter((it) => it.name === `owlclaw-desk-${desk}`);
  demand(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === "Strict", "the session is a strict cookie");
  await page.getByText("corp:ana (approver)").click();
  await page.getByText("ID token of corp:ana by corp").waitFor();
  await page.reload();
  await page.getByText("corp:ana (approver)").waitFor();
  await sleep((SECONDS + 1) * 1_000);
  await page.reload();
  await page.getByText("corp:ana (approver)").waitFor();
  step("signed in, and the session outlives the ID token");
  // Nobody goes back to a code.
  await page.goBack();
  demand(!page.url().includes("code="), `the history has no code: ${page.url()}`);
  await page.goto(`${origin}/#/activity`);
  await page.getByText("corp:ana (approver)").click();
  await page.getByRole("button", { name: "Sign out everywhere" }).click();
  await button.waitFor();
  step("signed out everywhere");

  issuing.stdin.write("rotate\n");
  await until("the issuer has another key", () => told.includes("rotated"));
  await sleep(1_100);
  await signIn("with another key of the issuer");
  await page.getByText("corp:ana (approver)").click();
  await page.getByRole("button", { name: "Sign out", exact: true }).click();
  await button.waitFor();
  step("signed in with another key of the issuer");

  // What nobody has begun here ends nowhere, and says so.
  await page.goto(`${origin}/sign-in/corp?code=stolen&state=x&iss=${encodeURIComponent(issuer)}`);
  await page.getByText("this browser has not begun this sign-in").waitFor();
  demand(!page.url().includes("code="), "a stolen code does not stay either");
  step("a code of others is refused");

  await page.goto(`http://127.0.0.1:${port}/sign-in?upstream=web`);
  await page.getByRole("button", { name: "Sign in with corp" }).click();
  await page.getByRole("link", { name: /Sign in at/ }).click();
  await page.getByText("corp:ana").waitFor({ timeout: 60_000 });
  await page.getByLabel("token").fill("a-token-of-ana");
  await page.getByRole("button", { name: "Keep" }).click();
  await page.getByRole("heading", { name: "Done" }).waitFor();
  demand(say(["upstream", "credential", "list"]).includes("corp:ana"), "the credential is ana's");
  step("ana has given her credential for an upstream");
  demand(!log.includes(secretive.client_secret), "the secret is in no log");
  const kinds = say(["ledger", "export"]);
  demand(kinds.includes("ID token of corp:ana by corp"), "who signed in, and how, is on record");
} catch (error) {
  failures += 1;
  console.error(error, log.slice(-2000));
  for (const page of browser?.contexts().flatMap((it) => it.pages()) ?? []) console.error(page.url(), await page.locator("body").innerText().catch(() => ""));
} finally {
  await browser?.close();
  for (const child of children) child.kill("SIGKILL");
  rmSync(work, { recursive: true, force: true });
}
for (const problem of problems) demand(false, problem);
process.exit(failures ? 1 : 0);
