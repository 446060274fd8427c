#!/usr/bin/env bash
# LlamaIndex has no tool of a server at all where one argument of one tool has a name that begins with `_`.
#
# Surprising: JSON Schema lets a property have any name, and models' interfaces take underscores. McpToolSpec makes a Pydantic model of
# each schema, which refuses such a field, and the error ends the reading of the list: the other tools are gone as well.
# The guess before the run: the argument gets another name inside, as datamodel-code-generator does it, or its tool alone is left out.
# Who meets it: servers in front of interfaces that have arguments such as `_id`, `_source` or `__typename`.
# What to do: begin the names of arguments with a letter. `allowed_tools` of McpToolSpec leaves such a tool out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check llama-index-tools-mcp==0.6.0 mcp==2.3.0

# A server over stdio with two tools; an argument of the second has the name in its argument.
cat >server.py <<'END'
import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    named = [("one", "text"), ("two", sys.argv[1])]
    schemas = {name: {"type": "object", "properties": {argument: {"type": "string"}}} for name, argument in named}
    result = {"tools": [{"name": name, "description": name, "inputSchema": schema} for name, schema in schemas.items()]}
    if message["method"] == "initialize":
        about = {"name": "finding", "version": "1"}
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
END
cat >look.py <<'END'
import asyncio
import sys
from importlib.metadata import version

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

print(f"llama-index-tools-mcp {version('llama-index-tools-mcp')}, pydantic {version('pydantic')}, mcp {version('mcp')}")
print("expected: JSON Schema 2020-12, core, 10.3.2.1: each value of `properties` is a schema; names are not restricted")


async def names(client):
    return [tool.metadata.name for tool in await McpToolSpec(client=client).to_tool_list_async()]


changed = 0
for argument, stated in [("id", "one, two"), ("id_", "one, two"), ("_id", "no tool: PydanticUserError")]:
    try:
        seen = ", ".join(asyncio.run(names(BasicMCPClient(sys.executable, args=["server.py", argument]))))
    except Exception as error:
        seen = f"no tool: {type(error).__name__}"
    print(f"seen: an argument `{argument}`: {seen}")
    if seen != stated:
        print(f"CHANGED: {stated} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
