// Whether clients understand every schema of a server: lists its tools and calls those without arguments with the
// official TypeScript SDK 1.x, and compiles each schema with Ajv as that SDK and stricter clients have it.
//   node schemas.mjs COMMAND ARGUMENT...
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import Ajv from 'ajv';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

const AjvOld = Ajv.default ?? Ajv;
const AjvNew = Ajv2020.default ?? Ajv2020;
const compilers = {
  'SDK 1.x (draft 7)': new AjvOld({ strict: false, validateFormats: true, validateSchema: false, allErrors: true }),
  'draft 2020-12': new AjvNew({ strict: false, allErrors: true }),
  // Named tuples have members that may be left out, which is all that `strictTuples` finds fault with.
  'draft 2020-12, strict': new AjvNew({ strict: true, strictTuples: false, allErrors: true })
};
for (const ajv of Object.values(compilers)) (addFormats.default ?? addFormats)(ajv);

const problems = [];

// Some clients refuse a server for a single list of types, others for a single `nullable`.
function look(schema, place) {
  if (Array.isArray(schema)) return schema.forEach((one, at) => look(one, `${place}/${at}`));
  if (schema === null || typeof schema !== 'object') return;
  for (const [key, value] of Object.entries(schema)) {
    const isName = place.endsWith('/properties') || place.endsWith('/$defs');
    if (!isName && key === 'type' && Array.isArray(value)) problems.push(`${place}: a list of types`);
    if (!isName && key === 'nullable') problems.push(`${place}: nullable`);
    if (isName || !['enum', 'const', 'default', 'examples'].includes(key)) look(value, `${place}/${key}`);
  }
}

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'owlclaw-client-runs', version: '0.1.0' }, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
const { tools, nextCursor } = await client.listTools();
if (nextCursor) problems.push('the tools are on more than one page, of which this looks at one');
for (const tool of tools) {
  for (const kind of ['inputSchema', 'outputSchema']) {
    if (!tool[kind]) continue;
    look(tool[kind], `${tool.name}: ${kind}`);
    for (const [name, ajv] of Object.entries(compilers)) {
      try {
        ajv.compile(tool[kind]);
      } catch (error) {
        problems.push(`${tool.name}: ${kind}: ${name}: ${error.message}`);
      }
    }
  }
  if (/^(gives|returns)-/.test(tool.name)) {
    try {
      // The SDK compares the answer with the schema.
      const answer = await client.callTool({ name: tool.name, arguments: {} });
      if (answer.isError) problems.push(`${tool.name}: ${JSON.stringify(answer.content)}`);
    } catch (error) {
      problems.push(`${tool.name}: ${error.message}`);
    }
  } else if (tool.name === 'takes-text') {
    // What some frameworks send for each optional argument that they have nothing for.
    const answer = await client.callTool({ name: tool.name, arguments: { value: 'x', many: null, maybe: null } });
    if (answer.isError) problems.push(`${tool.name}: ${JSON.stringify(answer.content)}`);
  }
}
await client.close();
const names = tools.map(tool => tool.name);
for (const name of ['echo', 'typed', 'addPet', 'addNewPet', 'returns-nested']) {
  if (!names.includes(name)) problems.push(`there is no tool ${name}`);
}
const of = prefix => names.filter(name => name.startsWith(prefix)).length;
if (of('takes-') < 40 || of('takes-') !== of('gives-')) problems.push(`tools are missing: ${names.join(', ')}`);
for (const problem of problems) console.error(problem);
console.log(`${tools.length} tools, ${problems.length} problems`);
process.exit(problems.length ? 1 : 0);
