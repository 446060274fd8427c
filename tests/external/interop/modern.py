"""The official Python SDK as a client of revision 2026-07-28: python modern.py http URL | stdio COMMAND ARGUMENTS...

Prints a line for each check: `ok NAME` or `not ok NAME: why`. With KILL_HOST, a folder, the checks are those of a host that is killed on
the way: whoever started this kills and starts it while a file `kill` is there, and removes the file.

The SDK leaves the tasks extension to its users; `Tasks` below is one, written against the SDK's extension interface.
"""

import asyncio
import contextlib
import os
import pathlib
import sys
import traceback
from typing import Any, Literal

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.subscriptions import PromptsListChanged
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

VERSION = "2026-07-28"
WIRE = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


class Task(types.Result):
    """A task with what belongs to its status."""

    model_config = WIRE

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None
    # `inputRequests`, `result` and `error` stay among what pydantic does not know: a claim may not name the first.


class Created(Task):
    result_type: Literal["task"]


class Changed(types.NotificationParams):
    model_config = WIRE

    task_id: str
    status: str


class About(types.Request[dict[str, Any], str]):
    """`tasks/get`, `tasks/update` or `tasks/cancel`."""

    name_param = "taskId"


FILLED = {"destination": "Lisbon", "travellers": 2, "class": "economy", "confirm": True, "name": "Ada"}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """What a user would fill in, by the fields of the form."""
    return {"action": "accept", "content": {field: FILLED[field] for field in schema["properties"]}}


