#!/usr/bin/env bash
# A tool whose output schema has an `$id` is judged by the first schema of that `$id`, after every later change.
#
# Surprising: the tool changes, the server announces it, the client lists the tools again and shows the new schema, and then refuses
# each correct result by the old one: its validator keeps compiled schemas by `$id` for the client's whole life. Both lines of the
# TypeScript SDK do so. Without an `$id` the new schema holds at once.
# The guess before the run: the schema of the newest tools/list is the one that results are checked against.
# Who meets it: authors of tools that are swapped or updated while clients are connected, when their generator writes an `$id`.
# What to do: leave `$id` out of output schemas, or change it with the schema; a new connection helps, too. Bulkhead swaps plugins
# while it runs and sends notifications/tools/list_changed; it cannot make such a client forget.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/server@2.4.0

cat >look.mjs <<'END'
import { readFileSync } from "node:fs";
import * as oldTypes from "@modelcontextprotocol/sdk/types.js";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { Server as OldServer } from "@modelcontextprotocol/sdk/server/index.js";
import { InMemoryTransport as OldTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Client, InMemoryTransport } from "@modelcontextprotocol/client";
import { Server } from "@modelcontextprotocol/server";

const version = (name) => `${name} ${JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version}`;
console.log("expected: MCP 2025-11-25, tools, output schema: clients should validate structured results against the tool's schema, which is that of the newest tools/list");

const about = [{ name: "finding", version: "1" }, { capabilities: { tools: { listChanged: true } } }];
const schema = (id, name, type) => ({ ...id, type: "object", properties: { [name]: { type } }, required: [name], additionalProperties: false });

// Lists and calls a tool, changes it, lists and calls it again. Returns what became of the second result.
async function swap(id, old) {
  let release = 1;
  const list = async () => {
    const outputSchema = release === 1 ? schema(id, "count", "integer") : schema(id, "total", "string");
    return { tools: [{ name: "tally", inputSchema: { type: "object" }, outputSchema }] };
  };
  const call = async () => ({ content: [], structuredContent: release === 1 ? { count: 3 } : { total: "three" } });
  const server = old ? new OldServer(...about) : new Server(...about);
  server.setRequestHandler(old ? oldTypes.ListToolsRequestSchema : "tools/list", list);
  server.setRequestHandler(old ? oldTypes.CallToolRequestSchema : "tools/call", call);
  const client = old ? new OldClient(about[0]) : new Client(about[0]);
  const [ours, theirs] = (old ? OldTransport : InMemoryTransport).createLinkedPair();
  await Promise.all([server.connect(theirs), client.connect(ours)]);
  await client.listTools();
  await client.callTool({ name: "tally", arguments: {} });
  release = 2;
  await server.sendToolListChanged();
  const { tools } = await client.listTools();
  if (!("total" in tools[0].outputSchema.properties)) throw new Error("the list is not the new one");
  const seen = await client.callTool({ name: "tally", arguments: {} }).then(() => "taken", (error) => `refused: ${error.message}`);
  await client.close();
  return seen;
}
let changed = false;
for (const [name, old] of [["@modelcontextprotocol/sdk", true], ["@modelcontextprotocol/client", false]]) {
  for (const [what, id, stated] of [["with $id", { $id: "https://example.com/tally" }, /^refused: .*'count'/], ["without $id", {}, /^taken$/]]) {
    const seen = await swap(id, old);
    console.log(`seen: ${version(name)}: ${what}, the changed tool's correct result is ${seen}`);
    if (!stated.test(seen)) {
      console.log(`CHANGED: ${stated} was stated`);
      changed = true;
    }
  }
}
process.exit(changed ? 1 : 0);
END
node look.mjs
