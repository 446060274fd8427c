#!/usr/bin/env bash
# One resource whose `lastModified` has no time zone makes the whole resources/list an error in clients of the TypeScript SDK.
#
# Surprising: the specification wants "an ISO 8601 formatted string", and its schema has a string without a format. The SDK takes
# RFC 3339 with seconds only: a date, minutes, and a time without a zone, as `datetime.now().isoformat()` of Python writes it, are
# refused, and all other resources with it. The annotation is the same on contents of tools, so there the call fails after it has run.
# The guess before the run: what is ISO 8601 is taken, and what is not understood is at most left out.
# Who meets it: servers in other languages, such as those of the Python SDK, which takes any text for it.
# What to do: write UTC with seconds, as the example of the specification: 2025-01-12T15:00:58Z.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0

# A server over stdio with two resources and a tool. One resource, and what the tool returns, has the time in the server's argument.
cat >server.mjs <<'END'
import { createInterface } from "node:readline";

const annotations = { lastModified: process.argv[2] };
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const capabilities = { resources: {}, tools: {} };
  const answers = {
    initialize: { protocolVersion: params?.protocolVersion, capabilities, serverInfo: { name: "finding", version: "1" } },
    "resources/list": { resources: [{ uri: "docs://a", name: "a" }, { uri: "docs://b", name: "b", annotations }] },
    "tools/list": { tools: [{ name: "read", inputSchema: { type: "object" } }] },
    "tools/call": { content: [{ type: "text", text: "b", annotations }] },
  };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, result: answers[method] }));
}
END
cat >look.mjs <<'END'
import { readFileSync } from "node:fs";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const version = (name) => `${name} ${JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version}`;
console.log("expected: MCP 2025-11-25 and 2026-07-28, schema, Annotations: lastModified is a string, 'an ISO 8601 formatted string'");

const about = { name: "finding", version: "1" };
const outcome = (promise, read) => promise.then(read, () => "refused");
let changed = false;
for (const [name, Kind, Transport] of [
  ["@modelcontextprotocol/sdk", OldClient, OldTransport],
  ["@modelcontextprotocol/client", Client, StdioClientTransport],
]) {
  for (const [time, taken] of [
    ["2025-01-12T15:00:58Z", true],
    ["2025-01-12T15:00:58.123456+02:00", true],
    ["2025-01-12T15:00:58.123456", false],
    ["2025-01-12T15:00Z", false],
    ["2025-01-12", false],
  ]) {
    const client = new Kind(about);
    await client.connect(new Transport({ command: process.execPath, args: ["server.mjs", time] }));
    const list = await outcome(client.listResources(), ({ resources }) => `${resources.length} resources`);
    const call = await outcome(client.callTool({ name: "read", arguments: {} }), ({ content }) => content[0].text);
    await client.close();
    console.log(`seen: ${version(name)}: ${time}: the list is ${list}, the call ${call}`);
    const stated = taken ? ["2 resources", "b"] : ["refused", "refused"];
    if (list !== stated[0] || call !== stated[1]) {
      console.log(`CHANGED: ${stated.join(" and ")} were stated`);
      changed = true;
    }
  }
}
process.exit(changed ? 1 : 0);
END
node look.mjs
