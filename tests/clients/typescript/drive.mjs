// Carries out a plan of steps with the official TypeScript SDK 2.x, one JSON line per outcome.
//   node drive.mjs PLAN.json
// ../plan.md says what a plan and an outcome look like.
import { Client, ProtocolError, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { JsonRpcResponseError } from '@modelcontextprotocol/ext-tasks/client';
import { readPlan, run } from './steps.mjs';
import { tasksOf } from './tasks.mjs';

const plan = readPlan();
const [command, ...args] = plan.command;
const transport =
  plan.transport === 'stdio'
    ? new StdioClientTransport({ command, args, env: plan.env, cwd: plan.cwd })
    : new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: plan.headers } });
// The revision is negotiated: a modern server must be found to be one.
const info = { name: 'owlclaw-client-runs', version: '0.1.0' };
// The SDK wants a handler for what it is told to be able to; tasks bring theirs.
const capabilities = plan.answers || plan.confirms ? { elicitation: { form: {} } } : {};
const client = new Client(info, {
  capabilities,
  versionNegotiation: { mode: plan.era === 'modern' ? 'auto' : 'legacy' }
});
const subscriptions = [];
const isModern = () => client.getProtocolEra() === 'modern';
await run(plan, client, transport, {
  subscribe: async uri =>
    isModern()
      ? subscriptions.push(await client.listen({ resourceSubscriptions: [uri] }))
      : await client.subscribeResource({ uri }),
  unsubscribe: () => Promise.all(subscriptions.map(it => it.close())),
  whenUpdated: hear => client.setNotificationHandler('notifications/resources/updated', ({ params }) => hear(params)),
  revision: () => client.getNegotiatedProtocolVersion(),
  call: (parameters, options) => client.callTool(parameters, options),
  tasks: () => tasksOf(client, transport, plan, info, capabilities),
  whenLogged: hear => client.setNotificationHandler('notifications/message', notification => hear(notification.params)),
  whenAsked: answer => client.setRequestHandler('elicitation/create', request => answer(request.params)),
  isRefusal: error => error instanceof ProtocolError || error instanceof JsonRpcResponseError
});
