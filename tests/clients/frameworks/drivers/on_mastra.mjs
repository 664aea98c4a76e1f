// An agent of Mastra.

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { MCPClient } from '@mastra/mcp';
import { answer, headers, plan } from './driver.mjs';

const server = plan.process ?? { url: new URL(plan.mcp), requestInit: { headers } };
const client = new MCPClient({ servers: { shop: server } });
const model = createOpenAICompatible({ name: 'none', baseURL: plan.model, apiKey: 'none' })('none');
const agent = new Agent({ id: 'a', name: 'a', instructions: 'answer', model, tools: await client.listTools() });

await answer(async (prompt) => (await agent.generate(prompt, { maxSteps: 5 })).text);
