#!/usr/bin/env bash
# A tool of the TypeScript SDK 1.x whose arguments are a union is listed as a tool without arguments.
#
# Surprising: registerTool takes a zod union, the arguments are checked by it, and calls work; but tools/list says
# `{"type": "object", "properties": {}}`, without an error or a warning. A model sees a tool that takes nothing, calls it with
# nothing, and is told that its arguments are invalid. The SDK 2.x lists the union as `oneOf`.
# The guess before the run: the union is listed as `anyOf` or `oneOf`, or refused when it is registered.
# Who meets it: authors of tools with alternatives: by id or by name, one shape for each kind.
# What to do: in such a server, put the union below a named argument. Bulkhead lists the schema that the plugin gave; a variant of a
# typed component is below its parameter.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/server@2.4.0 zod@4.6.7

cat >look.mjs <<'END'
import { readFileSync } from "node:fs";
import { z } from "zod";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { McpServer as OldServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { InMemoryTransport as OldTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Client, InMemoryTransport } from "@modelcontextprotocol/client";
import { McpServer } from "@modelcontextprotocol/server";

const version = (name) => `${name} ${JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version}`;
const about = { name: "finding", version: "1" };
const LINES = [
  { name: version("@modelcontextprotocol/sdk"), Server: OldServer, Client: OldClient, Transport: OldTransport },
  { name: version("@modelcontextprotocol/server"), Server: McpServer, Client, Transport: InMemoryTransport },
];
async function connect({ Server, Client, Transport }, register) {
  const server = new Server(about);
  register(server);
  const client = new Client(about);
  const [ours, theirs] = Transport.createLinkedPair();
  await Promise.all([server.connect(theirs), client.connect(ours)]);
  return client;
}

console.log("expected: MCP 2025-11-25, Tool.inputSchema: \"A JSON Schema object defining the expected parameters for the tool\"");
const union = z.discriminatedUnion("by", [
  z.object({ by: z.literal("id"), id: z.number() }),
  z.object({ by: z.literal("name"), name: z.string() }),
]);
const STATED = [
  // what the list says about the arguments, in each line of the SDK: at the top, and below a named argument
  ["nothing", "oneOf"],
  ["oneOf", "oneOf"],
];
const kind = (schema) => (schema?.oneOf ? "oneOf" : schema?.anyOf ? "anyOf" : Object.keys(schema?.properties ?? {}).length === 0 ? "nothing" : "members");
let changed = false;
for (const [index, line] of LINES.entries()) {
  const client = await connect(line, (server) => {
    const answer = async (value) => ({ content: [{ type: "text", text: JSON.stringify(value) }] });
    server.registerTool("top", { inputSchema: union }, answer);
    server.registerTool("below", { inputSchema: z.object({ what: union }) }, answer);
  });
  const { tools } = await client.listTools();
  const [top, below] = tools.map((tool) => tool.inputSchema);
  const seen = [kind(top), kind(below.properties.what)];
  const right = await client.callTool({ name: "top", arguments: { by: "id", id: 7 } });
  const empty = await client.callTool({ name: "top", arguments: {} }).catch(() => ({ isError: true }));
  console.log(`seen: ${line.name}: a union at the top is listed as ${seen[0]}: ${JSON.stringify(top)}`);
  console.log(`seen: ${line.name}: below a named argument it is listed as ${seen[1]}`);
  console.log(`seen: ${line.name}: {"by":"id","id":7} ${right.isError ? "fails" : "works"}, {} ${empty.isError ? "fails" : "works"}`);
  if (seen.join() !== STATED[index].join() || right.isError || !empty.isError) {
    console.log(`CHANGED: ${STATED[index].join(" and ")} was stated, and that arguments are needed`);
    changed = true;
  }
  await client.close();
}
process.exit(changed ? 1 : 0);
END
node look.mjs
