#!/usr/bin/env bash
# LlamaIndex gives a model the first tool's definition of a name under `$defs` for every tool that defines that name.
#
# Surprising: a schema's `$defs` belong to that schema. McpToolSpec keeps what it made of them by their names alone, so where two tools
# each define an `Item`, the second is shown to the model with the first one's fields, and every call of it is refused by its server.
# The guess before the run: definitions are looked up in the schema that refers to them.
# Who meets it: hosts of several plugins, or servers with several tools, that use a common name such as Item, Options or Filter.
# What to do: write definitions where they are used. Bulkhead's SDK for Rust does; whoever writes a schema by hand can.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check llama-index-tools-mcp==0.6.0 mcp==2.3.0

# A server over stdio with the tools in its argument.
cat >server.py <<'END'
import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"tools": json.loads(sys.argv[1])}
    if message["method"] == "initialize":
        about = {"name": "finding", "version": "1"}
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
END
cat >look.py <<'END'
import asyncio
import json
import sys
from importlib.metadata import version

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

print(f"llama-index-tools-mcp {version('llama-index-tools-mcp')}, mcp {version('mcp')}")
print("expected: JSON Schema 2020-12, core, 8.2.3.1: a reference that is a fragment is resolved within its own schema resource")


def tool(name, definition, field):
    item = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    argument = {"$ref": f"#/$defs/{definition}"}
    schema = {"type": "object", "properties": {"item": argument}, "required": ["item"], "$defs": {definition: item}}
    return {"name": name, "description": name, "inputSchema": schema}


async def fields(*tools):
    """What a model is told of each tool's item."""
    client = BasicMCPClient(sys.executable, args=["server.py", json.dumps(tools)])
    seen = {}
    for read in await McpToolSpec(client=client).to_tool_list_async():
        (item,) = read.metadata.get_parameters_dict()["$defs"].values()
        seen[read.metadata.name] = sorted(item["properties"])
    return seen


changed = 0
for what, tools, stated in [
    ("two names", [tool("buy", "Ware", "price"), tool("send", "Parcel", "weight")], {"buy": ["price"], "send": ["weight"]}),
    ("one name", [tool("buy", "Item", "price"), tool("send", "Item", "weight")], {"buy": ["price"], "send": ["price"]}),
]:
    seen = asyncio.run(fields(*tools))
    print(f"seen: {what}: {seen}")
    if seen != stated:
        print(f"CHANGED: {stated} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
