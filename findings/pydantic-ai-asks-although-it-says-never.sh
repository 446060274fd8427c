#!/usr/bin/env bash
# Pydantic AI warns that the handler for questions "will never be called" by a server of 2026-07-28, and then calls it.
#
# Surprising: the warning says that such a session has no connection for the server to ask over. The server asks in its answer
# (`input_required`), FastMCP below has the handler answer, and repeats the call. Whoever heeds the warning and takes the handler out
# gets an error from every tool that asks.
# The guess before the run: the warning is right, and a tool that asks cannot be called.
# Who meets it: users of Pydantic AI whose server speaks 2026-07-28 and has tools that ask.
# What to do: keep the handler, and filter the warning.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "pydantic-ai-slim[mcp]==2.68.0" fastmcp-slim==4.2.3 mcp==2.3.0

# A server of 2026-07-28 over stdio with a tool that asks for a name.
cat >server.py <<'END'
import json
import sys

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who are you?", "requestedSchema": FORM}}
TOOL = {"name": "greet", "description": "Greets.", "inputSchema": {"type": "object", "properties": {}}}
LASTING = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "server/discover":
        answer = {"result": LASTING | {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
    elif message["method"] == "tools/list":
        answer = {"result": LASTING | {"tools": [TOOL]}}
    elif message["method"] == "tools/call":
        given = message["params"].get("inputResponses")
        answer = {"result": {"resultType": "input_required", "inputRequests": {"name": QUESTION}}}
        if given:
            text = {"type": "text", "text": "Hello, " + given["name"]["content"]["name"]}
            answer = {"result": {"resultType": "complete", "content": [text]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
END
cat >look.py <<'END'
import asyncio
import sys
import warnings
from importlib.metadata import version

from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

asked = []


async def answer(message, _type, _params, _context):
    asked.append(message)
    return ElicitResult(action="accept", content={"name": "Ada"})


async def main():
    server = StdioTransport(command=sys.executable, args=["server.py"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        async with MCPToolset(server, elicitation_handler=answer) as toolset:
            result = await toolset.direct_call_tool("greet", {})
    return [str(warning.message).split(":")[0] for warning in said if "elicitation_handler" in str(warning.message)], result


print(", ".join(f"{name} {version(name)}" for name in ("pydantic-ai-slim", "fastmcp-slim", "mcp")))
print("expected: the warning of Pydantic AI, or MCP 2026-07-28, multi round-trip requests: the client answers and repeats the request; not both")
said, result = asyncio.run(main())
changed = 0
for what, seen, stated in [
    ("warnings", said, ["`elicitation_handler` will never be called"]),
    ("questions that the handler was asked", asked, ["Who are you?"]),
    ("result", result, "Hello, Ada"),
]:
    print(f"seen: {what}: {seen!r}")
    if seen != stated:
        print(f"CHANGED: {stated!r} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
