import assert from "node:assert/strict";
import { test } from "node:test";

import { CallError, Output, ToolError, app, ask, call, config, definePlugin, kv, task } from "bulkhead-plugin";
import { withHost } from "bulkhead-plugin/testing";

const only = (run, more = {}) => definePlugin({ tools: [{ name: "t", description: "Tries.", run, ...more }] }).tools;
const called = (run, args = {}) => only(run).callTool("t", JSON.stringify(args));

test("what a tool returns decides what the client sees", async () => {
  const text = await called(({ a }) => a, { a: "hello" });
  assert.deepEqual(text.content, [{ tag: "text", val: { text: "hello", annotations: undefined, meta: [] } }]);
  const object = await called(async () => ({ n: 1 }));
  assert.equal(object.structured, '{"n":1}');
  assert.equal(object.content[0].val.text, '{"n":1}');
  assert.equal((await called(() => [1])).structured, undefined);
  const image = await called(() => new Output().image(new Uint8Array([1]), "image/png").meta("k", 1).failed());
  assert.equal(image.content[0].tag, "image");
  assert.deepEqual([image.isError, image.meta], [true, [["k", "1"]]]);
});

test("errors are failed results, and errors of the call are thrown as the interface wants them", async () => {
  const failed = await called(() => {
    throw new ToolError("no city");
  });
  assert.deepEqual([failed.isError, failed.content[0].val.text], [true, "no city"]);
  const thrown = called(() => {
    throw CallError.custom(7, "no", { a: 1 });
  });
  await assert.rejects(thrown, (error) => error.tag === "custom" && error.val.data === '{"a":1}');
  await assert.rejects(only(() => 1).callTool("other", "{}"), (error) => error.tag === "not-found");
});

test("a schema is closed unless it says what else it takes", () => {
  const schema = (input) => JSON.parse(only(() => 1, { input }).listTools()[0].inputSchema);
  assert.deepEqual(schema(undefined), { type: "object", properties: {}, additionalProperties: false });
  assert.equal(schema({ type: "object", properties: {} }).additionalProperties, false);
  assert.equal(schema({ type: "object", additionalProperties: true }).additionalProperties, true);
  assert.equal("additionalProperties" in schema({ type: "object", oneOf: [{}] }), false);
});

test("an object of arguments always has properties", () => {
  const schema = (input) => JSON.parse(only(() => 1, { input }).listTools()[0].inputSchema);
  for (const [input, properties] of [
    [undefined, {}],
    [{ type: "object" }, {}],
    [{ type: "object", additionalProperties: true }, {}],
    [{ type: "object", oneOf: [{ required: ["a"] }] }, {}],
    [{ type: "object", properties: { a: { type: "string" } } }, { a: { type: "string" } }],
    [{ oneOf: [{ type: "object", properties: {} }] }, undefined],
  ]) {
    assert.deepEqual(schema(input).properties, properties, JSON.stringify(input));
  }
});

/** A schema as libraries have them: `{ n }` with a text of digits, which becomes a number. */
function digits(said, more = {}) {
  const validate = ({ n }) => {
    if (n === "1") return { value: { n: 1 } };
    if (n === "13") return { issues: [{ message: "is unlucky", path: ["n"] }, { message: "no", path: [{ key: "a" }, 0] }, { message: "odd" }] };
    return Promise.resolve({ value: { n: Number(n) } });
  };
  const json = (type) => ({ target }) => ({ $schema: target, properties: { n: { type } }, ...said });
  const jsonSchema = { input: json("string"), output: json("number") };
  return { "~standard": { version: 1, vendor: "test", validate, jsonSchema, ...more } };
}

