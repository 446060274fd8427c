import assert from "node:assert/strict";
import { test } from "node:test";

import { CallError, Output, ToolError, ask, config, definePlugin, task } from "bulkhead-plugin";
import { withHost } from "bulkhead-plugin/testing";

const only = (run, more = {}) => definePlugin({ tools: [{ name: "t", description: "Tries.", run, ...more }] });
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
  assert.deepEqual(schema(undefined), { type: "object", additionalProperties: false });
  assert.equal(schema({ type: "object", properties: {} }).additionalProperties, false);
  assert.equal(schema({ type: "object", additionalProperties: true }).additionalProperties, true);
  assert.equal("additionalProperties" in schema({ type: "object", oneOf: [{}] }), false);
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
