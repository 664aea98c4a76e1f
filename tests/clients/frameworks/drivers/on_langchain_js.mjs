// An agent of LangChain.js, with `@langchain/mcp-adapters`.

import { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent } from 'langchain';
import { answer, headers, plan, progressed } from './driver.mjs';

const client = new MultiServerMCPClient({
    mcpServers: { shop: plan.process ? { transport: 'stdio', ...plan.process } : { transport: 'http', url: plan.mcp, headers } },
    onProgress: ({ progress, total, message }) => progressed(progress, total, message),
});
const model = new ChatOpenAI({ model: 'none', apiKey: 'none', configuration: { baseURL: plan.model } });
const agent = createAgent({ model, tools: await client.getTools() });

await answer(async (prompt) => (await agent.invoke({ messages: [{ role: 'user', content: prompt }] })).messages.at(-1).content, true);
