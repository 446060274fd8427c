#!/usr/bin/env bash
# The TypeScript SDK 1.x refuses a correct result whose output schema describes a tuple in today's JSON Schema.
#
# Surprising: `prefixItems` with `"items": false` is how JSON Schema 2020-12 says "exactly these two". The client of the SDK 1.x
# reads schemas as draft-07, where `prefixItems` means nothing and `"items": false` means "no items at all": it throws for
# [1, 2], and no array of two is left that it takes. It does not look at `dependentRequired` and `unevaluatedProperties`.
# The client of the SDK 2.x judges by 2020-12.
# The guess before the run: keywords that a reader does not know are ignored, so that the worst is a result that is not checked.
# Who meets it: authors whose output schema is written or generated for 2020-12, which is the default of MCP.
# What to do: write `prefixItems` with `minItems` and `maxItems`, and no `"items": false`. Bulkhead writes the tuples of typed
# components in this way.
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

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version;
console.log(`@modelcontextprotocol/sdk ${version("@modelcontextprotocol/sdk")}, @modelcontextprotocol/client ${version("@modelcontextprotocol/client")}`);
console.log("expected: MCP 2025-11-25, Tool.outputSchema: \"Defaults to JSON Schema 2020-12 when no explicit $schema is provided\"");

const whole = { type: "integer" };
const tuple = (rest) => ({ type: "object", properties: { at: { type: "array", prefixItems: [whole, whole], ...rest } }, required: ["at"] });
const cases = [
  // what, schema, structured content, whether 2020-12 takes it, whether SDK 1.x does
  ["prefixItems, items false, two numbers", tuple({ items: false, minItems: 2 }), { at: [1, 2] }, true, false],
  ["prefixItems, minItems and maxItems, two numbers", tuple({ minItems: 2, maxItems: 2 }), { at: [1, 2] }, true, true],
  ["prefixItems, minItems and maxItems, two texts", tuple({ minItems: 2, maxItems: 2 }), { at: ["a", "b"] }, false, true],
  ["dependentRequired, the other is missing", { type: "object", dependentRequired: { card: ["address"] } }, { card: "1" }, false, true],
  ["unevaluatedProperties false, one too many", { type: "object", properties: { a: whole }, unevaluatedProperties: false }, { a: 1, b: 2 }, false, true],
];
const tools = cases.map(([, outputSchema], index) => ({ name: `tool${index}`, inputSchema: { type: "object" }, outputSchema }));
const call = (name) => ({ content: [], structuredContent: cases[Number(name.slice(4))][2] });

async function takes(client, server, [ours, theirs]) {
  await Promise.all([server.connect(theirs), client.connect(ours)]);
  await client.listTools();
  const taken = [];
  for (const { name } of tools) {
    taken.push(await client.callTool({ name, arguments: {} }).then(() => true, (error) => /does not match/.test(error.message) ? false : Promise.reject(error)));
  }
  await client.close();
  return taken;
}
const about = [{ name: "finding", version: "1" }, { capabilities: { tools: {} } }];
const oldServer = new OldServer(...about);
oldServer.setRequestHandler(oldTypes.ListToolsRequestSchema, async () => ({ tools }));
oldServer.setRequestHandler(oldTypes.CallToolRequestSchema, async ({ params }) => call(params.name));
const server = new Server(...about);
server.setRequestHandler("tools/list", async () => ({ tools }));
server.setRequestHandler("tools/call", async ({ params }) => call(params.name));
const old = await takes(new OldClient(about[0]), oldServer, OldTransport.createLinkedPair());
const today = await takes(new Client(about[0]), server, InMemoryTransport.createLinkedPair());

const word = (taken) => (taken ? "taken" : "refused");
let changed = false;
cases.forEach(([what, , content, right, stated], index) => {
  console.log(`seen: ${what}: ${JSON.stringify(content)}: by 2020-12 ${word(right)}, SDK 1.x ${word(old[index])}, SDK 2.x ${word(today[index])}`);
  if (old[index] !== stated || today[index] !== right) {
    console.log(`CHANGED: SDK 1.x ${word(stated)}, SDK 2.x ${word(right)} was stated`);
    changed = true;
  }
});
process.exit(changed ? 1 : 0);
END
node look.mjs
