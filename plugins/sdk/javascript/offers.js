// What a plugin offers beside tools: resources that clients read by URI, prompts, and suggestions for their arguments.

import { CallError, thrown } from "./errors.js";
import { annotationsOf, block, iconsOf, metaOf } from "./output.js";

/** Resources on one page of the list. */
const PAGE = 100;
/** Suggestions that fit into one answer, as MCP says. */
const VALUES_MAX = 100;

const TOLD = ["name", "title", "description", "icons", "meta"];
const DATA = [...TOLD, "mimeType", "annotations", "read"];
const RESOURCE = [...DATA, "uri", "size"];
const FAMILY = [...DATA, "uriTemplate", "complete"];
const PROMPT = [...TOLD, "arguments", "run", "complete"];

/** The media type by which clients know a view. */
const VIEW_TYPE = "text/html;profile=mcp-app";
const CSP = ["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"];
const PERMISSIONS = ["camera", "microphone", "geolocation", "clipboardWrite"];

export function app({ uri, html, csp = {}, permissions = [], meta = {}, ...told }) {
  if (typeof uri !== "string" || !uri.startsWith("ui://")) throw new TypeError(`app ${uri}: the URI of a view begins with ui://`);
  const unknown = (names, known, what) => {
    const name = names.find((one) => !known.includes(one));
    if (name !== undefined) throw new TypeError(`app ${uri}: there is no ${what} ${name}; expected ${known.join(", ")}`);
  };
  unknown(Object.keys(csp), CSP, "csp");
  unknown(permissions, PERMISSIONS, "permission");
  for (const [directive, domains] of Object.entries(csp)) {
    const isList = Array.isArray(domains) && domains.every((domain) => typeof domain === "string");
    if (!isList) throw new TypeError(`app ${uri}: ${directive} must be a list of domains`);
  }
  const reach = {};
  if (Object.keys(csp).length > 0) reach.csp = csp;
  if (permissions.length > 0) reach.permissions = Object.fromEntries(permissions.map((name) => [name, {}]));
  const all = Object.keys(reach).length === 0 ? meta : { ...meta, ui: { ...meta.ui, ...reach } };
  return { ...told, uri, mimeType: VIEW_TYPE, meta: all, read: () => (typeof html === "function" ? html() : html) };
}

export function resourcesOf(resources) {
  const known = distinct(resources.map(resource), "resource");
  const listed = known.filter(({ pattern }) => pattern === undefined);
  const families = known.filter(({ pattern }) => pattern !== undefined);
  return {
    listTemplates: () => families.map((family) => ({ uriTemplate: family.key, ...told(family), ...data(family) })),
    listResources: (cursor) => page(listed, cursor),
    readResource: (uri) => guarded(() => read(listed, families, uri)),
  };
}

export function promptsOf(prompts) {
  const known = distinct(prompts.map(prompt), "prompt");
  return {
    listPrompts: () => known.map((one) => ({ ...told(one), arguments: one.arguments.map(argument) })),
    getPrompt: (name, given) =>
      guarded(() => fillIn(known.find(({ key }) => key === name), name, Object.fromEntries(given))),
  };
}

export function completionsOf(prompts, resources) {
  const families = resources.filter(({ uriTemplate }) => uriTemplate !== undefined);
  const known = { prompt: prompts.map(prompt), resource: families.map(resource) };
  return {
    complete: ({ tag, val }, { name, value, context }) =>
      guarded(async () => {
        const offer = known[tag].find(({ key }) => key === val);
        if (offer === undefined) throw CallError.notFound(`there is no ${tag} ${val}`);
        const values = [...((await offer.complete?.[name]?.(value, Object.fromEntries(context))) ?? [])];
        return { values: values.slice(0, VALUES_MAX), total: values.length, hasMore: values.length > VALUES_MAX, meta: [] };
      }),
  };
}

function resource(given) {
  const key = given.uri ?? given.uriTemplate;
  if ((given.uri === undefined) === (given.uriTemplate === undefined) || typeof key !== "string") {
    throw new TypeError("a resource has either a uri or a uriTemplate");
  }
  check(given, given.uri === undefined ? FAMILY : RESOURCE, `resource ${key}`, "read");
  const template = given.uri === undefined ? pattern(key) : {};
  completable(given, template.variables ?? [], `resource ${key}`);
  return { ...given, ...template, key };
}

function prompt(given) {
  check(given, PROMPT, `prompt ${given.name}`, "run");
  if (!given.description) throw new TypeError(`prompt ${given.name}: it has no description`);
  const names = (given.arguments ?? []).map(({ name }) => name);
  completable(given, names, `prompt ${given.name}`);
  return { ...given, arguments: given.arguments ?? [], key: given.name };
}

