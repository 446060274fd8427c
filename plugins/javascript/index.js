// Write tools for Bulkhead, the WebAssembly plugin host for MCP. The types and their documentation are in index.d.ts.

import { AskError, CallError } from "./errors.js";

export { AskError, CallError, Cancelled, ToolError } from "./errors.js";
export { ask, call, config, task } from "./talk.js";

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
const NO_ARGUMENTS = { type: "object", additionalProperties: false };

export function definePlugin({ tools }) {
  const byName = new Map();
  for (const tool of tools) {
    check(tool);
    if (byName.has(tool.name)) throw new TypeError(`tool ${tool.name}: there is a tool of this name already`);
    byName.set(tool.name, tool);
  }
  return {
    listTools: () => [...byName.values()].map(described),
    callTool: (name, json) => run(byName.get(name), name, json),
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
  return {
    name: tool.name,
    title: tool.title,
    description: tool.description,
    inputSchema: JSON.stringify(closed(tool.input ?? NO_ARGUMENTS)),
    outputSchema: tool.output && JSON.stringify(tool.output),
    annotations: hints.some((hint) => hint !== undefined) ? annotations : undefined,
    taskSupport: tool.task ?? "forbidden",
    icons: (tool.icons ?? []).map((icon) => ({ sizes: [], ...icon })),
    meta: metaOf(tool.meta),
  };
}

/** A model that misspells a name should hear of it, unless the schema says itself what else it takes. */
function closed(schema) {
  const composed = ["oneOf", "anyOf", "allOf", "$ref", "additionalProperties"].some((keyword) => keyword in schema);
  return composed ? schema : { ...schema, additionalProperties: false };
}

async function run(tool, name, json) {
  if (tool === undefined) throw thrown(CallError.notFound(`there is no tool ${name}`));
  try {
    return output(await tool.run(JSON.parse(json)));
  } catch (error) {
    if (error instanceof CallError) throw thrown(error);
    if (error instanceof AskError && error.reason === "unsupported") {
      throw thrown(CallError.missingCapability(error.feature));
    }
    const text = error instanceof Error ? error.message || error.name : String(error);
    return { content: [block({ text })], isError: true, meta: [] };
  }
}

/** What the bindings take for the error of the call. */
function thrown(error) {
  return { tag: error.kind, val: error.value };
}

function output(value) {
  if (value === undefined || value === null) return { content: [], isError: false, meta: [] };
  if (typeof value === "string") return { content: [block({ text: value })], isError: false, meta: [] };
  if (value instanceof Output) return value.done();
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`the tool returned a ${typeof value}, which JSON cannot hold`);
  const structured = typeof value === "object" && !Array.isArray(value) ? text : undefined;
  return { content: [block({ text })], structured, isError: false, meta: [] };
}

export class Output {
  #blocks = [];
  #structured;
  #failed = false;
  #meta = {};

  text(text, annotations) {
    return this.#add({ text, annotations });
  }

  image(data, mimeType, annotations) {
    return this.#add({ image: data, mimeType, annotations });
  }

  audio(data, mimeType, annotations) {
    return this.#add({ audio: data, mimeType, annotations });
  }

  link(uri, name, more = {}) {
    return this.#add({ link: uri, name, ...more });
  }

  resource(uri, body, mimeType) {
    return this.#add({ resource: uri, body, mimeType });
  }

  structured(value) {
    this.#structured = JSON.stringify(value);
    return this;
  }

  meta(key, value) {
    this.#meta[key] = value;
    return this;
  }

  failed() {
    this.#failed = true;
    return this;
  }

  done() {
    const meta = metaOf(this.#meta);
    return { content: this.#blocks, structured: this.#structured, isError: this.#failed, meta };
  }

  #add(content) {
    this.#blocks.push(block(content));
    return this;
  }
}

function block({ annotations: said, mimeType, ...content }) {
  const annotations = said && { audience: said.audience ?? [], priority: said.priority, lastModified: said.lastModified };
  const common = { annotations, meta: [] };
  if ("text" in content) return { tag: "text", val: { text: content.text, ...common } };
  if ("image" in content) return { tag: "image", val: { data: content.image, mimeType, ...common } };
  if ("audio" in content) return { tag: "audio", val: { data: content.audio, mimeType, ...common } };
  if ("link" in content) {
    const { link: uri, name, title, description } = content;
    return { tag: "resource-link", val: { uri, name, title, description, mimeType, ...common } };
  }
  const body = { tag: typeof content.body === "string" ? "text" : "blob", val: content.body };
  return { tag: "resource", val: { contents: { uri: content.resource, mimeType, body, meta: [] }, ...common } };
}

function metaOf(entries = {}) {
  return Object.entries(entries).map(([key, value]) => [key, JSON.stringify(value)]);
}
