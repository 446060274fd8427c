#!/usr/bin/env bash
# The newest mcpadapt, by which smolagents reads MCP servers, cannot be imported with the Python SDK that pip installs for it.
#
# Surprising: `smolagents[mcp]` asks for mcpadapt, which asks for `mcp>=1.10.1` without an upper end. pip takes mcp 2, which no longer
# has `streamablehttp_client` and the websocket transport. The error names neither the version nor a way out.
# The guess before the run: what `pip install 'smolagents[mcp]'` gives works, or pip finds no versions that go together.
# Who meets it: everybody who follows the guide of smolagents for MCP servers.
# What to do: pip install 'smolagents[mcp]' 'mcp[ws]<2'.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >look.py <<'END'
import sys
from importlib.metadata import requires, version

asks = [line for line in requires("mcpadapt") if line.startswith("mcp")]
print(f"mcpadapt {version('mcpadapt')}, mcp {version('mcp')}; mcpadapt asks for {asks}")
try:
    import mcpadapt.core

    seen = "imported"
except ImportError as error:
    seen = str(error).split(" (")[0]
print(f"seen: {seen}")
if seen != sys.argv[1]:
    print(f"CHANGED: {sys.argv[1]!r} was stated")
    sys.exit(1)
END
echo "expected: pip, dependency resolution: it picks versions that fulfil what each package asks for, so packages say what they need"
changed=0
look() { # MCP STATED
  python3 -m venv --clear venv
  venv/bin/pip install --quiet --quiet --disable-pip-version-check mcpadapt==0.1.19 "$1"
  venv/bin/python look.py "$2" || changed=1
}
look "mcp[ws]==1.30.0" "imported"
look mcp==2.3.0 "cannot import name 'streamablehttp_client' from 'mcp.client.streamable_http'"
exit "$changed"