test("a schema object of a library is listed as JSON Schema and checks arguments and results", async () => {
  for (const schema of [digits(), Object.assign(() => {}, digits()), digits({ type: "object" })]) {
    const tools = only(({ n }) => ({ n: typeof n === "number" ? `${n + 1}` : n }), { input: schema, output: schema });
    const [listed] = tools.listTools();
    const input = { type: "object", properties: { n: { type: "string" } }, additionalProperties: false };
    assert.deepEqual(JSON.parse(listed.inputSchema), input);
    assert.deepEqual(JSON.parse(listed.outputSchema), { type: "object", properties: { n: { type: "number" } } });
    for (const [given, structured] of [["1", '{"n":2}'], ["41", '{"n":42}']]) {
      assert.equal((await tools.callTool("t", JSON.stringify({ n: given }))).structured, structured);
    }
    const refused = await tools.callTool("t", '{"n":"13"}');
    assert.deepEqual([refused.isError, refused.structured], [true, undefined]);
    assert.equal(refused.content[0].val.text, "these arguments do not fit: /n: is unlucky; /a/0: no; /: odd");
    const wrong = await tools.callTool("t", '{"n":"12"}');
    assert.match(wrong.content[0].val.text, /^what the tool returned does not fit: \/n: is unlucky/);
  }
  const untouched = only(() => new Output().text("a"), { output: digits() });
  assert.equal((await untouched.callTool("t", "{}")).content[0].val.text, "a");
});

test("a schema object without a JSON Schema converts itself or is refused where it is defined", () => {
  const silent = digits({}, { jsonSchema: undefined });
  const toJSONSchema = ({ io, target }) => ({ type: "object", title: `${io} ${target}` });
  const listed = (schema) => JSON.parse(only(() => 1, { input: schema }).listTools()[0].inputSchema);
  assert.equal(listed({ ...silent, toJSONSchema }).title, "input draft-2020-12");
  const made = { $schema: "https://json-schema.org/draft/2020-12/schema", type: "object", title: "made", ...silent };
  assert.equal(listed(made).title, "made");
  const wrong = (input, words) => assert.throws(() => only(() => 1, { input }), words);
  wrong(silent, /tool t: input is a schema of test that gives no JSON Schema: upgrade zod to 4\.2.*z\.toJSONSchema/);
  wrong(digits({ type: "string" }), /input is no object but "string"/);
  wrong({ name: digits() }, /input has a schema as its name: put an object schema around/);
  const throws = () => {
    throw new Error("dates have none");
  };
  wrong(digits({}, { jsonSchema: { input: throws } }), /input cannot be a JSON Schema: dates have none/);
  assert.throws(() => only(() => 1, { output: silent }), /tool t: output is a schema/);
});

test("a tool that cannot be one is refused where it is defined", () => {
  assert.throws(() => only(undefined), /run is no function/);
  assert.throws(() => only(() => 1, { descripton: "x" }), /no option descripton/);
  assert.throws(() => only(() => 1, { description: "" }), /no description/);
  const tool = { name: "t", description: "Tries.", run: () => 1 };
  assert.throws(() => definePlugin({ tools: [tool, tool] }), /already/);
});

test("questions are answered by the script", async () => {
  const schema = { type: "object", properties: { city: { type: "string" } } };
  const answers = { trip: [{ city: "Oslo" }, "decline"], words: "hello", where: [["file:///a"]] };
  const host = await withHost({ answers }, () => {
    const form = { key: "trip", message: "Where?", schema };
    assert.deepEqual(ask.form(form).accepted(), { city: "Oslo" });
    assert.throws(() => ask.form(form).accepted(), { reason: "not-accepted" });
    const [said, roots] = ask.all([
      { sampling: { key: "words", text: "hi", maxTokens: 9 } },
      { roots: { key: "where" } },
    ]);
    assert.equal(said.text, "hello");
    assert.deepEqual(roots, [{ uri: "file:///a", name: undefined }]);
    const nested = { type: "object", properties: { a: { type: "object" } } };
    assert.throws(() => ask.form({ key: "n", message: "?", schema: nested }), { reason: "invalid" });
  });
  assert.deepEqual(host.asked.map(([key]) => key), ["trip", "trip", "words", "where"]);
});

test("a question that nobody can show is a missing capability", async () => {
  await withHost({ features: [] }, async () => {
    const run = () => ask.sampling({ key: "a", text: "hi", maxTokens: 9 });
    await assert.rejects(called(run), (error) => error.tag === "missing-capability" && error.val === "sampling");
  });
});

test("state is saved and restored", async () => {
  const host = await withHost({}, () => {
    assert.equal(task.restored(), undefined);
    assert.equal(task.restoredJson(0), 0);
    task.saveJson({ done: 40 });
  });
  assert.equal(new TextDecoder().decode(host.saved), '{"done":40}');
  await withHost({ restored: host.saved }, () => assert.deepEqual(task.restoredJson(), { done: 40 }));
});

