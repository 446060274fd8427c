#!/usr/bin/env bash
# Clients of the TypeScript SDK never see the title of a prompt's argument, in no version of the protocol.
#
# Surprising: an argument has had a title since 2025-06-18, and the prompt's own title is kept. The SDK's schema of an argument lacks the
# member, and what is not in the schema is taken away while the list is read, without a word. Both lines of the SDK do so.
# The guess before the run: all of a prompt that the specification names is kept.
# Who meets it: authors that write titles for the forms in which users fill prompts in, and look for the fault in their server.
# What to do: begin `description` with the title; the name is what is shown.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0

# A server over stdio of both versions, with one prompt.
cat >server.mjs <<'END'
import { createInterface } from "node:readline";

const argument = { name: "city", title: "City", description: "Where", required: true };
const prompts = [{ name: "weather", title: "Weather", description: "Ask for the weather", arguments: [argument] }];
const lasting = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const answers = {
    initialize: { protocolVersion: params?.protocolVersion, capabilities: { prompts: {} }, serverInfo: { name: "finding", version: "1" } },
    "server/discover": { ...lasting, supportedVersions: ["2026-07-28"], capabilities: { prompts: {} } },
    "prompts/list": { ...(params?._meta?.["io.modelcontextprotocol/protocolVersion"] ? lasting : {}), prompts },
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
console.log("expected: MCP 2025-06-18, 2025-11-25 and 2026-07-28, schema, PromptArgument: title, intended for UI and end-user contexts");

const about = { name: "finding", version: "1" };
const server = { command: process.execPath, args: ["server.mjs"] };
const stated = '{"name":"city","description":"Where","required":true}';
let changed = false;
for (const [what, client, transport] of [
  [`${version("@modelcontextprotocol/sdk")}, 2025-11-25`, new OldClient(about), new OldTransport(server)],
  [`${version("@modelcontextprotocol/client")}, 2025-11-25`, new Client(about), new StdioClientTransport(server)],
  [
    `${version("@modelcontextprotocol/client")}, 2026-07-28`,
    new Client(about, { versionNegotiation: { mode: "auto" } }),
    new StdioClientTransport(server),
  ],
]) {
  await client.connect(transport);
  const [prompt] = (await client.listPrompts()).prompts;
  const seen = JSON.stringify(prompt.arguments[0]);
  console.log(`seen: ${what}: the prompt's title is ${prompt.title}, its argument ${seen}`);
  if (prompt.title !== "Weather" || seen !== stated) {
    console.log(`CHANGED: Weather and ${stated} were stated`);
    changed = true;
  }
  await client.close();
}
process.exit(changed ? 1 : 0);
END
node look.mjs
