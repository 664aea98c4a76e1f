// The steps about tasks, with what the SDK 1.x has for those of 2025-11-25.
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { answering, isOver, shown } from './steps.mjs';

export function tasksOf(client, plan) {
  const tasks = client.experimental.tasks;
  const asked = [];
  const answer = answering(plan.answers, asked);
  client.setRequestHandler(ElicitRequestSchema, request => answer(request.params));

  const call = step =>
    tasks.callToolStream({ name: step.tool, arguments: step.arguments }, undefined, {
      timeout: plan.timeout * 1000,
      task: { ttl: step.keep }
    });
  const result = async id => shown(await tasks.getTaskResult(id, CallToolResultSchema));

  return {
    async task(step) {
      asked.length = 0;
      const seen = { task: null, statuses: [], asked };
      for await (const message of call(step)) {
        if (message.type === 'taskCreated') {
          seen.task = message.task.taskId;
          seen.keep = message.task.ttl;
        }
        if (message.task && message.task.status !== seen.statuses.at(-1)) seen.statuses.push(message.task.status);
        if (message.type === 'result') Object.assign(seen, shown(message.result));
        if (message.type === 'error') {
          // The SDK says of a task that failed only that it has.
          if (seen.statuses.at(-1) !== 'failed') throw message.error;
          Object.assign(seen, await result(seen.task));
        }
      }
      return seen;
    },
    async cancel(step) {
      const statuses = [];
      for await (const message of call(step)) {
        if (message.type === 'error') {
          if (!statuses.includes('cancelled')) throw message.error;
          return { statuses, failure: message.error.message };
        }
        if (message.type === 'taskStatus') {
          if (message.task.status !== statuses.at(-1)) statuses.push(message.task.status);
          if (!isOver(message.task.status)) {
            const answered = await tasks.cancelTask(message.task.taskId);
            statuses.push(answered.status);
          }
        }
      }
      return { statuses };
    },
    async again(step) {
      const { status } = await tasks.getTask(step.task);
      return { status, ...(isOver(status) ? await result(step.task) : {}) };
    },
    async list() {
      const found = [];
      let cursor;
      do {
        const page = await tasks.listTasks(cursor);
        found.push(...page.tasks.map(({ taskId, status }) => ({ task: taskId, status })));
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return { tasks: found };
    },
  };
}
