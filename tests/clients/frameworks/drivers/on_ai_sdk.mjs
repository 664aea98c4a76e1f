// An agent of Vercel's AI SDK, with `@ai-sdk/mcp`.

import { createMCPClient } from '@ai-sdk/mcp';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs } from 'ai';
import { Experimental_StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';
import { answer, headers, plan } from './driver.mjs';

const client = await createMCPClient({
    transport: plan.process ? new Experimental_StdioMCPTransport(plan.process) : { type: 'http', url: plan.mcp, headers },
});
const tools = await client.tools();
const model = createOpenAICompatible({ name: 'none', baseURL: plan.model, apiKey: 'none' })('none');

await answer(async (prompt) => (await generateText({ model, tools, prompt, stopWhen: stepCountIs(5) })).text);