test("settings have the type of their fallback, and a cancelled call leaves at the checkpoint", async () => {
  await withHost({ config: { delimiter: ";", rows: "many" }, steering: ["stop"] }, (host) => {
    assert.equal(config.get("delimiter", ","), ";");
    assert.equal(config.get("missing", 4), 4);
    assert.throws(() => config.get("rows", 5), /config.rows/);
    assert.equal(task.checkpoint().steeringPending, true);
    assert.deepEqual(task.steering(), ["stop"]);
    host.cancelled = true;
    assert.throws(() => task.checkpoint(), { name: "Cancelled" });
  });
  assert.throws(() => task.steering(), /withHost/);
});

test("a client shows views that says so", async () => {
  const views = { mimeTypes: ["text/html;profile=mcp-app"] };
  await withHost({ extensions: { "io.modelcontextprotocol/ui": views } }, () => {
    assert.deepEqual([call.clientShowsViews(), call.clientExtension("io.modelcontextprotocol/ui")], [true, views]);
    assert.equal(call.clientExtension("x"), undefined);
  });
  await withHost({}, () => assert.equal(call.clientShowsViews(), false));
});

const pi = { uri: "numbers://pi", name: "pi", meta: { ui: 1 }, read: () => "3.14159" };
const square = {
  uriTemplate: "numbers://{n}/square",
  name: "square",
  mimeType: "application/json",
  read: async ({ n }) => ({ square: n * n }),
  complete: { n: (typed) => ["2", "23", "3"].filter((n) => n.startsWith(typed)) },
};
const explain = {
  name: "explain",
  description: "Explains a number.",
  arguments: [{ name: "number", required: true }, { name: "style", description: "How." }],
  run: ({ number, style = "short" }) => `Explain ${number}: ${style}`,
  complete: { style: (typed, { number }) => [`${typed}${number}`] },
};

test("resources are read by URI and families by template", async () => {
  const { resources } = definePlugin({ resources: [pi, square, { uriTemplate: "file:///{+path}", name: "f", read: ({ path }) => new Uint8Array(path.length) }] });
  const [text] = await resources.readResource("numbers://pi");
  assert.deepEqual(text, { uri: "numbers://pi", mimeType: undefined, body: { tag: "text", val: "3.14159" }, meta: [["ui", "1"]] });
  assert.deepEqual((await resources.readResource("numbers://3/square"))[0].body, { tag: "text", val: '{"square":9}' });
  assert.deepEqual((await resources.readResource("file:///a/%C3%A9"))[0].body, { tag: "blob", val: new Uint8Array(3) });
  for (const uri of ["numbers://e", "numbers:///square", "numbers://1/2/square", "file:///"]) {
    await assert.rejects(resources.readResource(uri), { tag: "not-found" });
  }
  assert.deepEqual(resources.listTemplates().map(({ uriTemplate }) => uriTemplate), ["numbers://{n}/square", "file:///{+path}"]);
});

test("an app is a resource with what it may reach", async () => {
  const csp = { connectDomains: ["https://a.org"] };
  const chart = app({ uri: "ui://chart", name: "chart", html: "<p>", csp, permissions: ["camera"], meta: { ui: { prefersBorder: true } } });
  const { resources } = definePlugin({ resources: [chart, app({ uri: "ui://plain", name: "plain", html: async () => "<b>" })] });
  const [contents] = await resources.readResource("ui://chart");
  assert.deepEqual([contents.mimeType, contents.body.val], ["text/html;profile=mcp-app", "<p>"]);
  assert.deepEqual(JSON.parse(contents.meta[0][1]), { prefersBorder: true, csp, permissions: { camera: {} } });
  const [plain] = await resources.readResource("ui://plain");
  assert.deepEqual([plain.body.val, plain.meta], ["<b>", []]);
  const page = { uri: "ui://b", name: "b", html: "" };
  assert.throws(() => app({ ...page, uri: "a://b" }), /begins with ui:/);
  assert.throws(() => app({ ...page, csp: { connect: [] } }), /there is no csp connect/);
  assert.throws(() => app({ ...page, csp: { connectDomains: "x" } }), /must be a list of domains/);
  assert.throws(() => app({ ...page, permissions: ["usb"] }), /there is no permission usb/);
  assert.throws(() => definePlugin({ resources: [app({ ...page, oops: 1 })] }), /there is no option oops/);
});

