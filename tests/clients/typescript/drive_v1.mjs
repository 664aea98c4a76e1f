// Carries out a plan of steps with the official TypeScript SDK 1.x, one JSON line per outcome.
//   node drive_v1.mjs PLAN.json
// ../plan.md says what a plan and an outcome look like. Also speaks HTTP with SSE, the transport of 2024-11-05,
// and WebSocket.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import { ElicitRequestSchema, McpError, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { readPlan, run } from './steps.mjs';
import { tasksOf } from './tasks_v1.mjs';

const plan = readPlan();
const [command, ...args] = plan.command;
const http = { requestInit: { headers: plan.headers } };
// The transport knows no headers, and what it opens connections with does.
globalThis.WebSocket = class extends WebSocket {
  constructor(url, protocols) {
    super(url, { protocols, headers: plan.headers });
  }
};
const transport = {
  stdio: () => new StdioClientTransport({ command, args, env: plan.env, cwd: plan.cwd }),
  http: () => new StreamableHTTPClientTransport(new URL(plan.url), http),
  sse: () => new SSEClientTransport(new URL(plan.url), http),
  websocket: () => new WebSocketClientTransport(new URL(plan.url))
}[plan.transport]();

let revision;
transport.setProtocolVersion = (set => version => {
  revision = version;
  set?.call(transport, version);
})(transport.setProtocolVersion);

const client = new Client(
  { name: 'owlclaw-client-runs', version: '0.1.0' },
  { capabilities: plan.answers || plan.confirms ? { elicitation: { form: {} } } : {} }
);
await run(plan, client, transport, {
  subscribe: uri => client.subscribeResource({ uri }),
  whenUpdated: hear => client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => hear(params)),
  revision: () => revision,
  call: (parameters, options) => client.callTool(parameters, undefined, options),
  tasks: async () => tasksOf(client, plan),
  whenAsked: answer => client.setRequestHandler(ElicitRequestSchema, request => answer(request.params)),
  isRefusal: error => error instanceof McpError
});
