// The official TypeScript client of revision 2026-07-28 with the package for the tasks extension:
// node modern.mjs http URL | stdio COMMAND ARGUMENTS...
// Prints a line for each check: `ok NAME` or `not ok NAME: why`. With KILL_HOST, a folder, the check is that of a host that is killed on the
// way: whoever started this kills and starts it while a file `kill` is there, and removes the file.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  resultFromTaskOutcome,
} from "@modelcontextprotocol/ext-tasks/client";

const [kind, ...where] = process.argv.slice(2);
const VERSION = "2026-07-28";
const TASKS = "io.modelcontextprotocol/tasks";
const INFO = { name: "interop", version: "1" };
const CAPABILITIES = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} };

/** What a user would fill in, by the fields of the form. */
const FILLED = {
  destination: "Lisbon", travellers: 2, class: "economy", confirm: true, name: "Ada", username: "ada", email: "ada@example.org",
};

function fill(params) {
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: "accept", content: Object.fromEntries(fields.map((field) => [field, FILLED[field]])) };
}

const summary = { role: "assistant", model: "a-model", content: { type: "text", text: "in short" } };

/**
 * Everything that one connection carries. The client's own codec refuses what belongs to the tasks extension, and leaves sending
 * it to its host: such requests go out here, through the same transport, beside those of the client.
 */
class Shared {
  #inner;
  #open = new Map();
  #ids = 0;
  /** Notifications of the extension, as they came. */
  heard = [];
  onmessage;
  onclose;
  onerror;

  constructor(inner) {
    this.#inner = inner;
    inner.onclose = () => this.onclose?.();
    inner.onerror = (error) => this.onerror?.(error);
    inner.onmessage = (message, extra) => {
      const settle = message.method === undefined ? this.#open.get(message.id) : undefined;
      if (settle) {
        this.#open.delete(message.id);
        settle(message);
        return;
      }
      if (message.method === "notifications/tasks") this.heard.push(message.params);
      const subscription = message.params?._meta?.["io.modelcontextprotocol/subscriptionId"];
      if (message.method === "notifications/subscriptions/acknowledged" && this.#open.has(subscription)) {
        this.#open.get(`${subscription} acknowledged`)(message);
        return;
      }
      this.onmessage?.(message, extra);
    };
  }

  start() {
    return this.#inner.start();
  }

  send(message, options) {
    return this.#inner.send(message, options);
  }

  close() {
    return this.#inner.close();
  }

  setProtocolVersion(version) {
    this.#inner.setProtocolVersion?.(version);
  }

  get hasPerRequestStream() {
    return this.#inner.hasPerRequestStream;
  }

  /** A request beside the client's; its answer as ext-tasks wants it. */
  dispatch = async ({ method, params }, options) => {
    const id = `beside-${this.#ids++}`;
    const answer = new Promise((resolve, reject) => {
      this.#open.set(id, resolve);
      this.send({ jsonrpc: "2.0", id, method, params }, { requestSignal: options?.signal }).catch((error) => {
        // The transport throws what comes with an HTTP status that is no success.
        if (typeof error.code === "number") resolve({ error: { code: error.code, message: error.message, data: error.data } });
        else reject(error);
      });
    });
    const { error, result } = await answer;
    return error ? { kind: "error", error } : { kind: "result", result };
  };

  /** Listens to tasks: what was acknowledged, and how to stop. */
  async listenToTasks(taskIds) {
    const id = `beside-${this.#ids++}`;
    const stop = new AbortController();
    const acknowledged = new Promise((resolve) => this.#open.set(`${id} acknowledged`, resolve));
    this.#open.set(id, () => {});
    await this.send(
      { jsonrpc: "2.0", id, method: "subscriptions/listen", params: { notifications: { taskIds }, _meta: meta(true) } },
      { requestSignal: stop.signal },
    );
    return {
      acknowledged: (await acknowledged).params.notifications,
      // Over HTTP the end of the stream says it, over stdio there is only a message.
      stop: () => {
        stop.abort();
        if (kind === "stdio") return this.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: id } });
      },
    };
  }
}

