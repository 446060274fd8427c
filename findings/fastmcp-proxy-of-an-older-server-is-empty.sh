#!/usr/bin/env bash
# A FastMCP 4 proxy of a server of 2025-11-25 shows nothing to each client of 2026-07-28, FastMCP's own among them.
#
# Surprising: the same client sees the tools when it connects to the server itself. Through the proxy the lists are empty, without an
# error: a proxy made by `create_proxy` speaks to its source in the version that its client speaks, whatever the source answered to
# server/discover. The source refuses its requests, and a warning in the proxy's log is all. A client of 2025-11-25 sees every tool.
# The guess before the run: the proxy negotiates with its source, as "any MCP server" in the page about it has it.
# Who meets it: operators that put FastMCP in front of several servers, as soon as one of their clients is updated.
# What to do: `create_proxy(target, mode="auto")`. The docstring names it, for a backend that speaks one era only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv new
new/bin/pip install --quiet --disable-pip-version-check fastmcp==4.2.3 fastmcp-slim==4.2.3 mcp==2.3.0
python3 -m venv old
old/bin/pip install --quiet --disable-pip-version-check mcp==1.30.0

cat >server.py <<'END'
from mcp.server.fastmcp import FastMCP

server = FastMCP("older")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


server.run()
END
cat >look.py <<'END'
import asyncio
import logging
import sys
from importlib.metadata import version

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

logging.disable(logging.CRITICAL)


def source():
    return StdioTransport("old/bin/python", ["server.py"])


async def look(target, mode):
    """The tools that a client sees, and what it gets from a call of one."""
    async with Client(target, mode=mode) as client:
        names = [tool.name for tool in await client.list_tools()]
        try:
            result = (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return f"tools {names}, add: {result}"


print(", ".join(f"{name} {version(name)}" for name in ("fastmcp", "mcp")) + "; the server: mcp 1.30.0")
print("expected: gofastmcp.com, MCP Proxy Provider: it exposes the tools, resources and prompts of any MCP server")
works = "tools ['add'], add: 3"
changed = 0
for what, target, mode, stated in [
    ("the server itself, client of both versions", source(), "auto", works),
    ("proxy, client of 2025-11-25", create_proxy(source()), "legacy", works),
    ("proxy, client of both versions", create_proxy(source()), "auto", "tools [], add: ToolError: Unknown tool: 'add'"),
    ("proxy with mode='auto', client of both versions", create_proxy(source(), mode="auto"), "auto", works),
]:
    seen = asyncio.run(look(target, mode))
    print(f"seen: {what}: {seen}")
    if seen != stated:
        print(f"CHANGED: {stated} was stated")
        changed = 1
sys.exit(changed)
END
new/bin/python look.py 2>log || { code=$?; cat log >&2; exit "$code"; }
