#!/usr/bin/env bash
# The library of MCP bundles changes a user's value that has a dollar sign before it gives the value to the server.
#
# Surprising: a password such as `pa$$word` reaches the server as `pa$word`, and `a$&b` as `a${user_config.password}b`, because values
# are put in by String.replace of JavaScript, which has patterns of its own in what it puts in. An argument that is nothing but the
# placeholder is put in by another way and stays right, so the same value differs between `args` and `env`.
# The guess before the run: values arrive as they were entered.
# Who meets it: authors of bundles and hosts of them, as a login that fails for some users only.
# What to do: none for authors, but to say in the option's description that `$$` and `$&` do not work; hosts can put values in
# themselves. Upstream knows it (issue 258 of modelcontextprotocol/mcpb, open).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @anthropic-ai/mcpb@2.1.2

cat >look.mjs <<'END'
import { readFileSync } from "node:fs";
import { getMcpConfigForManifest } from "@anthropic-ai/mcpb";

const { version } = JSON.parse(readFileSync("node_modules/@anthropic-ai/mcpb/package.json", "utf8"));
console.log(`@anthropic-ai/mcpb ${version}`);
console.log("expected: MANIFEST.md, user configuration: ${user_config.KEY} is replaced with the user-provided value");

const placeholder = "${user_config.password}";
const manifest = {
  manifest_version: "0.3",
  name: "finding",
  version: "1.0.0",
  description: "A server with a password",
  author: { name: "finding" },
  server: {
    type: "node",
    entry_point: "server.js",
    mcp_config: { command: "node", args: [placeholder, `--password=${placeholder}`], env: { PASSWORD: placeholder } },
  },
  user_config: { password: { type: "string", title: "Password", description: "Password", sensitive: true, required: true } },
};

let changed = false;
for (const [password, stated] of [["plain$word", "plain$word"], ["pa$$word", "pa$word"], ["a$&b", `a${placeholder}b`]]) {
  const { args, env } = await getMcpConfigForManifest({
    manifest,
    extensionPath: "/bundle",
    systemDirs: {},
    userConfig: { password },
    pathSeparator: "/",
  });
  console.log(`seen: ${password}: as an argument ${args[0]}, within an argument ${args[1]}, in the environment ${env.PASSWORD}`);
  if (args[0] !== password || args[1] !== `--password=${stated}` || env.PASSWORD !== stated) {
    console.log(`CHANGED: ${password}, --password=${stated} and ${stated} were stated`);
    changed = true;
  }
}
process.exit(changed ? 1 : 0);
END
node look.mjs