test("a long list has pages", () => {
  const many = Array.from({ length: 101 }, (_, at) => ({ ...pi, uri: `n://${at}`, size: at }));
  const { resources } = definePlugin({ resources: many });
  const first = resources.listResources(undefined);
  assert.deepEqual([first.items.length, first.items[7].size, first.next], [100, 7n, "100"]);
  const second = resources.listResources(first.next);
  assert.deepEqual([second.items.length, second.next], [1, undefined]);
  assert.throws(() => resources.listResources("x"), { tag: "invalid-params" });
});

test("prompts are filled in and completed", async () => {
  const talk = { name: "talk", description: "Talks.", run: () => [{ role: "user", text: "Hi." }, { role: "assistant", text: "Hello." }] };
  const { prompts, completions } = definePlugin({ resources: [square], prompts: [explain, talk] });
  assert.deepEqual(prompts.listPrompts()[0].arguments[0], { name: "number", title: undefined, description: undefined, required: true });
  const filled = await prompts.getPrompt("explain", [["number", "7"]]);
  assert.equal(filled.messages[0].content.val.text, "Explain 7: short");
  assert.deepEqual((await prompts.getPrompt("talk", [])).messages.map(({ role }) => role), ["user", "assistant"]);
  await assert.rejects(prompts.getPrompt("explain", []), { tag: "invalid-params" });
  await assert.rejects(prompts.getPrompt("other", []), { tag: "not-found" });
  const suggested = (tag, val, name, value) => completions.complete({ tag, val }, { name, value, context: [["number", "7"]] });
  assert.deepEqual((await suggested("prompt", "explain", "style", "a")).values, ["a7"]);
  assert.deepEqual((await suggested("resource", "numbers://{n}/square", "n", "2")).values, ["2", "23"]);
  assert.deepEqual((await suggested("prompt", "explain", "number", "")).values, []);
  await assert.rejects(suggested("prompt", "nothing", "a", ""), { tag: "not-found" });
});

test("what cannot be offered is refused where it is defined", () => {
  const wrong = (plugin, words) => assert.throws(() => definePlugin(plugin), words);
  wrong({ resources: [{ ...pi, uriTemplate: "a://{b}" }] }, /either a uri or a uriTemplate/);
  wrong({ resources: [{ ...square, uriTemplate: "a://{b*}" }] }, /can stand in a URI template/);
  wrong({ resources: [{ ...square, uriTemplate: "a://{b}" }] }, /no argument n to complete/);
  wrong({ resources: [pi, pi] }, /there is one already/);
  wrong({ resources: [{ ...pi, mimetype: "text/plain" }] }, /no option mimetype/);
  wrong({ prompts: [{ ...explain, run: undefined }] }, /run is no function/);
  wrong({ prompts: [{ ...explain, description: "" }] }, /no description/);
  wrong({ prompt: [explain] }, /a plugin has no prompt/);
});

test("what goes wrong is for the operator", async () => {
  const { resources } = definePlugin({ resources: [{ ...pi, read: () => JSON.parse("{") }] });
  await assert.rejects(resources.readResource("numbers://pi"), { tag: "internal" });
});

test("what is kept is found", async () => {
  const host = await withHost({ kept: { "a/2": new Uint8Array([0]) } }, () => {
    kv.set("a/1", "text", { ttlMs: 500 });
    kv.setJson("b", { n: [1] });
    assert.deepEqual(kv.get("a/1"), new TextEncoder().encode("text"));
    assert.deepEqual([kv.get("none"), kv.getJson("b"), kv.getJson("c", 4)], [undefined, { n: [1] }, 4]);
    assert.deepEqual(kv.keys("a/"), ["a/1", "a/2"]);
    kv.delete("a/1");
  });
  assert.deepEqual([...host.kept.keys()], ["a/2", "b"]);
});

test("a plugin is built with something to offer, all of which is exported", () => {
  assert.deepEqual(Object.keys(definePlugin({})), ["tools"], "in tests nobody says what is exported");
  globalThis.BULKHEAD_EXPORTS = ["tools"];
  try {
    assert.throws(() => definePlugin({ tools: [] }), /the plugin has no tool: put one into `tools`/);
    const prompts = [{ name: "p", description: "Asks.", run: () => "x" }];
    assert.throws(() => definePlugin({ prompts }), /does not export its prompts/);
  } finally {
    delete globalThis.BULKHEAD_EXPORTS;
  }
});
