#!/usr/bin/env bash
# A FastMCP proxy lists resource templates that cannot be read through it, and asks its source for other URIs than its client named.
#
# Surprising: the proxy has the URI that is to be read, and a source that understands it. It matches the URI with the template by rules
# of its own, though, and makes a new URI of what it found. `{+path}`, `{/part*}` and `{&page}` match nothing: "Resource not found", from
# the proxy, never from the source. `{from,to}` and `{;v}` match, and reach the source percent-encoded, as another resource. `{name}` and
# `{?a,b}` work. FastMCP's documentation names them and `{name*}` for its own templates; those of a source are any of RFC 6570.
# The guess before the run: a URI that is read through a proxy arrives as it was sent.
# Who meets it: authors whose templates have paths, `file:///{+path}` above all, when a user puts FastMCP in front of their server.
# What to do: where it matters, write `{name}` and have clients encode slashes. Upstream mended the case of `{?a}` (issue 4250).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check fastmcp==4.2.3 fastmcp-slim==4.2.3 mcp==2.3.0

# A server of 2025-11-25 over stdio with the templates in its argument. What is read is the URI that it is asked for.
cat >server.py <<'END'
import json
import sys

TEMPLATES = [{"uriTemplate": template, "name": template} for template in json.loads(sys.argv[1])]
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params") or {}
    if message["method"] == "initialize":
        about = {"name": "finding", "version": "1"}
        answer["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"resources": {}}, "serverInfo": about}
    elif message["method"] == "resources/templates/list":
        answer["result"] = {"resourceTemplates": TEMPLATES}
    elif message["method"] == "resources/list":
        answer["result"] = {"resources": []}
    elif message["method"] == "resources/read":
        answer["result"] = {"contents": [{"uri": params["uri"], "text": params["uri"]}]}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
END
cat >look.py <<'END'
import asyncio
import json
import logging
import sys
from importlib.metadata import version

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

logging.disable(logging.CRITICAL)

# Each template, a URI that RFC 6570 expands from it, and what the source is asked for.
NOTHING = "nothing, Resource not found"
CASES = [
    ("docs://one/{name}", "docs://one/a%20b", "docs://one/a%20b"),
    ("docs://two{?page,size}", "docs://two?size=2", "docs://two?size=2"),
    ("docs://three/{+path}", "docs://three/a/b", NOTHING),
    ("docs://four{/part*}", "docs://four/a/b", NOTHING),
    ("docs://five?all=1{&page}", "docs://five?all=1&page=2", NOTHING),
    ("docs://six/{from,to}", "docs://six/1,2", "docs://six/1%2C2"),
    ("docs://seven{;v}", "docs://seven;v=1", "docs://seven%3Bv%3D1"),
]


async def read(client, uri):
    try:
        return (await client.read_resource(uri))[0].text
    except Exception as error:
        return f"nothing, {error}".split(":")[0]


async def main():
    source = StdioTransport(sys.executable, ["server.py", json.dumps([template for template, _, _ in CASES])])
    proxy = create_proxy(source, mode="auto")
    changed = 0
    async with Client(proxy) as client:
        listed = [template.uri_template for template in await client.list_resource_templates()]
        for template, uri, stated in CASES:
            seen = await read(client, uri)
            print(f"seen: {template} is {'listed' if template in listed else 'not listed'}, {uri} asks the source for {seen}")
            if seen != stated or template not in listed:
                print(f"CHANGED: {stated} was stated")
                changed = 1
    return changed


print(", ".join(f"{name} {version(name)}" for name in ("fastmcp", "mcp")))
print("expected: MCP 2025-11-25, resource templates: parameterized resources, by URI templates of RFC 6570")
sys.exit(asyncio.run(main()))
END
venv/bin/python look.py 2>log || { code=$?; cat log >&2; exit "$code"; }
