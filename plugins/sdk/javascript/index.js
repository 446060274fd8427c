// Write tools for Bulkhead, the WebAssembly plugin host for MCP. The types and their documentation are in index.d.ts.

import { AskError, CallError, thrown } from "./errors.js";
import { completionsOf, promptsOf, resourcesOf } from "./offers.js";
import { block, iconsOf, metaOf, output } from "./output.js";
import { jsonSchema, received, returned } from "./schemas.js";

export { AskError, CallError, Cancelled, KvError, ToolError } from "./errors.js";
export { Output } from "./output.js";
export { app } from "./offers.js";
export { ask, call, config, kv, task } from "./talk.js";

const OPTIONS = [
  "name",
  "title",
  "description",
  "input",
  "output",
  "task",
  "readOnly",
  "destructive",
  "idempotent",
  "openWorld",
  "icons",
  "meta",
  "run",
];

export function definePlugin({ tools = [], resources = [], prompts = [], ...others }) {
  const unknown = Object.keys(others);
  if (unknown.length > 0) throw new TypeError(`a plugin has no ${unknown.join(", ")}`);
  const plugin = { tools: toolsOf(tools) };
  if (resources.length > 0) plugin.resources = resourcesOf(resources);
  if (prompts.length > 0) plugin.prompts = promptsOf(prompts);
  if ([...resources, ...prompts].some(({ complete }) => complete)) plugin.completions = completionsOf(prompts, resources);
  // `bulkhead plugin build` says here what the module exports; in tests nobody does.
  const isBuilt = typeof BULKHEAD_EXPORTS !== "undefined";
  if (isBuilt && tools.length + resources.length + prompts.length === 0) {
    throw new TypeError("the plugin has no tool: put one into `tools` of definePlugin");
  }
  const exported = isBuilt ? BULKHEAD_EXPORTS : Object.keys(plugin);
  const lost = Object.keys(plugin).filter((name) => !exported.includes(name));
  if (lost.length > 0) {
    const all = Object.keys(plugin).join(", ");
    throw new TypeError(`the plugin does not export its ${lost.join(", ")}: write export const { ${all} } = definePlugin(...)`);
  }
  return plugin;
}

function toolsOf(tools) {
  const byName = new Map();
  for (const tool of tools) {
    check(tool);
    if (byName.has(tool.name)) throw new TypeError(`tool ${tool.name}: there is a tool of this name already`);
    byName.set(tool.name, { tool, description: described(tool) });
  }
  return {
    listTools: () => [...byName.values()].map(({ description }) => description),
    callTool: (name, json) => run(byName.get(name)?.tool, name, json),
  };
}

function check(tool) {
  for (const key of ["name", "description"]) {
    if (typeof tool[key] !== "string" || tool[key] === "") throw new TypeError(`a tool has no ${key}`);
  }
  if (typeof tool.run !== "function") throw new TypeError(`tool ${tool.name}: run is no function`);
  const unknown = Object.keys(tool).filter((key) => !OPTIONS.includes(key));
  if (unknown.length > 0) throw new TypeError(`tool ${tool.name}: there is no option ${unknown.join(", ")}`);
}

function described(tool) {
  const { readOnly, destructive, idempotent, openWorld } = tool;
  const hints = [readOnly, destructive, idempotent, openWorld];
  const annotations = {
    readOnlyHint: readOnly,
    destructiveHint: destructive,
    idempotentHint: idempotent,
    openWorldHint: openWorld,
  };
  const outputSchema = jsonSchema(tool, "output");
  return {
    name: tool.name,
    title: tool.title,
    description: tool.description,
    inputSchema: JSON.stringify(ofArguments(jsonSchema(tool, "input") ?? { type: "object" })),
    outputSchema: outputSchema && JSON.stringify(outputSchema),
    annotations: hints.some((hint) => hint !== undefined) ? annotations : undefined,
    taskSupport: tool.task ?? "forbidden",
    icons: iconsOf(tool.icons),
    meta: metaOf(tool.meta),
  };
}

/**
 * The schema of arguments. A model that misspells a name should hear of it, unless the schema says itself what else it takes; and
 * interfaces of models refuse an object without `properties`.
 */
function ofArguments(said) {
  const schema = said.type === "object" && !("properties" in said) ? { ...said, properties: {} } : said;
  const composed = ["oneOf", "anyOf", "allOf", "$ref", "additionalProperties"].some((keyword) => keyword in schema);
  return composed ? schema : { ...schema, additionalProperties: false };
}

async function run(tool, name, json) {
  if (tool === undefined) throw thrown(CallError.notFound(`there is no tool ${name}`));
  try {
    const value = await tool.run(await received(tool, JSON.parse(json)));
    return output(await returned(tool, value));
  } catch (error) {
    if (error instanceof CallError) throw thrown(error);
    if (error instanceof AskError && error.reason === "unsupported") {
      throw thrown(CallError.missingCapability(error.feature));
    }
    const text = error instanceof Error ? error.message || error.name : String(error);
    return { content: [block({ text })], isError: true, meta: [] };
  }
}
