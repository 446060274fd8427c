#!/usr/bin/env bash
# A server of the TypeScript SDK takes a result for right by its own schema, and publishes a stricter one that its client refuses.
#
# Surprising: server and client of one package, and one schema, disagree. The server checks structured content by zod, which drops
# members that are not named and fills in defaults; it then sends what the tool returned, not what zod made of it. The published
# outputSchema has `"additionalProperties": false` and counts a member with a default among the required ones. The client of the
# same SDK refuses the whole result. Both lines of the SDK do so. A member of a wrong type is refused by the server, so the check
# seems to work.
# The guess before the run: what passes the server's check passes the client's, or the server sends what zod returned.
# Who meets it: authors who return a row or an answer of another service as it is, with more members than the schema names, or who
# leave out a member because it has a default. Their own tests call the function and see nothing.
# What to do: parse the result before it is returned, or use z.looseObject and no defaults in output schemas. Bulkhead checks
# structured content by the very outputSchema that it lists.
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

console.log("expected: MCP 2025-11-25, tools, output schema: \"Servers MUST provide structured results that conform to this schema\"");
const output = { name: z.string(), size: z.number().default(0) };
const CASES = [
  // what, structured content, what the client sees
  ["all members", { name: "a", size: 1 }, "taken"],
  ["one member more", { name: "a", size: 1, colour: "red" }, "refused by the client: data must NOT have additional properties"],
  ["a default left out", { name: "a" }, "refused by the client: data must have required property 'size'"],
  ["a member of a wrong type", { name: 5, size: 1 }, "refused by the server"],
];
let changed = false;
for (const line of LINES) {
  const client = await connect(line, (server) => {
    CASES.forEach(([, structuredContent], index) => {
      const outputSchema = line.Server === OldServer ? output : z.object(output);
      server.registerTool(`tool${index}`, { outputSchema }, async () => ({ content: [], structuredContent }));
    });
  });
  const { tools } = await client.listTools();
  const { required, additionalProperties } = tools[0].outputSchema;
  console.log(`${line.name}: the outputSchema has required ${JSON.stringify(required)}, additionalProperties ${additionalProperties}`);
  for (const [index, [what, content, stated]] of CASES.entries()) {
    const seen = await client.callTool({ name: `tool${index}`, arguments: {} }).then(
      (result) => (result.isError ? "refused by the server" : "taken"),
      (error) => (/output schema: data must/.test(error.message) ? `refused by the client: ${error.message.split("schema: ")[1]}` : "refused by the server"),
    );
    console.log(`seen: ${line.name}: ${what}, ${JSON.stringify(content)}: ${seen}`);
    if (seen !== stated) {
      console.log(`CHANGED: ${stated} was stated`);
      changed = true;
    }
  }
  await client.close();
}
process.exit(changed ? 1 : 0);
END
node look.mjs
