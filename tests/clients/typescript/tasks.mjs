// The steps about tasks, with the official package beside the SDK 2.x: it knows those of
// 2025-11-25 and the extension of 2026-07-28.
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  toolDeclarationFromMcpTool
} from '@modelcontextprotocol/ext-tasks/client';
import { answering, everyPage, isOver, shown } from './steps.mjs';

// The SDK's own methods accept no task as the result of a call. What the package sends goes
// to the transport itself, and what is answered is taken from it before the SDK sees it.
function dispatcher(transport) {
  const waiting = new Map();
  const deliver = transport.onmessage;
  transport.onmessage = (message, extra) => {
    const resolve = message.method === undefined && waiting.get(message.id);
    if (!resolve) return deliver(message, extra);
    waiting.delete(message.id);
    resolve(
      message.error === undefined
        ? { kind: 'result', result: message.result }
        : { kind: 'error', error: message.error }
    );
  };
  let sent = 0;
  return (request, { signal, context } = {}) =>
    new Promise((resolve, reject) => {
      const id = `task-${++sent}`;
      waiting.set(id, resolve);
      signal?.addEventListener('abort', () => waiting.delete(id) && reject(signal.reason), { once: true });
      transport
        .send({ jsonrpc: '2.0', id, ...request }, { headers: context?.headers, requestSignal: signal })
        .catch(reject);
    });
}

export async function tasksOf(client, transport, plan, info, capabilities) {
  const asked = [];
  const answer = answering(plan.answers, asked);
  const complain = error => client.onerror(error);
  const raw = client.getProtocolEra() === 'modern' && {
    rawDispatch: dispatcher(transport),
    v2RequestFraming: {
      protocolVersion: client.getNegotiatedProtocolVersion(),
      clientInfo: info,
      clientCapabilities: capabilities
    }
  };
  const declared = new Map();
  for (const tool of await everyPage(page => client.listTools(page), 'tools')) {
    declared.set(tool.name, toolDeclarationFromMcpTool(tool));
  }
  const session = createTaskSessionFromClient(client, {
    endpointId: 'owlclaw-client-runs',
    ...raw,
    tools: { currentTool: name => declared.get(name) },
    onInputRequest: createApplicationInputHandler({
      elicitation: request => answer(request.params),
      sampling: () => {
        throw new Error('nothing is to be sampled');
      },
      roots: () => ({ roots: [] })
    }),
    onError: complain
  });
  const begin = step =>
    session.callTool(step.tool, step.arguments, {
      requestTimeoutMs: plan.timeout * 1000,
      task: { preference: 'prefer', retentionMs: step.keep }
    });
  const come = outcome => {
    if (outcome.status === 'completed') return shown(outcome.result);
    if (outcome.status === 'cancelled') return { failure: 'cancelled' };
    const { code, message, data } = outcome.error;
    return { error: { code: code ?? null, message, data: data ?? null } };
  };

  return {
    async task(step) {
      asked.length = 0;
      const execution = await begin(step);
      const seen = { task: execution.handle?.taskId ?? null, statuses: [], asked };
      const onEvent = ({ type, task }) => {
        if (type !== 'task') return;
        seen.keep ??= task.retentionMs;
        if (task.status !== seen.statuses.at(-1)) seen.statuses.push(task.status);
      };
      const { outcome } = await execution.settle({ onEvent });
      return { ...seen, ...come(outcome) };
    },
    async cancel(step) {
      const execution = await begin(step);
      const task = session.task(execution.handle.taskId);
      const statuses = [(await task.snapshot()).status];
      await execution.cancel();
      // Only the wish is acknowledged.
      do statuses.push((await task.snapshot()).status);
      while (!isOver(statuses.at(-1)));
      const outcome = await execution.result();
      return { statuses, ...come(outcome) };
    },
    async again(step) {
      const task = session.task(step.task);
      const { status } = await task.snapshot();
      return { status, ...(isOver(status) ? come(await task.result()) : {}) };
    },
    async list() {
      if (session.capabilities.inventory !== 'server-list') return { failure: 'unsupported' };
      const found = [];
      let cursor;
      do {
        const page = await session.listTasks(cursor);
        found.push(...page.tasks.map(({ taskId, status }) => ({ task: taskId, status })));
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return { tasks: found };
    },
    close: () => session.close()
  };
}
