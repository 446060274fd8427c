#!/usr/bin/env bash
# A call as a task through fastmcp-tasks fails where the server answers it at once, and its result is lost.
#
# Surprising: in the tasks extension the server alone decides, for each call, whether there is a task, and is asked to have its questions
# answered before it makes one. `call_tool_task` takes a task and nothing else: a result that came at once is an error after the tool has
# run, and so is a question. Pydantic AI has the model try again, so the tool runs once more.
# The guess before the run: the handle that it returns is one that is over, as the one that `callTool` of ext-tasks for TypeScript returns.
# Who meets it: users of FastMCP 4 or of Pydantic AI's `use_task=True` with a server that makes tasks of slow calls only.
# What to do: call the tool plainly. Where fastmcp-tasks is imported, that takes a task, a result and a question.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check fastmcp-tasks==4.1.4 fastmcp-slim==4.1.4 mcp==2.3.0

# A server of 2026-07-28 over stdio with the tasks extension. `task` makes a task of the call, `result` answers, `question` asks first.
cat >server.py <<'END'
import json
import sys

EXTENSION = "io.modelcontextprotocol/tasks"
LASTING = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
TASK = {"taskId": "1", "createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": 60000, "pollIntervalMs": 50}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who are you?", "requestedSchema": FORM}}
NAMES = ["task", "result", "question"]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params") or {}
    if message["method"] == "server/discover":
        capabilities = {"tools": {}, "extensions": {EXTENSION: {}}}
        result = LASTING | {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    elif message["method"] == "tools/list":
        result = LASTING | {"tools": [{"name": name, "inputSchema": {"type": "object", "properties": {}}} for name in NAMES]}
    elif message["method"] == "tasks/get":
        result = TASK | {"resultType": "complete", "status": "completed", "result": DONE}
    elif params["name"] == "task":
        result = TASK | {"resultType": "task", "status": "working"}
    elif params["name"] == "question" and not params.get("inputResponses"):
        result = {"resultType": "input_required", "inputRequests": {"name": QUESTION}}
    else:
        result = DONE
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
END
cat >look.py <<'END'
import asyncio
import sys
from importlib.metadata import version

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task


async def answer(_message, _type, _params, _context):
    return ElicitResult(action="accept", content={"name": "Ada"})


async def as_task(client, name):
    return await (await call_tool_task(client, name)).result()


async def plainly(client, name):
    return await client.call_tool(name, {})


async def main():
    server = StdioTransport(command=sys.executable, args=["server.py"])
    seen = {}
    async with Client(server, elicitation_handler=answer) as client:
        for call in (as_task, plainly):
            for name in ("task", "result", "question"):
                try:
                    result = await call(client, name)
                    outcome = result.content[0].text
                except Exception as error:
                    outcome = f"{type(error).__name__}: {error}".split(";")[0].split(". ")[0]
                seen[f"{call.__name__} {name}"] = outcome
    return seen


print(", ".join(f"{name} {version(name)}" for name in ("fastmcp-tasks", "fastmcp-slim", "mcp")))
print("expected: MCP extension io.modelcontextprotocol/tasks, 2026-07-28: the server decides for each request whether it answers with a task")
stated = {
    "as_task task": "done",
    "as_task result": "ToolError: Tool 'result' did not run as a task: the server returned a CallToolResult instead of a task",
    "as_task question": "RuntimeError: Server returned InputRequiredResult",
    "plainly task": "done",
    "plainly result": "done",
    "plainly question": "done",
}
changed = 0
for call, seen in asyncio.run(main()).items():
    print(f"seen: {call}: {seen}")
    if seen != stated[call]:
        print(f"CHANGED: {stated[call]!r} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
