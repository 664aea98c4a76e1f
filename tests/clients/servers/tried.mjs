// A small server by the TypeScript SDKs: `tried.mjs KIND [PORT [sse]]`; KIND is sdk-1 or server-2. Without a port it
// speaks over standard streams; sdk-1 also has HTTP+SSE.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { z } from 'zod';

const [kind, port, way] = process.argv.slice(2);
const sdk =
  kind === 'sdk-1'
    ? await import('@modelcontextprotocol/sdk/server/mcp.js')
    : await import('@modelcontextprotocol/server');

// Tells those who listen that the note has changed.
let touch = () => {};
// Servers of the first generation whose clients listen.
const listened = new Set();

const types = kind === 'sdk-1' ? await import('@modelcontextprotocol/sdk/types.js') : {};
const sampled = { messages: [{ role: 'user', content: { type: 'text', text: 'Say it.' } }], maxTokens: 10 };
const texts = text => ({ content: [{ type: 'text', text }] });

function make() {
  const capabilities = { resources: { subscribe: true, listChanged: true } };
  const server = new sdk.McpServer({ name: 'tried', version: '1.0.0' }, { capabilities });
  const shape = fields => (kind === 'sdk-1' ? fields : z.object(fields));
  server.registerTool('add', { inputSchema: shape({ a: z.number(), b: z.number() }) }, ({ a, b }) => texts(`${a + b}`));
  server.registerTool('count', { inputSchema: shape({ steps: z.number() }) }, async ({ steps }, context) => {
    const about = context.mcpReq ?? context;
    const token = about._meta?.progressToken;
    const tell = (about.notify ?? context.sendNotification).bind(about);
    for (let step = 1; step <= steps && token !== undefined; step++) {
      const params = { progressToken: token, progress: step, total: steps, message: `step ${step}` };
      await tell({ method: 'notifications/progress', params });
    }
    return texts('counted');
  });
  server.registerTool('rest', { inputSchema: shape({ mark: z.string() }) }, async ({ mark }, context) => {
    const signal = (context.mcpReq ?? context).signal;
    appendFileSync(mark, 'begun\n');
    await new Promise(resolve => signal.addEventListener('abort', resolve));
    appendFileSync(mark, 'cancelled\n');
    return texts('rested');
  });
  if (kind === 'sdk-1') {
    server.registerTool('ask', { inputSchema: {} }, async () => {
      const requestedSchema = { type: 'object', properties: { sure: { type: 'boolean' } }, required: ['sure'] };
      const answer = await server.server.elicitInput({ message: 'Sure?', requestedSchema });
      return texts(`sure: ${answer.content?.sure ?? answer.action}`);
    });
    server.registerTool('sample', { inputSchema: {} }, async () => {
      const answer = await server.server.createMessage(sampled);
      return texts(`sampled: ${answer.content.text}`);
    });
    server.server.setRequestHandler(types.SubscribeRequestSchema, async () => (listened.add(server), {}));
    touch = () => listened.forEach(it => it.server.sendResourceUpdated({ uri: 'tried://note' }));
  } else {
    server.registerTool('sample', { inputSchema: shape({}) }, async (_, context) => {
      const answer = context.mcpReq.inputResponses?.said;
      if (answer) return texts(`sampled: ${(answer.result ?? answer).content.text}`);
      return sdk.inputRequired({ inputRequests: { said: sdk.inputRequired.createMessage(sampled) } });
    });
    server.registerTool('ask', { inputSchema: shape({}) }, async (_, context) => {
      const answer = sdk.acceptedContent(context.mcpReq.inputResponses, 'sure');
      if (answer) return texts(`sure: ${answer.sure}`);
      const requestedSchema = { type: 'object', properties: { sure: { type: 'boolean' } }, required: ['sure'] };
      return sdk.inputRequired({
        inputRequests: { sure: sdk.inputRequired.elicit({ message: 'Sure?', requestedSchema }) }
      });
    });
  }
  server.registerTool('touch', { inputSchema: shape({}) }, () => (touch(), texts('touched')));
  const note = { contents: [{ uri: 'tried://note', text: 'a note' }] };
  server.registerResource('note', 'tried://note', {}, async () => note);
  server.registerPrompt('greet', { argsSchema: shape({ name: z.string() }) }, ({ name }) => ({
    messages: [{ role: 'user', content: { type: 'text', text: `Greet ${name}.` } }]
  }));
  return server;
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks.length ? JSON.parse(Buffer.concat(chunks)) : undefined;
}

// Sessions of the first generation.
const sessions = new Map();

async function serveFirst(request, response) {
  const { StreamableHTTPServerTransport } = await import('@modelcontextprotocol/sdk/server/streamableHttp.js');
  const known = sessions.get(request.headers['mcp-session-id']);
  const transport =
    known ??
    new StreamableHTTPServerTransport({
      sessionIdGenerator: () => crypto.randomUUID(),
      onsessioninitialized: id => sessions.set(id, transport)
    });
  if (!known) await make().connect(transport);
  await transport.handleRequest(request, response, await bodyOf(request));
}

async function serveEvents(request, response) {
  const { SSEServerTransport } = await import('@modelcontextprotocol/sdk/server/sse.js');
  const { pathname, searchParams } = new URL(request.url, 'http://here');
  if (request.method === 'GET' && pathname === '/sse') {
    const transport = new SSEServerTransport('/messages', response);
    sessions.set(transport.sessionId, transport);
    return make().connect(transport);
  }
  const transport = sessions.get(searchParams.get('sessionId'));
  if (!transport) return response.writeHead(404).end();
  await transport.handlePostMessage(request, response);
}

if (port === undefined) {
  if (kind === 'sdk-1') {
    const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
    await make().connect(new StdioServerTransport());
  } else {
    const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
    serveStdio(make);
  }
} else {
  let handle = way === 'sse' ? serveEvents : serveFirst;
  if (kind !== 'sdk-1') {
    const { toNodeHandler } = await import('@modelcontextprotocol/node');
    const handler = sdk.createMcpHandler(make);
    touch = () => handler.notify.resourceUpdated('tried://note');
    handle = toNodeHandler(handler);
  }
  createServer((request, response) => {
    if (request.url === '/health') return response.end();
    handle(request, response);
  }).listen(Number(port), '127.0.0.1');
}
