#!/usr/bin/env bash
# The MCP client of the AI SDK sets `additionalProperties: false` at the top of every tool's input schema.
#
# Surprising: a tool that takes any members at the top, `{"additionalProperties": {"type": "string"}}`, becomes one that takes none,
# and one whose alternatives name their members inside `oneOf` becomes one that no arguments satisfy: the members are unknown at
# the top, and required below. The model is given the closed schema, by which no call is right that the author meant. Nothing says so. A
# schema inside `properties` stays as it is.
# The guess before the run: `false` is a default where the schema says nothing.
# Who meets it: authors of tools with free members (labels, headers, a row of a table) or with alternatives at the top.
# What to do: name every argument in `properties` at the top, and put a free object or the alternatives below one of them. Bulkhead
# passes on what the plugin says; tools of typed components always name their parameters at the top.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @ai-sdk/mcp@2.0.99 zod@4.4.3 ajv@8.20.0

# A server over stdio that lists four tools.
cat >server.mjs <<'END'
import { createInterface } from "node:readline";
const text = { type: "string" };
const either = (name) => ({ properties: { [name]: text }, required: [name] });
export const schemas = {
  labels: { type: "object", additionalProperties: text },
  find: { type: "object", oneOf: [either("id"), either("name")] },
  below: { type: "object", properties: { labels: { type: "object", additionalProperties: text } }, required: ["labels"] },
  named: { type: "object", properties: { id: text }, required: ["id"] },
};
if (process.argv[2] === "serve") {
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, method, params } = JSON.parse(line);
    if (id === undefined) continue;
    const result =
      method === "initialize"
        ? { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "finding", version: "1" } }
        : { tools: Object.entries(schemas).map(([name, inputSchema]) => ({ name, inputSchema })) };
    console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
  }
}
END
cat >look.mjs <<'END'
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as Transport } from "@ai-sdk/mcp/mcp-stdio";
import { schemas } from "./server.mjs";

console.log(`@ai-sdk/mcp ${JSON.parse(readFileSync("node_modules/@ai-sdk/mcp/package.json", "utf8")).version}`);
console.log("expected: MCP 2025-11-25, Tool.inputSchema: \"A JSON Schema object defining the expected parameters for the tool\", which is the model's to see");

const client = await createMCPClient({ transport: new Transport({ command: process.execPath, args: ["server.mjs", "serve"] }) });
const tools = await client.tools();
await client.close();
const takes = (schema, value) => (new Ajv2020({ strict: false }).validate(schema, value) ? "takes" : "refuses");
let changed = false;
for (const [name, value, stated] of [
  // tool, arguments that it takes, what the schema that the model is given does with them
  ["labels", { colour: "red" }, "refuses"],
  ["find", { id: "7" }, "refuses"],
  ["find", { name: "Ada" }, "refuses"],
  ["below", { labels: { colour: "red" } }, "takes"],
  ["named", { id: "7" }, "takes"],
]) {
  const given = await tools[name].inputSchema.jsonSchema;
  const seen = takes(given, value);
  console.log(`seen: ${name}: the server's schema ${takes(schemas[name], value)} ${JSON.stringify(value)}, the one for the model ${seen} it: ${JSON.stringify(given)}`);
  if (seen !== stated || given.additionalProperties !== false) {
    console.log(`CHANGED: ${stated}, with additionalProperties false, was stated`);
    changed = true;
  }
}
process.exit(changed ? 1 : 0);
END
node look.mjs
