"""The official Python SDK as a client: python client.py http URL | stdio COMMAND ARGUMENTS...

Prints a line for each check: `ok NAME` or `not ok NAME: why`. With KILL_HOST, a folder, the checks are those of a host that is killed on
the way: whoever started this kills and starts it while a file `kill` is there, and removes the file.
"""

import asyncio
import contextlib
import os
import pathlib
import sys
import traceback

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError


async def kill_host() -> None:
    """Has the host killed with SIGKILL, and comes back when it serves again on the same directory.

    It gives a request that is on its way time to open its stream: this SDK ends its whole transport when a request fails without a
    response, whoever serves it.
    """
    await asyncio.sleep(0.5)
    wish = pathlib.Path(os.environ["KILL_HOST"], "kill")
    wish.touch()
    while wish.exists():
        await asyncio.sleep(0.05)


kills = 0


async def fill(_context, params: types.ElicitRequestParams) -> types.ElicitResult:
    """What a user would fill in. With KILL_HOST the host is killed twice while the user does."""
    global kills
    if "KILL_HOST" in os.environ and kills < 2:
        kills += 1
        await kill_host()
    if "destination" in params.requestedSchema["properties"]:
        return types.ElicitResult(action="accept", content={"destination": "Lisbon", "travellers": 2})
    return types.ElicitResult(action="accept", content={"class": "economy", "confirm": True})


async def summarize(_context, _params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="in short")
    return types.CreateMessageResult(role="assistant", model="a-model", content=content)


@contextlib.asynccontextmanager
async def connect(kind: str, where: list[str]):
    if kind == "http":
        streams = streamable_http_client(where[0])
    else:
        streams = stdio_client(StdioServerParameters(command=where[0], args=where[1:]))
    async with streams as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=fill, sampling_callback=summarize) as session:
            yield session


async def until_over(session: ClientSession, task: str) -> types.GetTaskResult:
    while True:
        now = await session.experimental.get_task(task)
        if now.status in ("completed", "failed", "cancelled"):
            return now
        await asyncio.sleep(0.05)


async def refused(code: int, awaitable) -> None:
    try:
        await awaitable
    except McpError as error:
        assert error.error.code == code, error
        return
    raise AssertionError("it was not refused")


async def capabilities(session: ClientSession, initialized: types.InitializeResult) -> None:
    assert initialized.protocolVersion == "2025-11-25", initialized
    tasks = initialized.capabilities.tasks
    assert tasks and tasks.list is not None and tasks.cancel is not None, tasks


async def tools_list(session, _) -> None:
    tools = (await session.list_tools()).tools
    names = [tool.name for tool in tools]
    for name in ("echo", "count_primes", "book_trip", "summarize"):
        assert name in names, name


async def tools_call(session, _) -> None:
    result = await session.call_tool("echo", {"text": "hi"})
    assert result.content[0].text == "hi", result
    counts = await session.call_tool("word_count", {"text": "a b c"})
    assert counts.structuredContent["words"] == 3, counts


async def tool_error(session, _) -> None:
    assert (await session.call_tool("echo", {"text": 7})).isError


async def progress(session, _) -> None:
    heard: list[float] = []

    async def hear(progress: float, _total: float | None, _message: str | None) -> None:
        heard.append(progress)

    await session.call_tool("wait", {"ms": 500}, progress_callback=hear)
    assert heard, "nothing was heard"


async def task(session, _) -> None:
    created = await session.experimental.call_tool_as_task("count_primes", {"below": 1000})
    assert created.task.status == "working", created
    now = await until_over(session, created.task.taskId)
    assert now.status == "completed", now
    result = await session.experimental.get_task_result(created.task.taskId, types.CallToolResult)
    assert result.structuredContent["count"] == 168, result


async def listed(session: ClientSession) -> list[str]:
    """The ids of all tasks."""
    ids, cursor = [], None
    while True:
        page = await session.experimental.list_tasks(cursor)
        ids += [task.taskId for task in page.tasks]
        cursor = page.nextCursor
        if cursor is None:
            return ids


async def tasks_list(session, _) -> None:
    created = await session.experimental.call_tool_as_task("count_primes", {"below": 10})
    assert created.task.taskId in await listed(session)


