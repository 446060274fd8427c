// The official TypeScript SDK as a client: node client.mjs http URL | stdio COMMAND ARGUMENTS...
// Prints a line for each check: `ok NAME` or `not ok NAME: why`. With KILL_HOST, a folder, the check is that of a host that is killed on the
// way: whoever started this kills and starts it while a file `kill` is there, and removes the file.
import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

const [kind, ...where] = process.argv.slice(2);

function transport() {
  if (kind === "http") return new StreamableHTTPClientTransport(new URL(where[0]));
  return new StdioClientTransport({ command: where[0], args: where.slice(1), stderr: "inherit" });
}

/** Has the host killed with SIGKILL, and comes back when it serves again on the same directory. */
async function killHost() {
  const wish = join(process.env.KILL_HOST, "kill");
  writeFileSync(wish, "");
  while (existsSync(wish)) await new Promise((resolve) => setTimeout(resolve, 50));
}

let kills = 0;

/** What a user would fill in. With KILL_HOST the host is killed twice while the user does. */
async function fill(request) {
  if (process.env.KILL_HOST && kills < 2) {
    kills += 1;
    await killHost();
  }
  const fields = request.params.requestedSchema.properties;
  const content = fields.destination
    ? { destination: "Lisbon", travellers: 2 }
    : { class: "economy", confirm: true };
  return { action: "accept", content };
}

const summary = { role: "assistant", model: "a-model", content: { type: "text", text: "in short" } };

async function connect() {
  const client = new Client(
    { name: "interop", version: "1" },
    { capabilities: { elicitation: { form: {} }, sampling: {} }, defaultTaskPollInterval: 50 },
  );
  client.setRequestHandler(ElicitRequestSchema, async (request) => fill(request));
  client.setRequestHandler(CreateMessageRequestSchema, async () => summary);
  await client.connect(transport());
  return client;
}

/** A client whose own answers are tasks: the host has to poll and fetch them. */
async function connectWithTasks(seen) {
  const client = new Client(
    { name: "interop", version: "1" },
    {
      capabilities: {
        elicitation: { form: {} },
        sampling: {},
        tasks: {
          list: {},
          cancel: {},
          requests: { elicitation: { create: {} }, sampling: { createMessage: {} } },
        },
      },
      taskStore: new InMemoryTaskStore(),
    },
  );
  const later = async (name, result, request, extra) => {
    if (!request.params.task) return result;
    seen.push(name);
    const task = await extra.taskStore.createTask({ ttl: 60_000, pollInterval: 50 });
    setTimeout(() => extra.taskStore.storeTaskResult(task.taskId, "completed", result), 100);
    return { task };
  };
  client.setRequestHandler(ElicitRequestSchema, async (request, extra) => later("elicitation", await fill(request), request, extra));
  client.setRequestHandler(CreateMessageRequestSchema, (request, extra) => later("sampling", summary, request, extra));
  await client.connect(transport());
  return client;
}

/** Runs a tool as a task to its end; its id and its result. */
async function runTask(client, name, args, options = {}) {
  let taskId, result, error;
  const call = { name, arguments: args };
  for await (const message of client.experimental.tasks.callToolStream(call, CallToolResultSchema, { task: { ttl: 60_000 }, ...options })) {
    if (message.type === "taskCreated") taskId = message.task.taskId;
    if (message.type === "result") result = message.result;
    if (message.type === "error") error = message.error;
  }
  if (error) throw error;
  return { taskId, result };
}