class Tasks(ClientExtension):
    """`io.modelcontextprotocol/tasks`: polls what became a task to its end and answers its questions."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.created: list[str] = []
        self.answered: list[str] = []
        self.heard: list[Changed] = []

    def claims(self):
        return (ResultClaim(result_type="task", model=Created, resolve=self.resolve),)

    def notifications(self):
        return (NotificationBinding(method="notifications/tasks", params_type=Changed, handler=self.hear),)

    async def hear(self, changed: Changed) -> None:
        self.heard.append(changed)

    async def resolve(self, created: Created, context: ClaimContext) -> types.CallToolResult:
        self.created.append(created.task_id)
        while True:
            task = await get(context.session, created.task_id)
            if task.status == "completed":
                return types.CallToolResult.model_validate(task.model_extra["result"])
            if task.status == "failed":
                raise MCPError(**task.model_extra["error"])
            if task.status == "cancelled":
                raise asyncio.CancelledError(created.task_id)
            if task.status == "input_required":
                await self.answer(context.session, task)
            await asyncio.sleep(0.05)

    async def answer(self, session, task: Task) -> None:
        asked = task.model_extra["inputRequests"]
        responses = {key: filled(request["params"]["requestedSchema"]) for key, request in asked.items()}
        self.answered += responses
        await about(session, "tasks/update", task.task_id, inputResponses=responses)


async def about(session, method: str, task: str, **more: Any) -> types.EmptyResult:
    return await session.send_request(About(method=method, params={"taskId": task, **more}), types.EmptyResult)


async def get(session, task: str) -> Task:
    return await session.send_request(About(method="tasks/get", params={"taskId": task}), Task)


async def until_status(session, task: str, status: str) -> Task:
    while True:
        now = await get(session, task)
        if now.status == status:
            return now
        assert now.status in ("working", "input_required"), now
        await asyncio.sleep(0.02)


asked: list[str] = []


async def fill(_context, params: types.ElicitRequestParams) -> types.ElicitResult:
    asked.append(params.message)
    return types.ElicitResult.model_validate(filled(params.requested_schema))


async def summarize(_context, _params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="in short")
    return types.CreateMessageResult(role="assistant", model="a-model", content=content)


def server(kind: str, where: list[str]):
    return where[0] if kind == "http" else StdioServerParameters(command=where[0], args=where[1:])


async def refused(code: int, awaitable) -> None:
    try:
        await awaitable
    except MCPError as error:
        assert error.error.code == code, error
        return
    raise AssertionError("it was not refused")


async def kill_host() -> None:
    """Has the host killed with SIGKILL, and comes back when it serves again on the same directory."""
    wish = pathlib.Path(os.environ["KILL_HOST"], "kill")
    wish.touch()
    while wish.exists():
        await asyncio.sleep(0.05)


async def discovery(client, _) -> None:
    assert client.protocol_version == VERSION, client.protocol_version
    assert client.server_capabilities.extensions["io.modelcontextprotocol/tasks"] == {}, client.server_capabilities
    assert client.server_info and client.server_info.name == "bulkhead", client.server_info


async def tools_list(client, _) -> None:
    names = [tool.name for tool in (await client.list_tools()).tools]
    for name in ("echo", "count_primes", "book_trip", "summarize"):
        assert name in names, name


async def tools_call(client, _) -> None:
    result = await client.call_tool("echo", {"text": "hi"})
    assert result.content[0].text == "hi", result
    counts = await client.call_tool("word_count", {"text": "a b c"})
    assert counts.structured_content["words"] == 3, counts


async def tool_error(client, _) -> None:
    assert (await client.call_tool("echo", {"text": 7})).is_error


async def progress(client, _) -> None:
    heard: list[float] = []

    async def hear(progress: float, _total: float | None, _message: str | None) -> None:
        heard.append(progress)

    await client.call_tool("wait", {"ms": 500}, progress_callback=hear)
    assert heard, "nothing was heard"


async def elicitation_in_call(client, _) -> None:
    asked.clear()
    result = await client.call_tool("book_trip", {})
    assert result.structured_content["summary"] == "Booked 2 economy seats to Lisbon.", result
    assert len(asked) == 2, asked


async def sampling(client, _) -> None:
    result = await client.call_tool("summarize", {"text": "many words"})
    assert result.content[0].text == "in short", result


async def offers(client, _) -> None:
    uris = [resource.uri for resource in (await client.list_resources()).resources]
    assert "test://static-text" in uris, uris
    read = await client.read_resource("test://static-text")
    assert "static text resource" in read.contents[0].text, read
    prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "hello", "arg2": "world"})
    assert prompt.messages[0].content.text == "Prompt with arguments: arg1='hello', arg2='world'", prompt


async def tasks_are_the_hosts_decision(client, tasks) -> None:
    tasks.created.clear()
    await client.call_tool("echo", {"text": "hi"})
    assert tasks.created == [], "a fast call is no task"
    result = await client.call_tool("wait", {"ms": 2500})
    assert result.structured_content["waited_ms"] == 2500, result
    assert len(tasks.created) == 1, tasks.created
    over = await get(client.session, tasks.created[0])
    assert over.status == "completed" and over.ttl_ms, over


async def elicitation_in_task(client, tasks) -> None:
    tasks.answered.clear()
    asked.clear()
    result = await client.call_tool("confirm_delete", {"filename": "a.txt"})
    assert result.content[0].text == "Deleted a.txt", result
    assert (tasks.answered, asked) == (["confirm"], []), "asked by the task, not by the call"


async def rounds_then_task(client, tasks) -> None:
    tasks.created.clear()
    result = await client.call_tool("test_tool_with_task", {})
    assert "Ada" in result.content[0].text, result
    assert len(tasks.created) == 1, tasks.created


async def partial_answers(client, _) -> None:
    created = await client.session.call_tool("multi_input", {}, allow_claimed=True)
    task = await until_status(client.session, created.task_id, "input_required")
    requests = task.model_extra["inputRequests"]
    assert sorted(requests) == ["confirm", "name"], requests
    for key in ("name", "confirm"):
        response = filled(requests[key]["params"]["requestedSchema"])
        await about(client.session, "tasks/update", task.task_id, inputResponses={key: response})
        if key == "name":
            now = await get(client.session, task.task_id)
            assert list(now.model_extra["inputRequests"]) == ["confirm"], now
    over = await until_status(client.session, task.task_id, "completed")
    assert "Ada" in over.model_extra["result"]["content"][0]["text"], over


async def tasks_cancel(client, _) -> None:
    created = await client.session.call_tool("wait", {"ms": 600_000}, allow_claimed=True)
    assert created.result_type == "task" and created.status == "working", created
    await about(client.session, "tasks/cancel", created.task_id)
    await until_status(client.session, created.task_id, "cancelled")
    await about(client.session, "tasks/cancel", created.task_id)


async def outcomes(client, _) -> None:
    assert (await client.call_tool("failing_job", {})).is_error
    try:
        await client.call_tool("protocol_error_job", {})
    except MCPError:
        return
    raise AssertionError("a protocol error fails its task")


async def listen_to_prompts(client, _) -> None:
    # The client in TypeScript changes the list of tools at about the same time: two changes that undo each other are none.
    async with client.listen(prompts_list_changed=True) as subscription:
        assert subscription.honored.prompts_list_changed, subscription.honored
        await client.call_tool("test_trigger_prompt_change", {})
        async for event in subscription:
            assert isinstance(event, PromptsListChanged), event
            break


async def listen_to_tasks(client, tasks) -> None:
    tasks.heard.clear()
    created = await client.session.call_tool("wait", {"ms": 2500}, allow_claimed=True)
    # `Client.listen` knows no `taskIds`; the filter of the request takes them.
    notifications = types.SubscriptionFilter(taskIds=[created.task_id])
    params = types.SubscriptionsListenRequestParams(notifications=notifications)
    request = types.SubscriptionsListenRequest(params=params)
    listening = asyncio.create_task(client.session.send_request(request, types.EmptyResult))
    await until_status(client.session, created.task_id, "completed")
    while not any(changed.status == "completed" for changed in tasks.heard):
        await asyncio.sleep(0.02)
    assert tasks.heard[0].status == "working", "the first notification tells the current state"
    assert {changed.task_id for changed in tasks.heard} == {created.task_id}
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening


async def errors(client, _) -> None:
    await refused(-32602, get(client.session, "f" * 32))
    await refused(-32602, client.call_tool("missing", {}))
    await refused(-32602, client.read_resource("test://nobody"))


async def without_tasks(client, _) -> None:
    """Of a client that did not declare the extension."""
    result = await client.call_tool("wait", {"ms": 1300})
    assert result.structured_content["waited_ms"] == 1300, result
    await refused(-32021, client.call_tool("failing_job", {}))
    await refused(-32021, get(client.session, "f" * 32))


async def killed_host(client, _) -> None:
    """A client sees nothing of a crash but time."""
    created = await client.session.call_tool("multi_input", {}, allow_claimed=True)
    task = await until_status(client.session, created.task_id, "input_required")
    requests = task.model_extra["inputRequests"]
    await kill_host()
    task = await until_status(client.session, created.task_id, "input_required")
    assert task.model_extra["inputRequests"] == requests, task
    name = filled(requests["name"]["params"]["requestedSchema"])
    await about(client.session, "tasks/update", task.task_id, inputResponses={"name": name})
    await kill_host()
    task = await until_status(client.session, created.task_id, "input_required")
    assert task.model_extra["inputRequests"] == {"confirm": requests["confirm"]}, task
    confirm = filled(requests["confirm"]["params"]["requestedSchema"])
    await about(client.session, "tasks/update", task.task_id, inputResponses={"confirm": confirm})
    over = await until_status(client.session, created.task_id, "completed")
    assert "Ada" in over.model_extra["result"]["content"][0]["text"], over


KILLED = [("a task goes on over two kills of its host", killed_host)]

CHECKS = [
    ("discovery", discovery),
    ("tools/list", tools_list),
    ("tools/call", tools_call),
    ("a tool's own error", tool_error),
    ("progress of a plain call", progress),
    ("elicitation inside a plain call, in rounds", elicitation_in_call),
    ("sampling inside a plain call", sampling),
    ("resources and prompts", offers),
    ("a fast call stays plain, a slow one becomes a task", tasks_are_the_hosts_decision),
    ("elicitation inside a task", elicitation_in_task),
    ("elicitation first in rounds, then the task", rounds_then_task),
    ("two questions of a task, answered one after the other", partial_answers),
    ("tasks/cancel", tasks_cancel),
    ("a tool's own error completes a task, a protocol error fails it", outcomes),
    ("listen: a list changes", listen_to_prompts),
    ("listen: a task goes on", listen_to_tasks),
    ("errors have their codes", errors),
]


async def run(checks, client, tasks) -> int:
    failures = 0
    for name, check in checks:
        # Lists change by a file in a folder that is not granted there.
        if "THREE_HOSTS" in os.environ and check is listen_to_prompts:
            continue
        try:
            await asyncio.wait_for(check(client, tasks), timeout=30)
            print(f"ok {name}", flush=True)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is the check's result
            failures += 1
            print(f"not ok {name}: {type(error).__name__} {error}".replace("\n", " "), flush=True)
            traceback.print_exc()
    return failures


async def main() -> int:
    kind, *where = sys.argv[1:]
    callbacks = {"elicitation_callback": fill, "sampling_callback": summarize}
    tasks = Tasks()
    async with Client(server(kind, where), extensions=[tasks], **callbacks) as client:
        if "KILL_HOST" in os.environ:
            return 1 if await run(KILLED, client, tasks) else 0
        failures = await run(CHECKS, client, tasks)
    async with Client(server(kind, where), mode=VERSION, **callbacks) as client:
        failures += await run([("a client that did not declare tasks never gets one", without_tasks)], client, None)
    return 1 if failures else 0


sys.exit(asyncio.run(main()))