async def tasks_of_another_design(session, _) -> None:
    """Tasks that a client made the way of SEP-1686, read as tasks of this revision."""
    name = f"python {os.getpid()}"

    def call(what: str, tool: str, arguments: dict):
        wish = {"modelcontextprotocol.io/task": {"taskId": f"{what} of {name}", "keepAlive": 60_000}}
        return session.call_tool(tool, arguments, meta=wish)

    await call("count", "count_primes", {"below": 1000})
    waiting = asyncio.create_task(call("wait", "wait", {"ms": 600_000}))
    ids: list[str] = []
    while f"wait of {name}" not in ids:
        ids = await listed(session)
    assert f"count of {name}" in ids
    done = await session.experimental.get_task(f"count of {name}")
    assert done.status == "completed", done
    result = await session.experimental.get_task_result(f"count of {name}", types.CallToolResult)
    assert result.structuredContent["count"] == 168, result
    now = await session.experimental.get_task(f"wait of {name}")
    assert now.status == "working", now
    cancelled = await session.experimental.cancel_task(f"wait of {name}")
    assert cancelled.status == "cancelled", cancelled
    await asyncio.gather(waiting, return_exceptions=True)


async def tasks_cancel(session, _) -> None:
    created = await session.experimental.call_tool_as_task("wait", {"ms": 600_000})
    cancelled = await session.experimental.cancel_task(created.task.taskId)
    assert cancelled.status == "cancelled", cancelled
    await refused(-32602, session.experimental.cancel_task(created.task.taskId))


async def elicitation_in_task(session, _) -> None:
    created = await session.experimental.call_tool_as_task("book_trip", {})
    async for now in session.experimental.poll_task(created.task.taskId):
        if now.status == "input_required":
            break
    result = await session.experimental.get_task_result(created.task.taskId, types.CallToolResult)
    assert result.structuredContent["summary"] == "Booked 2 economy seats to Lisbon.", result


async def elicitation_in_call(session, _) -> None:
    result = await session.call_tool("book_trip", {})
    assert result.structuredContent["booked"], result


async def sampling(session, _) -> None:
    result = await session.call_tool("summarize", {"text": "many words"})
    assert result.content[0].text == "in short", result


async def errors(session, _) -> None:
    await refused(-32602, session.experimental.get_task("f" * 32))


async def killed_host(session, _) -> None:
    """A client sees nothing of a crash but time."""
    created = await session.experimental.call_tool_as_task("book_trip", {})
    result = None
    while result is None:
        # The stream of a host that is gone brings nothing any more.
        with contextlib.suppress(McpError, asyncio.TimeoutError):
            asked = session.experimental.get_task_result(created.task.taskId, types.CallToolResult)
            result = await asyncio.wait_for(asked, timeout=10)
    assert kills == 2, kills
    assert result.structuredContent["summary"] == "Booked 2 economy seats to Lisbon.", result


KILLED = [("a task goes on over two kills of its host", killed_host)]

CHECKS = [
    ("capabilities", capabilities),
    ("tools/list", tools_list),
    ("tools/call", tools_call),
    ("a tool's own error", tool_error),
    ("progress of a plain call", progress),
    ("a task, created, polled and fetched", task),
    ("tasks/list over pages", tasks_list),
    ("tasks of SEP-1686", tasks_of_another_design),
    ("tasks/cancel", tasks_cancel),
    ("elicitation inside a task", elicitation_in_task),
    ("elicitation inside a plain call", elicitation_in_call),
    ("sampling", sampling),
    ("errors have their codes", errors),
]


async def main() -> int:
    failures = 0
    async with connect(sys.argv[1], sys.argv[2:]) as session:
        initialized = await session.initialize()
        for name, check in KILLED if "KILL_HOST" in os.environ else CHECKS:
            try:
                await asyncio.wait_for(check(session, initialized), timeout=120)
                print(f"ok {name}", flush=True)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong is the check's result
                failures += 1
                print(f"not ok {name}: {type(error).__name__} {error}".replace("\n", " "), flush=True)
                traceback.print_exc()
    return 1 if failures else 0


sys.exit(asyncio.run(main()))