function check(given, options, what, run) {
  if (typeof given.name !== "string" || given.name === "") throw new TypeError(`${what}: it has no name`);
  if (typeof given[run] !== "function") throw new TypeError(`${what}: ${run} is no function`);
  const unknown = Object.keys(given).filter((key) => !options.includes(key));
  if (unknown.length > 0) throw new TypeError(`${what}: there is no option ${unknown.join(", ")}`);
}

function completable({ complete = {} }, names, what) {
  const unknown = Object.keys(complete).find((name) => !names.includes(name));
  if (unknown !== undefined) throw new TypeError(`${what}: there is no argument ${unknown} to complete`);
}

function distinct(known, what) {
  const twice = known.find(({ key }, at) => known.findIndex((other) => other.key === key) !== at);
  if (twice !== undefined) throw new TypeError(`${what} ${twice.key}: there is one already`);
  return known;
}

/** What fits a template: `{name}` is one or more characters without `/`, `?` and `#`, `{+name}` any. */
function pattern(template) {
  const expression = /\{(\+?)([A-Za-z_]\w*)\}/g;
  if (/[{}]/.test(template.replace(expression, ""))) {
    throw new TypeError(`resource ${template}: only {name} and {+name} can stand in a URI template`);
  }
  const variables = [];
  let end = 0;
  let source = "";
  const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  for (const { 0: whole, 1: crosses, 2: name, index } of template.matchAll(expression)) {
    source += `${literal(template.slice(end, index))}(${crosses ? "[^]" : "[^/?#]"}+?)`;
    variables.push(name);
    end = index + whole.length;
  }
  return { pattern: new RegExp(`^${source}${literal(template.slice(end))}$`), variables };
}

/** Removes percent-encoding; what is not well encoded stays as it is. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function told({ name, title, description, icons, meta }) {
  return { name, title, description, icons: iconsOf(icons), meta: metaOf(meta) };
}

function data({ mimeType, annotations }) {
  return { mimeType, annotations: annotationsOf(annotations) };
}

/** A cursor is where its page begins. */
function page(listed, cursor) {
  if (cursor !== undefined && cursor !== null && !/^\d+$/.test(cursor)) {
    throw thrown(CallError.invalidParams("this is no cursor of this list"));
  }
  const begin = Number(cursor ?? 0);
  const items = listed.slice(begin, begin + PAGE).map((one) => {
    const size = one.size === undefined ? undefined : BigInt(one.size);
    return { uri: one.key, ...told(one), ...data(one), size };
  });
  const end = begin + items.length;
  return { items, next: end < listed.length ? String(end) : undefined, meta: [] };
}

async function read(listed, families, uri) {
  let found = listed.find(({ key }) => key === uri);
  const variables = {};
  if (found === undefined) {
    found = families.find((family) => family.pattern.test(uri));
    if (found === undefined) throw CallError.notFound(`there is no resource ${uri}`);
    const values = found.pattern.exec(uri).slice(1);
    found.variables.forEach((name, at) => (variables[name] = decoded(values[at])));
  }
  const value = await found.read(variables);
  const meta = metaOf(found.meta);
  if (value instanceof Uint8Array) return [{ uri, mimeType: found.mimeType, body: { tag: "blob", val: value }, meta }];
  const isText = typeof value === "string";
  const text = isText ? value : JSON.stringify(value);
  if (text === undefined) throw new TypeError(`the resource ${uri} is a ${typeof value}, which JSON cannot hold`);
  const mimeType = found.mimeType ?? (isText ? undefined : "application/json");
  return [{ uri, mimeType, body: { tag: "text", val: text }, meta }];
}

function argument({ name, title, description, required = false }) {
  return { name, title, description, required };
}

async function fillIn(known, name, given) {
  if (known === undefined) throw CallError.notFound(`there is no prompt ${name}`);
  const missing = known.arguments.find((one) => one.required && given[one.name] === undefined);
  if (missing !== undefined) throw CallError.invalidParams(`the argument ${missing.name} is missing`);
  const said = await known.run(given);
  const all = typeof said === "string" ? [{ role: "user", text: said }] : said;
  const messages = all.map(({ role, ...content }) => ({ role, content: block(content) }));
  return { description: known.description, messages, meta: [] };
}

/** These requests have no failed results: whatever is no `CallError` is for the operator's log. */
async function guarded(work) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof CallError) throw thrown(error);
    throw thrown(CallError.internal(error instanceof Error ? error.message || error.name : String(error)));
  }
}