function meta(withTasks) {
  return {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": withTasks ? { ...CAPABILITIES, extensions: { [TASKS]: {} } } : CAPABILITIES,
  };
}

const asked = { form: 0, sampling: 0 };

const shared = new Shared(
  kind === "http"
    ? new StreamableHTTPClientTransport(new URL(where[0]))
    : new StdioClientTransport({ command: where[0], args: where.slice(1), stderr: "inherit" }),
);
const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: VERSION } } });
client.setRequestHandler("elicitation/create", async (request) => {
  asked.form += 1;
  return fill(request.params);
});
client.setRequestHandler("sampling/createMessage", async () => {
  asked.sampling += 1;
  return summary;
});
await client.connect(shared);

const deliveries = [];
const session = createTaskSessionFromClient(client, {
  endpointId: "interop",
  rawDispatch: shared.dispatch,
  v2RequestFraming: { protocolVersion: VERSION, clientInfo: INFO, clientCapabilities: CAPABILITIES },
  onInputRequest: async (request, context) => {
    deliveries.push(context.delivery);
    return handleInput(request, context);
  },
});
const handleInput = createApplicationInputHandler({
  elicitation: (request) => fill(request.params),
  sampling: () => summary,
  roots: () => ({ roots: [] }),
});

let failures = 0;
async function check(name, body) {
  // Lists change by a file in a folder that is not granted there.
  if (process.env.THREE_HOSTS && name === "listen: a list changes") return;
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("nothing came within 30 s")), 30_000)));
  try {
    await Promise.race([body(), late]);
    console.log(`ok ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`not ok ${name}: ${String(error.message ?? error).split("\n")[0]}`);
    console.error(error);
  } finally {
    clearTimeout(timer);
  }
}

async function until(what) {
  while (!(await what())) await new Promise((resolve) => setTimeout(resolve, 20));
}

/** Has the host killed with SIGKILL, and comes back when it serves again on the same directory. */
async function killHost() {
  const wish = join(process.env.KILL_HOST, "kill");
  writeFileSync(wish, "");
  while (existsSync(wish)) await new Promise((resolve) => setTimeout(resolve, 50));
}

if (process.env.KILL_HOST) {
  await check("a task goes on over two kills of its host", async () => {
    const created = await shared.dispatch({ method: "tools/call", params: { name: "multi_input", arguments: {}, _meta: meta(true) } });
    const task = session.task(created.result.taskId);
    const open = async () => (await task.snapshot()).raw.inputRequests;
    await until(async () => (await task.snapshot()).status === "input_required");
    const requests = await open();
    await killHost();
    assert.deepEqual(await open(), requests);
    await task.update({ name: { action: "accept", content: { name: "Ada" } } });
    await killHost();
    assert.deepEqual(await open(), { confirm: requests.confirm });
    await task.update({ confirm: { action: "accept", content: { confirm: true } } });
    const result = resultFromTaskOutcome(await task.result());
    assert.match(result.content[0].text, /name: .*Ada/);
  });
  process.exit(failures === 0 ? 0 : 1);
}

await check("discovery", async () => {
  assert.equal(client.getProtocolEra(), "modern");
  assert.equal(client.getNegotiatedProtocolVersion(), VERSION);
  assert.deepEqual(client.getServerCapabilities().extensions[TASKS], {});
  assert.equal(client.getServerCapabilities().tasks, undefined);
  assert.deepEqual(
    { execution: session.capabilities.execution, cancellation: session.capabilities.cancellation, input: session.capabilities.inputResponses },
    { execution: true, cancellation: true, input: true },
  );
});

await check("tools/list", async () => {
  const { tools } = await client.listTools();
  const names = tools.map((tool) => tool.name);
  for (const name of ["echo", "count_primes", "book_trip", "summarize"]) assert.ok(names.includes(name), name);
  assert.ok(tools.every((tool) => tool.execution === undefined), "`execution` is of the older revision");
});

await check("tools/call", async () => {
  const result = await client.callTool({ name: "echo", arguments: { text: "hi" } });
  assert.equal(result.content[0].text, "hi");
  const counts = await client.callTool({ name: "word_count", arguments: { text: "a b c" } });
  assert.equal(counts.structuredContent.words, 3);
});

await check("a tool's own error", async () => {
  const result = await client.callTool({ name: "echo", arguments: { text: 7 } });
  assert.equal(result.isError, true);
});

await check("progress of a plain call", async () => {
  const heard = [];
  await client.callTool({ name: "wait", arguments: { ms: 500 } }, { onprogress: (progress) => heard.push(progress.progress) });
  assert.ok(heard.length > 0);
});

await check("elicitation inside a plain call, in rounds", async () => {
  asked.form = 0;
  const result = await client.callTool({ name: "book_trip", arguments: {} });
  assert.equal(result.structuredContent.summary, "Booked 2 economy seats to Lisbon.");
  assert.equal(asked.form, 2);
});

await check("sampling inside a plain call", async () => {
  const result = await client.callTool({ name: "summarize", arguments: { text: "many words" } });
  assert.equal(result.content[0].text, "in short");
  assert.equal(asked.sampling, 1);
});

await check("a client that did not declare tasks never gets one", async () => {
  const result = await client.callTool({ name: "wait", arguments: { ms: 1300 } });
  assert.equal(result.structuredContent.waited_ms, 1300);
});

await check("resources, prompts and completion", async () => {
  const { resources } = await client.listResources();
  assert.ok(resources.some((resource) => resource.uri === "test://static-text"));
  const { contents } = await client.readResource({ uri: "test://static-text" });
  assert.match(contents[0].text, /static text resource/);
  const prompt = await client.getPrompt({ name: "test_prompt_with_arguments", arguments: { arg1: "hello", arg2: "world" } });
  assert.equal(prompt.messages[0].content.text, "Prompt with arguments: arg1='hello', arg2='world'");
  const ref = { type: "ref/prompt", name: "test_prompt_with_arguments" };
  const { completion } = await client.complete({ ref, argument: { name: "arg1", value: "" } });
  assert.ok(Array.isArray(completion.values));
});

await check("a fast call stays plain, a slow one becomes a task", async () => {
  const fast = await session.callTool("echo", { text: "hi" });
  assert.equal(fast.kind, "immediate");
  assert.equal(resultFromTaskOutcome((await fast.settle()).outcome).content[0].text, "hi");
  const slow = await session.callTool("wait", { ms: 2500 });
  assert.equal(slow.kind, "task");
  const { outcome, lastTask } = await slow.settle();
  assert.equal(resultFromTaskOutcome(outcome).structuredContent.waited_ms, 2500);
  assert.equal(lastTask.status, "completed");
});

await check("a task is found again by its reference", async () => {
  const execution = await session.callTool("slow_compute", { seconds: 1.5, label: "Two" });
  let reference;
  await execution.handoff((it) => (reference = JSON.parse(JSON.stringify(it))));
  // The session forgets its owner only once the promises of the first execution have run.
  await new Promise(setImmediate);
  const resumed = await session.resumeTask(reference);
  const result = resultFromTaskOutcome((await resumed.settle()).outcome);
  assert.match(result.content[0].text, /^Two finished/);
});

await check("elicitation inside a task", async () => {
  deliveries.length = 0;
  const execution = await session.callTool("confirm_delete", { filename: "a.txt" });
  assert.equal(execution.kind, "task");
  const result = resultFromTaskOutcome((await execution.settle()).outcome);
  assert.equal(result.content[0].text, "Deleted a.txt");
  assert.deepEqual(deliveries, ["task-update"]);
});

await check("elicitation first in rounds, then the task", async () => {
  deliveries.length = 0;
  const execution = await session.callTool("test_tool_with_task", {});
  const result = resultFromTaskOutcome((await execution.settle()).outcome);
  assert.match(result.content[0].text, /\bAda\b/);
  assert.deepEqual(deliveries, ["request-retry"]);
});

await check("two questions of a task, answered one after the other", async () => {
  const created = await shared.dispatch({ method: "tools/call", params: { name: "multi_input", arguments: {}, _meta: meta(true) } });
  assert.equal(created.result.resultType, "task");
  const task = session.task(created.result.taskId);
  await until(async () => (await task.snapshot()).status === "input_required");
  assert.deepEqual(Object.keys((await task.snapshot()).raw.inputRequests).sort(), ["confirm", "name"]);
  await task.update({ name: { action: "accept", content: { name: "Ada" } } });
  assert.deepEqual(Object.keys((await task.snapshot()).raw.inputRequests), ["confirm"]);
  await task.update({ confirm: { action: "accept", content: { confirm: true } } });
  const result = resultFromTaskOutcome(await task.result());
  assert.match(result.content[0].text, /name: .*Ada/);
});

await check("tasks/cancel", async () => {
  const execution = await session.callTool("wait", { ms: 600_000 });
  await execution.cancel();
  assert.equal((await execution.result()).status, "cancelled");
  // Once more is acknowledged and changes nothing.
  await session.task(execution.handle.taskId).cancel();
  assert.equal((await session.task(execution.handle.taskId).snapshot()).status, "cancelled");
});

await check("a tool's own error completes a task, a protocol error fails it", async () => {
  const own = (await (await session.callTool("failing_job", {})).settle()).outcome;
  assert.equal(own.status, "completed");
  assert.equal(own.result.isError, true);
  const failed = (await (await session.callTool("protocol_error_job", {})).settle()).outcome;
  assert.equal(failed.status, "failed");
  assert.equal(typeof failed.error.code, "number");
});

await check("listen: a list changes", async () => {
  const changed = new Promise((resolve) => client.setNotificationHandler("notifications/tools/list_changed", resolve));
  const subscription = await client.listen({ toolsListChanged: true });
  assert.equal(subscription.honoredFilter.toolsListChanged, true);
  await client.callTool({ name: "test_trigger_tool_change", arguments: {} });
  await changed;
  await subscription.close();
  assert.equal(await subscription.closed, "local");
});

await check("listen: a task goes on", async () => {
  const execution = await session.callTool("wait", { ms: 2500 });
  const { taskId } = execution.handle;
  const { acknowledged, stop } = await shared.listenToTasks([taskId, "f".repeat(32)]);
  assert.deepEqual(acknowledged, { taskIds: [taskId] });
  await until(() => shared.heard.some((task) => task.taskId === taskId && task.status === "completed"));
  const states = shared.heard.filter((task) => task.taskId === taskId);
  assert.equal(states[0].status, "working", "the first notification tells the current state");
  assert.equal(states.at(-1).result.structuredContent.waited_ms, 2500);
  await stop();
  await execution.close();
});

await check("errors have their codes", async () => {
  await assert.rejects(session.task("f".repeat(32)).snapshot(), { code: -32602 });
  await assert.rejects(client.callTool({ name: "missing", arguments: {} }), { code: -32602 });
  await assert.rejects(client.callTool({ name: "failing_job", arguments: {} }), { code: -32021 });
  await assert.rejects(client.readResource({ uri: "test://nobody" }), { code: -32602 });
  const undeclared = await shared.dispatch({ method: "tasks/get", params: { taskId: "f".repeat(32), _meta: meta(false) } });
  assert.equal(undeclared.error.code, -32021);
});

await session.close();
await client.close();
process.exit(failures === 0 ? 0 : 1);
