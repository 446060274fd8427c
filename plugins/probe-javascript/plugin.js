// Tests only: attacks, and one tool for each thing that the SDK translates.

import { CallError, KvError, Output, ask, call, config, definePlugin, kv, task } from "bulkhead-plugin";

const tool = (name, description, run, more = {}) => ({ name: `js_${name}`, description, run, ...more });
const object = (properties) => ({ type: "object", properties, required: Object.keys(properties) });

function spin() {
  while (true);
}

function grow() {
  const taken = [];
  while (true) taken.push(new Uint8Array(1 << 20).fill(1));
}

function recurse() {
  const deeper = (n) => deeper(n + 1) + 1;
  return deeper(0);
}

function tidy() {
  while (true) {
    task.checkpoint();
    task.sleep(20);
  }
}

function fail({ how }) {
  if (how === "params") throw CallError.invalidParams("not these");
  if (how === "missing") throw CallError.notFound("no such thing");
  if (how === "custom") throw CallError.custom(77, "of its own", { a: [1] });
  if (how === "nothing") return () => {};
  throw new RangeError("a mistake");
}

async function later() {
  const begin = Date.now();
  await new Promise((resolve) => setTimeout(resolve, 30));
  console.log("printed");
  return { waited_ms: Date.now() - begin, number: Math.random() };
}

function blocks() {
  const output = new Output().text("a text").image(new Uint8Array([1, 2]), "image/png").audio(new Uint8Array([3]), "audio/wav");
  output.link("file:///a", "a").resource("file:///b", new Uint8Array([0, 1]));
  return output.structured({ n: 1 }).meta("example.com/k", [1]);
}

function askAll() {
  const properties = { color: { type: "string", enum: ["red", "green"] }, amount: { type: "integer", minimum: 1 } };
  const form = ask.form({ key: "choice", message: "Which one?", schema: object(properties) });
  const url = ask.url({ key: "pay", message: "Pay there.", url: "https://example.com/pay" });
  const said = ask.sampling({ key: "words", text: "Say something.", maxTokens: 20, system: "Be short.", temperature: 0.5 });
  const roots = ask.roots({ key: "roots" }).map(({ uri }) => uri);
  return { form: form.action, choice: form.content, url: url.action, said: said.text, roots };
}

function facts() {
  task.log("warning", { seen: true }, "facts");
  return {
    id: call.id(),
    task: call.taskId(),
    attempt: call.attempt(),
    key: call.idempotencyKey(),
    requestor: call.requestorId(),
    sampling: call.clientSupports("sampling"),
    level: call.wantedLogLevel(),
    related: call.relatedTasks(),
    settings: config.all(),
    delimiter: config.get("delimiter", ","),
  };
}

function keep({ key }) {
  try {
    const count = kv.getJson(key, 0) + 1;
    kv.setJson(key, count);
    kv.set(`${key}/raw`, new Uint8Array([0, 255]), { ttlMs: 3600000 });
    const raw = [...kv.get(`${key}/raw`)];
    kv.delete(`${key}/gone`);
    return { count, raw, keys: kv.keys(key) };
  } catch (error) {
    if (!(error instanceof KvError)) throw error;
    return { reason: error.reason, message: error.message };
  }
}

const words = ["apple", "apricot", "banana"];

export const { tools, resources, prompts, completions } = definePlugin({
  tools: [
    tool("echo", "Gives back what it gets.", ({ text }) => text, { input: object({ text: { type: "string" } }), readOnly: true }),
    tool("spin", "Loops for ever.", spin, { task: "optional" }),
    tool("grow", "Takes memory for ever.", grow, { task: "optional" }),
    tool("recurse", "Calls itself for ever.", recurse),
    tool("tidy", "Waits until it is cancelled.", tidy, { task: "optional" }),
    tool("throw", "Fails in one of the ways that there are.", fail, { input: object({ how: { type: "string" } }) }),
    tool("later", "Waits for a timer.", later),
    tool("blocks", "One block of each kind.", blocks),
    tool("ask", "Asks everything that can be asked.", askAll, { task: "optional" }),
    tool("facts", "What is known about the call.", facts),
    tool("keep", "Keeps and finds bytes.", keep, { input: object({ key: { type: "string" } }) }),
  ],
  resources: [
    {
      uri: "js-probe://text",
      name: "text",
      title: "A text",
      description: "Always the same.",
      mimeType: "text/plain",
      size: 5,
      annotations: { audience: ["user"], priority: 0.5 },
      read: () => "plain",
    },
    {
      uriTemplate: "js-probe://fruit/{name}/{+rest}",
      name: "fruit",
      read: ({ name, rest }) => {
        if (name === "none") throw CallError.notFound("no such fruit");
        if (name === "wrong") throw new Error("the operator's business");
        return name === "bytes" ? new Uint8Array([0, 255]) : { name, rest };
      },
      complete: { name: (typed) => words.filter((word) => word.startsWith(typed)) },
    },
  ],
  prompts: [
    {
      name: "js_compare",
      title: "Compare",
      description: "Compares two words.",
      arguments: [{ name: "first", description: "The first word.", required: true }, { name: "second" }],
      run: ({ first, second = "nothing" }) => [
        { role: "user", text: `${first} or ${second}?` },
        { role: "assistant", text: first },
      ],
      complete: { second: async (typed, { first }) => words.filter((word) => word.startsWith(typed) && word !== first) },
    },
  ],
});
