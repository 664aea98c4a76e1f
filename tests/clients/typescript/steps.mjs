// What both generations of the SDK have in common: the steps.
import { readFileSync } from 'node:fs';

export const readPlan = () => JSON.parse(readFileSync(process.argv[2], 'utf8'));

const say = outcome => process.stdout.write(JSON.stringify(outcome) + '\n');

export async function everyPage(fetch, field) {
  const found = [];
  let cursor;
  do {
    const page = await fetch(cursor === undefined ? undefined : { cursor });
    found.push(...page[field]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return found;
}

export const isOver = status => ['completed', 'failed', 'cancelled'].includes(status);

// What a call was answered with.
export function shown(result) {
  const texts = result.content.filter(part => part.type === 'text').map(part => part.text);
  return {
    isError: result.isError === true,
    text: texts.join('\n'),
    structured: result.structuredContent ?? null
  };
}

// The plan's answers to what servers ask; `asked` is what they did.
export function answering(plan, asked) {
  return ({ message }) => {
    asked.push(message);
    const answer = plan.answers[message];
    return answer === undefined || answer === null ? { action: 'decline' } : { action: 'accept', content: answer };
  };
}

async function carryOut(client, sdk, tasks, step, timeout) {
  switch (step.do) {
    case 'tools':
      return { tools: await everyPage(page => client.listTools(page), 'tools') };
    case 'resources':
      return { resources: await everyPage(page => client.listResources(page), 'resources') };
    case 'read': {
      const read = await client.readResource({ uri: step.uri });
      return {
        contents: read.contents.map(part => ({
          uri: part.uri,
          mimeType: part.mimeType,
          base64: 'text' in part ? Buffer.from(part.text, 'utf8').toString('base64') : part.blob
        }))
      };
    }
    case 'call': {
      const progress = [];
      const options = { timeout };
      if (step.progress) options.onprogress = p => progress.push([p.progress, p.total, p.message]);
      const result = await sdk.call({ name: step.tool, arguments: step.arguments }, options);
      return { ...shown(result), progress };
    }
    case 'task':
    case 'cancel':
    case 'again':
    case 'list':
      return await tasks[step.do](step);
  }
  throw new Error(`unknown step ${JSON.stringify(step)}`);
}

export async function run(plan, client, transport, sdk) {
  const timeout = plan.timeout * 1000;
  // What is no message at all, a stray line on standard output for example, is reported here.
  client.onerror = error => {
    // A progress notification that arrives together with the answer is handled after it
    // by this SDK, which then no longer knows its token.
    if (!String(error).includes('progress notification for an unknown token')) say({ complaint: String(error) });
  };
  await client.connect(transport, { timeout });
  say({ connected: sdk.revision() });
  const tasks = plan.answers ? await sdk.tasks() : undefined;
  for (const step of plan.steps) {
    let outcome;
    try {
      outcome = await carryOut(client, sdk, tasks, step, timeout);
    } catch (error) {
      if (!sdk.isRefusal(error)) throw error;
      outcome = { error: { code: error.code, message: error.message, data: error.data ?? null } };
    }
    say({ id: step.id, ...outcome });
  }
  await tasks?.close?.();
  // Streams that are cut off by closing are no complaint.
  client.onerror = undefined;
  await client.close();
  say({ closed: true });
}
