// What a tool does while it runs: report, ask, wait, and look at its own circumstances.

import { host } from "#host";

import { AskError, CallError, Cancelled, KvError } from "./errors.js";

export const task = {
  progress(done, total, message) {
    host.progress(done, total, message);
  },
  setStatus(message) {
    host.setStatus(message);
  },
  log(level, data, logger) {
    host.log(level, logger, JSON.stringify(data) ?? "null");
  },
  detach() {
    host.detach();
  },
  steering() {
    return host.steering();
  },
  sleep(ms) {
    host.sleep(BigInt(Math.max(0, Math.round(ms))));
  },
  safePoint() {
    const { cancelled = false, steeringPending = false } = host.safePoint();
    return { cancelled, steeringPending };
  },
  checkpoint() {
    const signals = task.safePoint();
    if (signals.cancelled) throw new Cancelled();
    return signals;
  },
  save(state) {
    const bytes = typeof state === "string" ? new TextEncoder().encode(state) : state;
    try {
      host.checkpoint(bytes);
    } catch (error) {
      // The bindings throw the text itself or wrap it.
      const why = error?.payload ?? error;
      if (typeof why !== "string") throw error;
      throw new RangeError(why);
    }
  },
  restored() {
    return host.restored() ?? undefined;
  },
  saveJson: (state) => task.save(JSON.stringify(state)),
  restoredJson(fallback) {
    const state = task.restored();
    return state === undefined ? fallback : JSON.parse(new TextDecoder().decode(state));
  },
  listsChanged(kind) {
    host.listsChanged(kind);
  },
  resourceUpdated(uri) {
    host.resourceUpdated(uri);
  },
};

export const call = {
  id: () => host.callId(),
  taskId: () => host.taskId(),
  attempt: () => host.attempt(),
  idempotencyKey: () => host.idempotencyKey(),
  requestorId: () => host.requestorId(),
  clientSupports: (feature) => host.clientSupports(feature),
  clientExtension(name) {
    const json = host.clientExtension(name);
    return json === undefined || json === null ? undefined : JSON.parse(json);
  },
  clientShowsViews: () => call.clientExtension("io.modelcontextprotocol/ui") !== undefined,
  wantedLogLevel: () => host.wantedLogLevel(),
  relatedTasks: () => host.relatedTasks(),
};

export const config = {
  get(key, fallback) {
    const json = host.get(key);
    if (json === undefined || json === null) return fallback;
    const value = JSON.parse(json);
    if (fallback !== undefined && kind(value) !== kind(fallback)) {
      throw CallError.internal(`config.${key}: is not ${kind(fallback)}`);
    }
    return value;
  },
  all() {
    return Object.fromEntries(host.all().map(([key, json]) => [key, JSON.parse(json)]));
  },
};

export const kv = {
  get: (key) => kept(() => host.kvGet(key)) ?? undefined,
  set(key, value, { ttlMs } = {}) {
    const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
    kept(() => host.kvSet(key, bytes, ttlMs === undefined ? undefined : BigInt(Math.round(ttlMs))));
  },
  getJson(key, fallback) {
    const value = kv.get(key);
    return value === undefined ? fallback : JSON.parse(new TextDecoder().decode(value));
  },
  setJson: (key, value, options) => kv.set(key, JSON.stringify(value), options),
  delete: (key) => void kept(() => host.kvDelete(key)),
  keys(prefix = "") {
    const keys = [];
    let cursor;
    do {
      const page = kept(() => host.kvKeys(prefix, cursor));
      keys.push(...page.keys);
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    return keys;
  },
};

function kept(ask) {
  try {
    return ask();
  } catch (error) {
    // The bindings throw the variant itself or wrap it.
    const { tag, val } = error?.payload ?? error ?? {};
    if (tag === undefined) throw error;
    throw new KvError(tag, val);
  }
}

function kind(value) {
  if (Array.isArray(value)) return "array";
  return value === null ? "null" : typeof value;
}

export const ask = {
  form: ({ key, message, schema }) => ask.all([{ form: { key, message, schema } }])[0],
  url: ({ key, message, url }) => ask.all([{ url: { key, message, url } }])[0],
  sampling: (request) => ask.all([{ sampling: request }])[0],
  roots: ({ key }) => ask.all([{ roots: { key } }])[0],
  all(questions) {
    const kinds = questions.map((question) => Object.keys(question)[0]);
    const requests = questions.map((question, at) => asRequest(kinds[at], question[kinds[at]]));
    return answers(requests).map((response, at) => read(kinds[at], response.answer));
  },
};

/** Why a form cannot be shown, or nothing. */
function flat(schema) {
  const plain = ["string", "number", "integer", "boolean", "array"];
  if (schema?.type !== "object") return 'its schema does not say "type": "object"';
  const wrong = Object.entries(schema.properties ?? {}).find(([, field]) => !plain.includes(field?.type));
  return wrong && `its field ${wrong[0]} is no string, number, boolean or choice`;
}

function asRequest(kind, { key, ...rest }) {
  switch (kind) {
    case "form": {
      const wrong = flat(rest.schema);
      if (wrong) throw new AskError("invalid", `the form ${key} is not valid: ${wrong}`);
      const val = { message: rest.message, requestedSchema: JSON.stringify(rest.schema) };
      return { key, question: { tag: "form", val }, meta: [] };
    }
    case "url":
      return { key, question: { tag: "url", val: { message: rest.message, url: rest.url } }, meta: [] };
    case "sampling": {
      const { text, maxTokens, system, ...parameters } = rest;
      const messages = [{ role: "user", content: { type: "text", text } }];
      const val = JSON.stringify({ messages, maxTokens, systemPrompt: system, ...parameters });
      return { key, question: { tag: "sampling", val }, meta: [] };
    }
    case "roots":
      return { key, question: { tag: "roots" }, meta: [] };
    default:
      throw new AskError("invalid", `there is no question of the kind ${kind}`);
  }
}

function answers(requests) {
  try {
    return host.ask(requests);
  } catch (error) {
    // The bindings throw the variant itself or wrap it.
    const { tag, val } = error?.payload ?? error ?? {};
    if (tag === undefined) throw error;
    if (tag === "unsupported") throw new AskError(tag, `the client does not support ${val}`, val);
    if (tag === "invalid") throw new AskError(tag, `the question is not valid: ${val}`);
    if (tag === "unreachable") throw new AskError(tag, `the client cannot be asked: ${val}`);
    throw new AskError(tag, "the call was cancelled");
  }
}

function read(kind, answer) {
  if (answer.tag === "refused") throw new AskError("refused", `the client refused: ${answer.val}`);
  if (answer.tag === "elicitation" && (kind === "form" || kind === "url")) {
    const { action, content } = answer.val;
    const filled = content === undefined || content === null ? undefined : JSON.parse(content);
    return new Answer(action, filled);
  }
  if (answer.tag === "sampling" && kind === "sampling") return completion(JSON.parse(answer.val));
  if (answer.tag === "roots" && kind === "roots") return answer.val.map(({ uri, name }) => ({ uri, name }));
  throw new AskError("invalid", "the answer belongs to another kind of question");
}

class Answer {
  constructor(action, content) {
    this.action = action;
    this.content = content;
  }

  accepted() {
    if (this.action !== "accept") throw new AskError("not-accepted", "the user did not accept");
    return this.content;
  }
}

function completion(result) {
  const blocks = Array.isArray(result.content) ? result.content : [result.content ?? {}];
  const text = blocks.map((block) => block.text ?? "").join("");
  return { text, model: result.model ?? "", stopReason: result.stopReason, result };
}
