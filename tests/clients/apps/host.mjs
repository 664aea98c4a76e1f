// Plays a host of MCP Apps with the official examples behind a gateway. The host is AppBridge and the page's side is
// App, both of the official package, joined in memory in place of a browser's frames.
//
//   node host.mjs BINARY
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { App } from '@modelcontextprotocol/ext-apps';
import { AppBridge, getToolUiResourceUri } from '@modelcontextprotocol/ext-apps/app-bridge';
import { Client, InMemoryTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [binary] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));
const EXAMPLES = ['basic-vanillajs', 'budget-allocator', 'debug', 'map', 'system-monitor'];
const APPS = { extensions: { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } } };
// The page of each, and a tool that it calls by the name that its own server gave it.
const PAGES = {
  'mcp_basic_vanillajs_get-time': ['ui://mcp.basic-vanillajs/get-time/mcp-app.html', 'get-time'],
  'mcp_budget_allocator_get-budget-data': ['ui://mcp.budget-allocator/budget-allocator/mcp-app.html', 'get-budget-data'],
  'mcp_debug_debug-tool': ['ui://mcp.debug/debug-tool/mcp-app.html', 'debug-refresh'],
  'mcp_map_show-map': ['ui://mcp.map/cesium-map/mcp-app.html', 'show-map'],
  'mcp_system_monitor_get-system-info': ['ui://mcp.system-monitor/system-monitor/mcp-app.html', 'poll-system-stats']
};

const directory = await mkdtemp(join(tmpdir(), 'owlclaw-apps-'));
const upstreams = {};
for (const name of EXAMPLES) {
  const script = join(here, 'node_modules/@modelcontextprotocol', `server-${name}`, 'dist/index.js');
  upstreams[name] = { command: process.execPath, args: [script, '--stdio'] };
}
const config = join(directory, 'owlclaw.yaml');
const settings = {
  upstreams,
  ledger: { path: join(directory, 'ledger.db') },
  gateway: { first_start_seconds: 60 },
  http: { port: await freePort() },
  transport: 'http',
  logging: { level: 'error', requests: 'none' },
  governance: { roles: { visitor: { tools: { allow: ['*'], deny: ['mcp_debug_debug-refresh'] } } },
                clients: { visitor: { roles: ['visitor'] } } }
};
// JSON is YAML.
await writeFile(config, JSON.stringify({ mcp_server: settings }));
const server = spawn(binary, ['start', '--config', config], { stdio: ['ignore', 'ignore', 'inherit'] });
let checks = 0;
try {
  for (const mode of ['legacy', 'auto']) {
    await asHost(mode);
    await asModel(mode);
  }
  await isOnRecord();
} finally {
  server.kill('SIGTERM');
  await new Promise(ended => (server.exitCode === null ? server.once('exit', ended) : ended()));
  await rm(directory, { recursive: true, force: true });
}
console.log(`${EXAMPLES.length} examples of apps behind the gateway: ${checks} checks passed`);

/** Shows each page, and lets it call its tool. */
async function asHost(mode) {
  const client = await connected('host', mode, APPS);
  const declared = client.getServerCapabilities().extensions;
  ok(declared?.['io.modelcontextprotocol/ui'], `the extension is declared (${mode}): ${JSON.stringify(declared)}`);
  const { tools } = await client.listTools();
  const listed = (await client.listResources()).resources;
  for (const [name, [page, byPage]] of Object.entries(PAGES)) {
    const tool = tools.find(it => it.name === name);
    ok(tool, `${name} is listed`);
    is(getToolUiResourceUri(tool), page);
    const own = tool._meta['io.owlclaw/upstream'].name;
    is(tool._meta['ui/resourceUri'], page);
    const entry = listed.find(it => it.uri === page);
    is(entry?.mimeType, 'text/html;profile=mcp-app');
    const read = await client.readResource({ uri: page });
    is([read.contents[0].uri, read.contents[0].mimeType], [page, 'text/html;profile=mcp-app']);
    const file = join(here, 'node_modules/@modelcontextprotocol', `server-${own}`, 'dist/mcp-app.html');
    is(read.contents[0].text, await readFile(file, 'utf8'));
    if (own === 'map') {
      const { csp } = read.contents[0]._meta.ui;
      ok(csp.connectDomains.includes('https://*.openstreetmap.org'), JSON.stringify(csp));
    }
    const answer = await inPage(client, app => app.callServerTool({ name: byPage, arguments: {} }));
    ok(!answer.isError && answer.content.length, `${byPage}: ${JSON.stringify(answer)}`);
    // The page may name its own address, too.
    const original = page.replace(`mcp.${own}/`, '');
    const again = await inPage(client, app => app.readServerResource({ uri: original }));
    is(again.contents[0].text, read.contents[0].text);
  }
  const hidden = tools.find(it => it.name === 'mcp_system_monitor_poll-system-stats');
  is(hidden?._meta.ui.visibility, ['app']);
  await client.close();

  const visitor = await connected('visitor', mode, APPS);
  await isRefused(() => inPage(visitor, app => app.callServerTool({ name: 'debug-refresh', arguments: {} })), 'permission');
  await visitor.close();
}

