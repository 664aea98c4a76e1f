// What the official conformance suite calls, by the TypeScript SDK: `suite.mjs KIND [PORT]`. KIND is sdk-1 or
// server-2. Without a port it speaks over standard streams. Names and texts are the suite's.
import { createServer } from 'node:http';
import { z } from 'zod';

const [kind, port] = process.argv.slice(2);
const isFirst = kind === 'sdk-1';
const sdk = isFirst
  ? await import('@modelcontextprotocol/sdk/server/mcp.js')
  : await import('@modelcontextprotocol/server');
const { completable } = isFirst ? await import('@modelcontextprotocol/sdk/server/completable.js') : sdk;
const types = isFirst ? await import('@modelcontextprotocol/sdk/types.js') : {};

const PNG =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=';
const text = said => ({ type: 'text', text: said });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const embedded = (uri, mimeType, said) => ({ type: 'resource', resource: { uri, mimeType, text: said } });
const answer = (...content) => ({ content });
const pause = () => new Promise(resolve => setTimeout(resolve, 50));
const form = properties => ({ type: 'object', properties, required: Object.keys(properties) });
const asksModel = (said, maxTokens) => ({ messages: [{ role: 'user', content: text(said) }], maxTokens });
const shown = it => `action=${it.action}, content=${JSON.stringify(it.content ?? {})}`;

const DEFAULTS = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true }
};
const titled = (values, titles) => values.map((value, at) => ({ const: value, title: titles[at] }));
const PLAIN = ['option1', 'option2', 'option3'];
const VALUES = ['value1', 'value2', 'value3'];
const CHOICES = {
  untitledSingle: { type: 'string', enum: PLAIN },
  titledSingle: { type: 'string', oneOf: titled(VALUES, ['First Option', 'Second Option', 'Third Option']) },
  legacyEnum: {
    type: 'string',
    enum: ['opt1', 'opt2', 'opt3'],
    enumNames: ['Option One', 'Option Two', 'Option Three']
  },
  untitledMulti: { type: 'array', items: { type: 'string', enum: PLAIN } },
  titledMulti: { type: 'array', items: { anyOf: titled(VALUES, ['First Choice', 'Second Choice', 'Third Choice']) } }
};

// Questions of a tool, by key, which the client answers in whichever way its revision has.
const elicits = (message, requestedSchema) => ({ kind: 'elicit', params: { message, requestedSchema } });
const samples = (said, maxTokens = 100) => ({ kind: 'createMessage', params: asksModel(said, maxTokens) });
const roots = () => ({ kind: 'listRoots' });

async function ask(server, context, questions, requestState) {
  if (!isFirst) {
    const given = context.mcpReq.inputResponses ?? {};
    if (Object.keys(questions).every(key => key in given)) {
      return Object.fromEntries(Object.keys(questions).map(key => [key, given[key].result ?? given[key]]));
    }
    const requests = Object.entries(questions).map(([key, it]) => [key, sdk.inputRequired[it.kind](it.params)]);
    return sdk.inputRequired({ inputRequests: Object.fromEntries(requests), requestState });
  }
  const made = {
    elicit: params => server.server.elicitInput(params),
    createMessage: params => server.server.createMessage(params),
    listRoots: () => server.server.listRoots()
  };
  const given = {};
  for (const [key, it] of Object.entries(questions)) given[key] = await made[it.kind](it.params);
  return given;
}

