#!/usr/bin/env bash
# A task that shall be kept for 25 days or longer is gone after a millisecond, in the task store of the TypeScript SDK.
#
# Surprising: a longer ttl gives a shorter life. `InMemoryTaskStore` gives the ttl to setTimeout, which counts in 32 bits; Node.js
# takes 1 ms for anything above 2,147,483,647 ms. createTask answers with the ttl as it was asked for, and the task is "not found".
# The guess before the run: a ttl that is too long is shortened or refused, or the task is kept for ever.
# Who meets it: servers, and clients with tasks of their own (sampling, elicitation), that use this store and get a ttl of a month.
# What to do: ask such a peer for at most 2,147,483,647 ms (24.8 days), or for no ttl. Bulkhead stores the time of expiry, not a
# timer, shortens a ttl to `limits.ttl_ms_max` (one day by default, at most 30), and says the ttl that holds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @modelcontextprotocol/sdk@1.32.2

cat >look.mjs <<'END'
import { readFileSync } from "node:fs";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js";

const { version } = JSON.parse(readFileSync("node_modules/@modelcontextprotocol/sdk/package.json", "utf8"));
console.log(`@modelcontextprotocol/sdk ${version}, Node.js ${process.version}`);
console.log("expected: MCP 2025-11-25, tasks, TTL and Resource Management: \"After a task's `ttl` lifetime has elapsed, receivers MAY delete the task\"");

const cases = [
  // ttl in ms, status that is seen 300 ms later
  [60_000, "working"],
  [2_147_483_647, "working"],
  [2_147_483_648, "not found"],
  [2_592_000_000, "not found"],
];
const store = new InMemoryTaskStore();
let changed = false;
for (const [ttl, stated] of cases) {
  const task = await store.createTask({ ttl }, 1, { method: "tools/call", params: { name: "wait" } });
  await new Promise((done) => setTimeout(done, 300));
  const seen = (await store.getTask(task.taskId))?.status ?? "not found";
  console.log(`seen: ttl ${ttl}, answered with ttl ${task.ttl}: 300 ms later ${seen}`);
  if (seen !== stated || task.ttl !== ttl) {
    console.log(`CHANGED: ${stated} with the same ttl was stated`);
    changed = true;
  }
}
store.cleanup();
process.exit(changed ? 1 : 0);
END
node --no-warnings look.mjs