let failures = 0;
async function check(name, body) {
  // Progress of a task reaches streams of the host that runs it, and the stream may be open at another one.
  if (process.env.THREE_HOSTS && name === "progress of a task") return;
  try {
    await body();
    console.log(`ok ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`not ok ${name}: ${String(error.message ?? error).split("\n")[0]}`);
    console.error(error);
  }
}

const client = await connect();

if (process.env.KILL_HOST) {
  await check("a task goes on over two kills of its host", async () => {
    const stream = client.experimental.tasks.callToolStream(
      { name: "book_trip", arguments: {} }, CallToolResultSchema, { task: { ttl: 600_000 } });
    const { taskId } = (await stream.next()).value.task;
    let result;
    while (!result) {
      // The stream of a host that is gone brings nothing any more.
      result = await client.experimental.tasks.getTaskResult(taskId, CallToolResultSchema, { timeout: 10_000 }).catch(() => undefined);
    }
    assert.equal(kills, 2);
    assert.equal(result.structuredContent.summary, "Booked 2 economy seats to Lisbon.");
    assert.equal((await client.experimental.tasks.getTask(taskId)).status, "completed");
  });
  process.exit(failures === 0 ? 0 : 1);
}

await check("capabilities", async () => {
  const tasks = client.getServerCapabilities().tasks;
  assert.ok(tasks.list && tasks.cancel && tasks.requests.tools.call);
});

await check("tools/list", async () => {
  const { tools } = await client.listTools();
  const names = tools.map((tool) => tool.name);
  for (const name of ["echo", "count_primes", "book_trip", "summarize"]) assert.ok(names.includes(name), name);
  assert.equal(tools.find((tool) => tool.name === "count_primes").execution.taskSupport, "optional");
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
  await client.callTool({ name: "wait", arguments: { ms: 500 } }, CallToolResultSchema, {
    onprogress: (progress) => heard.push(progress.progress),
  });
  assert.ok(heard.length > 0);
});

await check("a task, created, polled and fetched", async () => {
  const { taskId, result } = await runTask(client, "count_primes", { below: 1000 });
  assert.equal(result.structuredContent.count, 168);
  const task = await client.experimental.tasks.getTask(taskId);
  assert.equal(task.status, "completed");
  const again = await client.experimental.tasks.getTaskResult(taskId, CallToolResultSchema);
  assert.deepEqual(again.structuredContent, result.structuredContent);
});

await check("tasks/list over pages", async () => {
  const { taskId } = await runTask(client, "count_primes", { below: 10 });
  assert.ok((await listed(client)).includes(taskId));
});

/** The ids of all tasks. */
async function listed(client) {
  const ids = [];
  let cursor;
  do {
    const page = await client.experimental.tasks.listTasks(cursor);
    ids.push(...page.tasks.map((task) => task.taskId));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return ids;
}

await check("tasks that another client made the way of SEP-1686", async () => {
  const other = await connect();
  const name = (what) => `${what} of ${process.pid}, ${kind}`;
  const call = (what, tool, args) => {
    const _meta = { "modelcontextprotocol.io/task": { taskId: name(what), keepAlive: 60_000 } };
    return other.request({ method: "tools/call", params: { name: tool, arguments: args, _meta } }, CallToolResultSchema);
  };
  const looking = kind === "http" ? client : other;
  await call("count", "count_primes", { below: 1000 });
  const waiting = call("wait", "wait", { ms: 600_000 }).catch(() => {});
  let ids = [];
  while (!ids.includes(name("wait"))) ids = await listed(looking);
  assert.ok(ids.includes(name("count")));
  const done = await looking.experimental.tasks.getTask(name("count"));
  assert.equal(done.status, "completed");
  const result = await looking.experimental.tasks.getTaskResult(name("count"), CallToolResultSchema);
  assert.equal(result.structuredContent.count, 168);
  assert.equal((await looking.experimental.tasks.getTask(name("wait"))).status, "working");
  assert.equal((await looking.experimental.tasks.cancelTask(name("wait"))).status, "cancelled");
  await waiting;
  await other.close();
});

await check("tasks/cancel", async () => {
  const stream = client.experimental.tasks.callToolStream(
    { name: "wait", arguments: { ms: 600_000 } }, CallToolResultSchema, { task: { ttl: 60_000 } });
  const first = await stream.next();
  const { taskId } = first.value.task;
  const cancelled = await client.experimental.tasks.cancelTask(taskId);
  assert.equal(cancelled.status, "cancelled");
  await assert.rejects(client.experimental.tasks.cancelTask(taskId), { code: -32602 });
});

await check("elicitation inside a task", async () => {
  const { result } = await runTask(client, "book_trip", {});
  assert.equal(result.structuredContent.summary, "Booked 2 economy seats to Lisbon.");
});

await check("elicitation inside a plain call", async () => {
  const result = await client.callTool({ name: "book_trip", arguments: {} });
  assert.equal(result.structuredContent.booked, true);
});

await check("sampling", async () => {
  const result = await client.callTool({ name: "summarize", arguments: { text: "many words" } });
  assert.equal(result.content[0].text, "in short");
});

await check("progress of a task", async () => {
  const heard = [];
  await runTask(client, "wait", { ms: 1500 }, { onprogress: (progress) => heard.push(progress.progress) });
  assert.ok(heard.length > 1, `heard ${heard.length}`);
});

await check("errors have their codes", async () => {
  await assert.rejects(client.experimental.tasks.getTask("f".repeat(32)), { code: -32602 });
  await assert.rejects(client.callTool({ name: "missing", arguments: {} }), { code: -32602 });
});

await client.close();

await check("answers that are tasks of the client", async () => {
  const seen = [];
  const other = await connectWithTasks(seen);
  const result = await other.callTool({ name: "book_trip", arguments: {} });
  assert.equal(result.structuredContent.booked, true);
  const short = await other.callTool({ name: "summarize", arguments: { text: "many words" } });
  assert.equal(short.content[0].text, "in short");
  assert.deepEqual(seen, ["elicitation", "elicitation", "sampling"]);
  await other.close();
});

process.exit(failures === 0 ? 0 : 1);
