// Mastra, a framework for agents, as a client: node mastra.mjs http URL | stdio COMMAND ARGUMENTS...
// It probes for 2026-07-28, and checks arguments and results against the schemas that the host lists.
// Prints a line for each check: `ok NAME` or `not ok NAME: why`.
import assert from "node:assert/strict";

import { MCPClient } from "@mastra/mcp";

const [kind, ...where] = process.argv.slice(2);

/** What a user would fill in, by the fields of the form. */
const FILLED = { destination: "Lisbon", travellers: 2, class: "economy", confirm: true };
const asked = [];

async function inputRequests({ key, params }) {
  asked.push(key);
  const fields = Object.keys(params.requestedSchema.properties);
  return { action: "accept", content: Object.fromEntries(fields.map((field) => [field, FILLED[field]])) };
}

const place = kind === "http" ? { url: new URL(where[0]) } : { command: where[0], args: where.slice(1) };
const client = new MCPClient({ timeout: 60_000, servers: { bulkhead: { ...place, inputRequests } } });
const { toolsets, errors } = await client.listToolsetsWithErrors();
const tools = toolsets.bulkhead ?? {};

let failures = 0;
async function check(name, body) {
  try {
    await body();
    console.log(`ok ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`not ok ${name}: ${String(error.message ?? error).split("\n")[0]}`);
    console.error(error);
  }
}

await check("revision", async () => {
  assert.deepEqual(client.getServerProtocolVersions(), { bulkhead: "2026-07-28" });
});

await check("tools/list", async () => {
  assert.deepEqual(errors, {});
  for (const name of ["echo", "count_primes", "book_trip", "summarize"]) assert.ok(name in tools, name);
});

await check("tools/call", async () => {
  const { content } = await tools.echo.execute({ text: "hi" }, {});
  assert.equal(content[0].text, "hi");
  const counts = await tools.word_count.execute({ text: "a b c" }, {});
  assert.equal(counts.words, 3);
});

await check("a tool's own error", async () => {
  // Wrong arguments would not leave the client.
  await assert.rejects(tools.test_error_handling.execute({}, {}), /intentionally returns an error/);
});

await check("elicitation inside a plain call", async () => {
  const booked = await tools.book_trip.execute({}, {});
  assert.equal(booked.summary, "Booked 2 economy seats to Lisbon.");
  assert.deepEqual(asked, ["journey", "details"]);
});

await check("a client that did not declare tasks never gets one", async () => {
  const waited = await tools.wait.execute({ ms: 1300 }, {});
  assert.equal(waited.waited_ms, 1300);
});

await client.disconnect();
process.exit(failures === 0 ? 0 : 1);
