// What both generations of the SDK have in common: the steps.
import { execFile } from 'node:child_process';
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
    structured: result.structuredContent ?? null,
    told: result._meta?.['io.owlclaw/error'] ?? null
  };
}

// Answers what servers ask as the plan says; `asked` is what they did.
export function answering(answers, asked) {
  return ({ message }) => {
    asked.push(message);
    const answer = answers[message];
    return answer === undefined || answer === null ? { action: 'decline' } : { action: 'accept', content: answer };
  };
}

// A command that is carried out while the client is connected.
const beside = ([command, ...args]) =>
  new Promise(resolve =>
    execFile(command, args, (error, output, errors) => resolve({ status: error ? (error.code ?? null) : 0, output, errors }))
  );

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
    case 'templates':
      return { templates: await everyPage(page => client.listResourceTemplates(page), 'resourceTemplates') };
    case 'subscribe':
      await sdk.subscribe(step.uri);
      return {};
    case 'told':
      return { told: await told() };
    case 'prompts':
      return { prompts: await everyPage(page => client.listPrompts(page), 'prompts') };
    case 'prompt':
      return { messages: (await client.getPrompt({ name: step.prompt, arguments: step.arguments })).messages };
    case 'complete': {
      const ref = step.template ? { type: 'ref/resource', uri: step.template } : { type: 'ref/prompt', name: step.prompt };
      const { completion } = await client.complete({ ref, argument: { name: step.argument, value: step.value } });
      return { values: completion.values };
    }
    case 'call': {
      logs.length = 0;
      const progress = [];
      const options = { timeout };
      if (step.progress) options.onprogress = p => progress.push([p.progress, p.total, p.message]);
      const result = await sdk.call({ name: step.tool, arguments: step.arguments, ...(step.meta && { _meta: step.meta }) }, options);
      const pictures = result.content.filter(part => part.type === 'image');
      return {
        ...shown(result),
        progress,
        pictures: pictures.map(part => ({ mimeType: part.mimeType, base64: part.data })),
        logs: [...logs]
      };
    }
    case 'beside':
      return await beside(step.command);
    case 'task':
    case 'cancel':
    case 'again':
    case 'list':
      return await tasks[step.do](step);
  }
  throw new Error(`unknown step ${JSON.stringify(step)}`);
}

const logs = [];

// Changes of resources that the client was told of.
let heard = [];
let wake = () => {};

function hear({ uri }) {
  heard.push(uri);
  wake();
}

async function told() {
  while (heard.length === 0) await new Promise(resolve => (wake = resolve));
  return heard.splice(0);
}

// The outcome of a step, which is repeated until its result has what the step waits for.
async function until(wanted, carryOut) {
  for (;;) {
    const outcome = await carryOut();
    const has = ([name, value]) => outcome.structured?.[name] === value;
    if (outcome.isError || Object.entries(wanted ?? {}).every(has)) return outcome;
  }
}

export async function run(plan, client, transport, sdk) {
  const timeout = plan.timeout * 1000;
  // What is no message at all, a stray line on standard output for example, is reported here.
  client.onerror = error => {
    // A progress notification that arrives together with the answer is handled after it
    // by this SDK, which then no longer knows its token.
    if (!String(error).includes('progress notification for an unknown token')) say({ complaint: String(error) });
  };
  const asked = [];
  if (plan.confirms) sdk.whenAsked(answering(plan.confirms, asked));
  if (plan.confirms) sdk.whenLogged?.(({ level, logger, data }) => logs.push([level, logger, data]));
  sdk.whenUpdated(hear);
  await client.connect(transport, { timeout });
  say({ connected: sdk.revision() });
  const tasks = plan.answers ? await sdk.tasks() : undefined;
  for (const step of plan.steps) {
    let outcome;
    try {
      outcome = await until(step.until, () => carryOut(client, sdk, tasks, step, timeout));
    } catch (error) {
      if (!sdk.isRefusal(error)) throw error;
      outcome = { error: { code: error.code, message: error.message, data: error.data ?? null } };
    }
    say({ id: step.id, ...outcome, ...(plan.confirms && { asked: asked.splice(0) }) });
  }
  await tasks?.close?.();
  await sdk.unsubscribe?.();
  // Streams that are cut off by closing are no complaint.
  client.onerror = undefined;
  await client.close();
  say({ closed: true });
}
