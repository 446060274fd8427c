#!/usr/bin/env bash
# Google's ADK and LlamaIndex show the tools of the first page of tools/list only, and do not say that there are more.
#
# Surprising: the answer has a `nextCursor`, which both know as a field of the SDK's result, and neither asks again. A model never
# hears of the tools on the second page.
# The guess before the run: frameworks read to the end of the list, as the MCP client of the AI SDK does.
# Who meets it: operators of servers with many tools, whose users miss some of them in one client and not in another.
# What to do: keep all tools of such a client on one page. Bulkhead puts 200 on a page (`server.tools_per_page`, at most 1,000).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "google-adk[mcp]==2.13.0" llama-index-tools-mcp==0.6.0 mcp==2.3.0

# A server over stdio with two pages of tools. It writes each cursor that it is asked for into a file.
cat >server.py <<'END'
import json
import sys

PAGES = {"": (["one", "two"], "next"), "next": (["three"], None)}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {}
    if message["method"] == "initialize":
        about = {"name": "finding", "version": "1"}
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        answer = {"result": result}
    elif message["method"] == "tools/list":
        cursor = (message.get("params") or {}).get("cursor") or ""
        with open(sys.argv[1], "a") as asked:
            asked.write(cursor + "\n")
        names, following = PAGES[cursor]
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        tools = [{"name": name, "description": name, "inputSchema": schema} for name in names]
        answer = {"result": {"tools": tools} | ({"nextCursor": following} if following else {})}
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
END
cat >look.py <<'END'
import asyncio
import pathlib
import sys
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")

from google.adk.tools.mcp_tool.mcp_toolset import McpToolset, StdioConnectionParams, StdioServerParameters
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from mcp import ClientSession
from mcp.client.stdio import stdio_client
from mcp.types import PaginatedRequestParams


async def adk(arguments):
    parameters = StdioServerParameters(command=sys.executable, args=arguments)
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=parameters, timeout=60))
    try:
        return [tool.name for tool in await toolset.get_tools()]
    finally:
        await toolset.close()


async def llama_index(arguments):
    client = BasicMCPClient(sys.executable, args=arguments)
    return [tool.metadata.name for tool in await McpToolSpec(client=client).to_tool_list_async()]


async def by_hand(arguments):
    names, cursor = [], None
    async with stdio_client(StdioServerParameters(command=sys.executable, args=arguments)) as streams:
        async with ClientSession(*streams) as session:
            await session.initialize()
            while True:
                page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                names += [tool.name for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    return names


print("expected: MCP 2025-11-25, pagination: a missing nextCursor is the end of results; clients SHOULD support paginated and non-paginated flows")
changed = 0
for package, read, stated in [
    ("google-adk", adk, ["one", "two"]),
    ("llama-index-tools-mcp", llama_index, ["one", "two"]),
    ("mcp", by_hand, ["one", "two", "three"]),
]:
    asked = pathlib.Path(f"{package}.asked")
    seen = asyncio.run(read(["server.py", str(asked)]))
    cursors = sorted(set(asked.read_text().split()))
    print(f"seen: {package} {version(package)}: tools {seen}, cursors that were asked for: {cursors}")
    if seen != stated:
        print(f"CHANGED: {stated} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
