"""FastMCP as a client: python fast.py http URL | stdio COMMAND ARGUMENTS...

FastMCP 3 speaks 2025-11-25 and calls tools as tasks; FastMCP 4 speaks 2026-07-28 and leaves tasks to extensions. Prints a line for
each check: `ok NAME` or `not ok NAME: why`.
"""

import asyncio
import sys
import traceback
from typing import Any

import fastmcp
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError

WITH_TASKS = fastmcp.__version__.startswith("3.")
FILLED = {"destination": "Lisbon", "travellers": 2, "class": "economy", "confirm": True}


async def fill(_message: str, _type: Any, params: Any, _context: Any) -> ElicitResult:
    """What a user would fill in."""
    schema = getattr(params, "requestedSchema", None) or params.requested_schema
    return ElicitResult(action="accept", content={name: FILLED[name] for name in schema["properties"]})


async def tools_list(client: Client) -> None:
    names = [tool.name for tool in await client.list_tools()]
    for name in ("echo", "count_primes", "book_trip", "summarize"):
        assert name in names, name


async def tools_call(client: Client) -> None:
    assert (await client.call_tool("echo", {"text": "hi"})).content[0].text == "hi"
    counts = await client.call_tool("word_count", {"text": "a b c"})
    assert counts.structured_content["words"] == 3, counts


async def tool_error(client: Client) -> None:
    try:
        await client.call_tool("echo", {"text": 7})
    except ToolError:
        return
    raise AssertionError("it was not refused")


async def elicitation(client: Client) -> None:
    booked = await client.call_tool("book_trip", {})
    assert booked.structured_content["booked"] is True, booked


async def task(client: Client) -> None:
    made = await client.call_tool("count_primes", {"below": 1000}, task=True)
    result = await asyncio.wait_for(made.result(), 60)
    assert result.structured_content["count"] == 168, result
    assert (await made.status()).status == "completed"
    listed = (await client.list_tasks())["tasks"]
    assert made.task_id in [getattr(entry, "taskId", None) or entry["taskId"] for entry in listed], listed


async def main() -> int:
    kind, where = sys.argv[1], sys.argv[2:]
    target = where[0] if kind == "http" else StdioTransport(command=where[0], args=where[1:])
    checks = [tools_list, tools_call, tool_error, elicitation] + ([task] if WITH_TASKS else [])
    failed = 0
    async with Client(target, elicitation_handler=fill) as client:
        for check in checks:
            try:
                await asyncio.wait_for(check(client), 90)
                print("ok", check.__name__, flush=True)
            except Exception as error:  # noqa: BLE001
                failed += 1
                print("not ok", f"{check.__name__}: {error!r}".replace("\n", " "), flush=True)
                traceback.print_exc()
    return failed


sys.exit(min(asyncio.run(main()), 1))
