// The frame of all drivers in JavaScript: prompts on standard input, a line of JSON for each on standard output.

import { writeSync } from 'node:fs';
import { createInterface } from 'node:readline';

export const plan = JSON.parse(process.argv[2]);
export const headers = { Authorization: `Bearer ${plan.key}` };

function tell(what) {
    writeSync(1, JSON.stringify(what) + '\n');
}

process.once('uncaughtException', (error) => {
    tell({ failed: `${error}${error?.cause ? `; ${error.cause}` : ''}` });
    process.exit(1);
});

/** Tells what the framework showed of a call's progress. */
export function progressed(done, total, message) {
    tell({ progress: [done, total, message] });
}

/** Puts each prompt to the agent, and tells what it said or how it ended. */
export async function answer(ask, showsProgress = false) {
    tell({ ready: true, shows_progress: showsProgress });
    for await (const line of createInterface({ input: process.stdin })) {
        try {
            tell({ said: String(await ask(JSON.parse(line))) });
        } catch (error) {
            tell({ raised: String(error) });
        }
    }
}