function make() {
  const capabilities = { logging: {}, completions: {}, resources: { subscribe: true, listChanged: true } };
  const server = new sdk.McpServer({ name: 'suite', version: '1.0.0' }, { capabilities });
  const shape = fields => (isFirst ? fields : z.object(fields));
  const tool = (name, fields, run) =>
    server.registerTool(name, { description: name, inputSchema: shape(fields) }, run);
  const says = (name, ...content) => tool(name, {}, async () => answer(...content));
  const asking = (name, fields, questions, told, state) =>
    tool(name, fields, async (given, context) => {
      const answers = await ask(server, context, questions(given), state);
      return answers.resultType ? answers : answer(text(told(answers)));
    });

  says('test_simple_text', text('This is a simple text response for testing.'));
  says('test_image_content', image);
  says('test_audio_content', { type: 'audio', data: WAV, mimeType: 'audio/wav' });
  says(
    'test_embedded_resource',
    embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')
  );
  says(
    'test_multiple_content_types',
    text('Multiple content types test:'),
    image,
    embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}')
  );
  tool('test_error_handling', {}, async () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  tool('test_tool_with_progress', {}, async (_, context) => {
    const about = context.mcpReq ?? context;
    const tell = (about.notify ?? context.sendNotification).bind(about);
    const progressToken = about._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined) {
        await tell({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
      }
      await pause();
    }
    return answer(text('Progress has been reported.'));
  });
  tool('test_tool_with_logging', {}, async (_, context) => {
    const about = context.mcpReq ?? context;
    const tell = (about.notify ?? context.sendNotification).bind(about);
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await tell({ method: 'notifications/message', params: { level: 'info', data } });
      await pause();
    }
    return answer(text('Three messages have been logged.'));
  });
  asking(
    'test_sampling',
    { prompt: z.string() },
    ({ prompt }) => ({ answer: samples(prompt) }),
    it => `LLM response: ${it.answer.content.text}`
  );
  const user = form({ username: { type: 'string' }, email: { type: 'string' } });
  asking(
    'test_elicitation',
    { message: z.string() },
    ({ message }) => ({ user: elicits(message, user) }),
    it => `User response: ${shown(it.user)}`
  );
  const completed = it => `Elicitation completed: ${shown(it.form)}`;
  const fills = properties => () => ({ form: elicits('Please fill in.', { type: 'object', properties }) });
  asking('test_elicitation_sep1034_defaults', {}, fills(DEFAULTS), completed);
  asking('test_elicitation_sep1330_enums', {}, fills(CHOICES), completed);

  const name = elicits('What is your name?', form({ name: { type: 'string' } }));
  asking('test_input_required_result_elicitation', {}, () => ({ user_name: name }), it => `Hello, ${it.user_name.content?.name}!`);
  const capital = samples('What is the capital of France?');
  asking('test_input_required_result_sampling', {}, () => ({ capital_question: capital }), it => it.capital_question.content.text);
  asking('test_missing_capability', {}, () => ({ capital_question: capital }), it => it.capital_question.content.text);
  asking('test_input_required_result_list_roots', {}, () => ({ client_roots: roots() }), it => JSON.stringify(it.client_roots));
  const confirm = elicits('Please confirm', form({ ok: { type: 'boolean' } }));
  asking('test_input_required_result_request_state', {}, () => ({ confirm }), it => `state-ok: ${shown(it.confirm)}`, 'waits');
  const all = () => ({ user_name: name, greeting: samples('Generate a greeting', 50), client_roots: roots() });
  asking('test_input_required_result_multiple_inputs', {}, all, it => `Hello, ${it.user_name.content?.name}!`, 'waits');

  server.registerResource('Static text', 'test://static-text', { mimeType: 'text/plain' }, async uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }]
  }));
  server.registerResource('Static binary', 'test://static-binary', { mimeType: 'image/png' }, async uri => ({
    contents: [{ uri: uri.href, mimeType: 'image/png', blob: PNG }]
  }));
  server.registerResource('Watched', 'test://watched-resource', { mimeType: 'text/plain' }, async uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'Watched.' }]
  }));
  const template = new sdk.ResourceTemplate('test://template/{id}/data', { list: undefined });
  server.registerResource('Template', template, { mimeType: 'application/json' }, async (uri, { id }) => {
    const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
    return { contents: [{ uri: uri.href, mimeType: 'application/json', text: data }] };
  });
  if (isFirst) {
    server.server.setRequestHandler(types.SubscribeRequestSchema, async () => ({}));
    server.server.setRequestHandler(types.UnsubscribeRequestSchema, async () => ({}));
  }

  const prompt = (title, fields, messages) =>
    server.registerPrompt(title, { description: title, ...(fields && { argsSchema: shape(fields) }) }, async given => ({
      messages: messages(given ?? {}).map(content => ({ role: 'user', content }))
    }));
  prompt('test_simple_prompt', undefined, () => [text('This is a simple prompt for testing.')]);
  const words = value => ['paris', 'park', 'party'].filter(word => word.startsWith(value));
  prompt(
    'test_prompt_with_arguments',
    { arg1: completable(z.string(), words), arg2: z.string() },
    ({ arg1, arg2 }) => [text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)]
  );
  prompt('test_prompt_with_embedded_resource', { resourceUri: z.string() }, ({ resourceUri }) => [
    embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
    text('Please process the embedded resource above.')
  ]);
  prompt('test_prompt_with_image', undefined, () => [image, text('Please analyze the image above.')]);
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
      onsessioninitialized: id => sessions.set(id, transport),
      enableDnsRebindingProtection: true,
      allowedHosts: [`127.0.0.1:${port}`, `localhost:${port}`]
    });
  if (!known) await make().connect(transport);
  await transport.handleRequest(request, response, await bodyOf(request));
}

if (port === undefined) {
  if (isFirst) {
    const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
    await make().connect(new StdioServerTransport());
  } else {
    const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
    serveStdio(make);
  }
} else {
  let handle = serveFirst;
  if (!isFirst) {
    const { toNodeHandler } = await import('@modelcontextprotocol/node');
    handle = toNodeHandler(sdk.createMcpHandler(make));
  }
  createServer((request, response) => handle(request, response)).listen(Number(port), '127.0.0.1');
}
