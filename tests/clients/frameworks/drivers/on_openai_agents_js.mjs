// An agent of the OpenAI Agents SDK in JavaScript.

import { Agent, MCPServerStdio, MCPServerStreamableHttp, OpenAIChatCompletionsModel, run, setTracingDisabled } from '@openai/agents';
import OpenAI from 'openai';
import { answer, headers, plan } from './driver.mjs';

setTracingDisabled(true);
const server = plan.process
    ? new MCPServerStdio({ ...plan.process, name: 'shop', clientSessionTimeoutSeconds: 30 })
    : new MCPServerStreamableHttp({ url: plan.mcp, name: 'shop', requestInit: { headers } });
await server.connect();
const client = new OpenAI({ baseURL: plan.model, apiKey: 'none' });
const agent = new Agent({ name: 'a', model: new OpenAIChatCompletionsModel(client, 'none'), mcpServers: [server] });

await answer(async (prompt) => (await run(agent, prompt)).finalOutput);
