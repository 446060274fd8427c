#!/usr/bin/env bash
# mcpadapt, by which smolagents reads MCP servers, loses every tool to one schema, and makes numbers texts and optional arguments required.
#
# Surprising: `{"type": "object", "additionalProperties": false}` is a tool without arguments. mcpadapt throws KeyError 'properties'
# for it, and none of the server's tools is there. An argument without a single `type`, such as a number that may be null (`anyOf`)
# or an enum of numbers, is given the type "string": smolagents then refuses the number, which is right, and takes a text, which
# is wrong. An argument that is not among `required` has to be given.
# The guess before the run: a tool that cannot be read is left out with a warning, and `anyOf` is passed on or becomes "any".
# Who meets it: authors whose tools take no arguments, or optional ones made from `int | None` or `option<u32>`.
# What to do: write `"properties": {}`; give each argument one `type`, and its default in the description. Bulkhead writes
# `properties` into the schemas that it makes for typed components.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check mcpadapt==0.1.19 smolagents==1.26.0 mcp==1.30.0

# A server over stdio that lists the tools in its argument.
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
import json
import sys
from importlib.metadata import version

from mcp import StdioServerParameters
from mcpadapt.core import MCPAdapt
from mcpadapt.smolagents_adapter import SmolAgentsAdapter
from smolagents.tools import validate_tool_arguments

print(f"mcpadapt {version('mcpadapt')}, smolagents {version('smolagents')}, mcp {version('mcp')}")
print("expected: MCP 2025-11-25, tools: for a tool with no parameters, `{ \"type\": \"object\", \"additionalProperties\": false }` is recommended")
print("expected: JSON Schema 2020-12, validation, 6.5.3: a member that `required` does not list may be left out")


def tool(name, **schema):
    return {"name": name, "description": name, "inputSchema": {"type": "object", **schema}}


def argument(**schema):
    return {"properties": {"n": {"description": "A number.", **schema}}}


changed = 0


def compare(what, seen, stated):
    global changed
    print(f"seen: {what}: {seen}")
    if seen != stated:
        print(f"CHANGED: {stated} was stated")
        changed = 1


def adapt(*tools):
    server = StdioServerParameters(command=sys.executable, args=["server.py", json.dumps(tools)])
    return MCPAdapt(server, SmolAgentsAdapter())


named = tool("named", **argument(type="integer"), required=["n"])
for what, empty, stated in [
    ("two tools, one with properties {}", tool("empty", properties={}), "named, empty"),
    ("two tools, one without properties", tool("empty", additionalProperties=False), "KeyError: 'properties'"),
]:
    try:
        with adapt(named, empty) as tools:
            seen = ", ".join(tool.name for tool in tools)
    except KeyError as error:
        seen = f"KeyError: {error}"
    compare(what, seen, stated)

nullable = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
for what, schema, given, stated in [
    ("integer", tool("t", **argument(type="integer"), required=["n"]), {"n": 5}, "type integer, {'n': 5} is taken"),
    ("integer or null", tool("t", **argument(**nullable), required=["n"]), {"n": 5}, "type string, {'n': 5} is refused"),
    ("integer or null", tool("t", **argument(**nullable), required=["n"]), {"n": "5"}, "type string, {'n': '5'} is taken"),
    ("enum of 1 and 2", tool("t", **argument(enum=[1, 2]), required=["n"]), {"n": 1}, "type string, {'n': 1} is refused"),
    ("integer, not required", tool("t", **argument(type="integer")), {}, "type integer, {} is refused"),
]:
    with adapt(schema) as tools:
        kind = tools[0].inputs["n"]["type"]
        try:
            validate_tool_arguments(tools[0], given)
            outcome = "taken"
        except (TypeError, ValueError):
            outcome = "refused"
    compare(what, f"type {kind}, {given} is {outcome}", stated)
sys.exit(changed)
END
venv/bin/python look.py