/** Sees what a client without pages sees: no tool that is for pages alone. */
async function asModel(mode) {
  const client = await connected('model', mode, {});
  const names = (await client.listTools()).tools.map(it => it.name);
  ok(names.includes('mcp_debug_debug-tool'), 'a tool with a page is for the model as well');
  for (const name of ['mcp_debug_debug-refresh', 'mcp_debug_debug-log', 'mcp_system_monitor_poll-system-stats']) {
    ok(!names.includes(name), `${name} is not listed`);
    await isRefused(() => client.callTool({ name, arguments: {} }), 'unknown tool');
  }
  await isRefused(() => client.callTool({ name: 'get-time', arguments: {} }), 'unknown tool');
  await client.close();
}

/** Looks for the calls of the pages in the ledger. */
async function isOnRecord() {
  const asked = ['ledger', 'query', '--config', config, '--format', 'json', '--limit', '1000'];
  const answer = await promisify(execFile)(binary, asked, { maxBuffer: 1 << 26 });
  const calls = JSON.parse(answer.stdout);
  const of = (tool, principal) =>
    calls.filter(it => it.capability === `tool/${tool}` && it.client === principal).map(it => it.outcome);
  for (const [name, [, byPage]] of Object.entries(PAGES)) {
    const tool = name.replace(/_[^_]*$/, `_${byPage}`);
    is(of(tool, 'host'), ['succeeded', 'succeeded']);
  }
  is(of('mcp_debug_debug-refresh', 'visitor'), ['denied', 'denied']);
  is(of('mcp_debug_debug-refresh', 'model'), ['denied', 'denied']);
}

/** Does something in a page, which reaches the server through the host alone. */
async function inPage(client, act) {
  const [view, host] = InMemoryTransport.createLinkedPair();
  const bridge = new AppBridge(client, { name: 'host', version: '1' }, { serverTools: {}, serverResources: {} });
  const app = new App({ name: 'page', version: '1' }, {}, { autoResize: false });
  await bridge.connect(host);
  await app.connect(view);
  try {
    return await act(app);
  } finally {
    await bridge.close();
  }
}

async function connected(name, mode, capabilities) {
  const url = new URL(`http://127.0.0.1:${settings.http.port}/mcp`);
  const requestInit = { headers: { 'x-mcp-client-id': name } };
  const began = Date.now();
  for (;;) {
    const client = new Client({ name, version: '1' }, { capabilities, versionNegotiation: { mode } });
    try {
      await client.connect(new StreamableHTTPClientTransport(url, { requestInit }));
      return client;
    } catch (error) {
      if (server.exitCode !== null || 30_000 < Date.now() - began) throw error;
      await new Promise(done => setTimeout(done, 100));
    }
  }
}

async function isRefused(act, why) {
  let said;
  try {
    said = JSON.stringify(await act());
  } catch (error) {
    said = `${error.message} ${JSON.stringify(error.data)}`;
  }
  ok(said.includes(why), `expected \`${why}\`: ${said}`);
}

function ok(value, message) {
  assert.ok(value, message);
  checks += 1;
}

function is(value, expected) {
  assert.deepEqual(value, expected);
  checks += 1;
}

function freePort() {
  return new Promise((found, failed) => {
    const probe = createServer().once('error', failed);
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => found(port));
    });
  });
}
