"""Starts a host by a command, makes a call over HTTP as a client does, and stops the host.

    call.py COMPONENT DATA COMMAND [ARGUMENT...]
    call.py URL

With a URL, the host is one that runs already. COMPONENT is text.wasm and DATA a data directory, both as the command sees them: it may be one that changes its root. Prints nothing
and exits with 0 if the host served the call and ended well.
"""

import json
import signal
import subprocess
import sys
import urllib.request

SAID = "bulkhead: listening on "
TEXT = "packaged"


def post(url, session, message):
    """Sends one message; returns the answer, if it has one, and the session."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if session:
        headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
    body = json.dumps({"jsonrpc": "2.0"} | message).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as response:
        text = response.read().decode()
        session = response.headers.get("Mcp-Session-Id", session)
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            data = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
            text = next(line for line in data if '"id"' in line)
        return (json.loads(text) if text else None), session


def call(url):
    """Opens a session and calls `echo`."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "packages", "version": "1"}}
    answer, session = post(url, None, {"id": 1, "method": "initialize", "params": client})
    assert answer["result"]["serverInfo"]["name"] == "bulkhead", answer
    post(url, session, {"method": "notifications/initialized"})
    params = {"name": "echo", "arguments": {"text": TEXT}}
    answer, _ = post(url, session, {"id": 2, "method": "tools/call", "params": params})
    assert answer["result"]["content"][0]["text"] == TEXT, answer


def main():
    if len(sys.argv) == 2:
        return call(sys.argv[1])
    component, data, *command = sys.argv[1:]
    command += ["--plugin", component, "--data", data, "--listen", "127.0.0.1:0"]
    host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = host.stdout.readline()
        assert line.startswith(SAID), f"the host says {line!r}"
        call(line.removeprefix(SAID).strip())
        host.send_signal(signal.SIGTERM)
        assert host.wait(60) == 0, f"the host ends with {host.returncode}"
    finally:
        host.kill()


main()
