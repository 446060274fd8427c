#!/usr/bin/env bash
# A server of the Python SDK parses a text as JSON when its parameter is `str | None`, and not when it is `str`.
#
# Surprising: the text "null" reaches the tool as None, without a sign, and the text '{"a": 1}' is refused with "Input should be a
# valid string": a string was sent. Where a list is allowed as well, the text '["a"]' becomes a list. The same texts are fine for a
# parameter without the `| None`, so a tool breaks when its author makes a parameter optional.
# The guess before the run: a text that the schema allows is passed on as it is; only where no text is allowed is JSON looked for.
# Who meets it: authors who port such a tool, and see other arguments than before; callers who pass JSON, a search for the word
# null, or a line of a file as text.
# What to do: in such a server, take `text: str = ""` in place of `str | None`. Bulkhead hands the arguments over as they were sent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >look.py <<'END'
import asyncio
import sys
from importlib.metadata import version

if version("mcp").startswith("1."):
    from mcp.server.fastmcp import FastMCP as Server
else:
    from mcp.server.mcpserver import MCPServer as Server

server = Server("finding")


@server.tool()
def plain(text: str) -> str:
    return repr(text)


@server.tool()
def optional(text: str | None = None) -> str:
    return repr(text)


@server.tool()
def either(text: str | list[str]) -> str:
    return repr(text)


CASES = [
    # tool, text that is sent, what the tool gets, or None where it is refused
    ("plain", "null", "'null'"),
    ("plain", '{"a": 1}', "'{\"a\": 1}'"),
    ("optional", "nothing", "'nothing'"),
    ("optional", "null", "None"),
    ("optional", '{"a": 1}', None),
    ("optional", '["a"]', None),
    ("either", '["a"]', "['a']"),
    ("either", "null", None),
]


async def main() -> int:
    print(f"mcp {version('mcp')}")
    schemas = {tool.name: getattr(tool, "inputSchema", None) or tool.input_schema for tool in await server.list_tools()}
    kinds = [kind["type"] for kind in schemas["optional"]["properties"]["text"]["anyOf"]]
    print(f"expected: the tool's own inputSchema lists {kinds} for the optional text, so each string is valid and stays itself")
    changed = 0
    for tool, text, stated in CASES:
        try:
            result = await server.call_tool(tool, {"text": text})
            content = result[0] if isinstance(result, tuple) else result.content
            seen = content[0].text
        except Exception as error:
            if "valid string" not in str(error):
                raise
            seen = None
        outcome = "is refused: Input should be a valid string" if seen is None else f"arrives as {seen}"
        print(f"seen: {tool}: the text {text!r} {outcome}")
        if seen != stated:
            print(f"CHANGED: {stated} was stated")
            changed = 1
    return changed


sys.exit(asyncio.run(main()))
END
for sdk in mcp==1.30.0 mcp==2.3.0; do
  rm -rf venv
  python3 -m venv venv
  venv/bin/pip install --quiet --disable-pip-version-check "$sdk"
  venv/bin/python look.py
done
