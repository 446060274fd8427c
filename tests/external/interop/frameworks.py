"""Frameworks for agents as clients: python frameworks.py langchain|pydantic-ai http URL | stdio COMMAND ARGUMENTS...

LangChain's adapters speak 2025-11-25, Pydantic AI speaks 2026-07-28. Both make tools of their own from what the host lists: a schema
that they cannot read shows here. Prints a line for each check: `ok NAME` or `not ok NAME: why`.
"""

import asyncio
import contextlib
import sys
import traceback
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

FILLED = {"destination": "Lisbon", "travellers": 2, "class": "economy", "confirm": True}


def fill(params: Any) -> dict[str, Any]:
    """What a user would fill in."""
    schema = params.requestedSchema if "requestedSchema" in type(params).model_fields else params.requested_schema
    return {name: FILLED[name] for name in schema["properties"]}


@dataclass
class Answer:
    """What a framework hands to its agent."""

    text: str | None = None
    structured: Any = None
    is_error: bool = False


class Framework(Protocol):
    revision: str

    async def names(self) -> list[str]: ...

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer: ...


class LangChain:
    def __init__(self, revision: str, tools: list[Any]) -> None:
        self.revision = revision
        self.tools = {tool.name: tool for tool in tools}

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, kind: str, where: list[str]) -> AsyncIterator["LangChain"]:
        from langchain_mcp_adapters.callbacks import CallbackContext, Callbacks
        from langchain_mcp_adapters.sessions import create_session
        from langchain_mcp_adapters.tools import load_mcp_tools
        from mcp import types

        async def ask(_mcp: Any, params: Any, _context: Any) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content=fill(params))

        connection = {"transport": "streamable_http", "url": where[0]}
        if kind == "stdio":
            connection = {"transport": "stdio", "command": where[0], "args": where[1:]}
        callbacks = Callbacks(on_elicitation=ask).to_mcp_format(context=CallbackContext(server_name="bulkhead"))
        async with create_session(connection, mcp_callbacks=callbacks) as session:
            initialized = await session.initialize()
            yield cls(initialized.protocolVersion, await load_mcp_tools(session))

    async def names(self) -> list[str]:
        # Reading the arguments is what makes a model's view of a tool.
        return [name for name, tool in self.tools.items() if isinstance(tool.args, dict)]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        call = {"type": "tool_call", "id": "1", "name": name, "args": arguments}
        message = await self.tools[name].ainvoke(call)
        structured = (message.artifact or {}).get("structured_content")
        return Answer(message.content[0]["text"], structured, message.status == "error")


class PydanticAI:
    def __init__(self, toolset: Any) -> None:
        self.toolset = toolset
        self.revision = toolset.client.session.protocol_version

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, kind: str, where: list[str]) -> AsyncIterator["PydanticAI"]:
        from fastmcp.client.elicitation import ElicitResult
        from fastmcp.client.transports import StdioTransport
        from pydantic_ai.mcp import MCPToolset

        async def ask(_message: str, _type: Any, params: Any, _context: Any) -> ElicitResult:
            return ElicitResult(action="accept", content=fill(params))

        target = where[0] if kind == "http" else StdioTransport(command=where[0], args=where[1:])
        # It says of 2026-07-28 that the handler is never called. It is: see the check.
        warnings.filterwarnings("ignore", message="`elicitation_handler` will never be called")
        async with MCPToolset(target, elicitation_handler=ask) as toolset:
            yield cls(toolset)

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> Answer:
        from pydantic_ai import ModelRetry

        try:
            result = await self.toolset.direct_call_tool(name, arguments)
        except ModelRetry as error:
            return Answer(error.message, is_error=True)
        return Answer(result) if isinstance(result, str) else Answer(structured=result)


FRAMEWORKS = {"langchain": (LangChain, "2025-11-25"), "pydantic-ai": (PydanticAI, "2026-07-28")}


async def revision(framework: Framework) -> None:
    assert framework.revision == FRAMEWORKS[sys.argv[1]][1], framework.revision


async def tools_list(framework: Framework) -> None:
    names = await framework.names()
    for name in ("echo", "count_primes", "book_trip", "summarize"):
        assert name in names, name


async def tools_call(framework: Framework) -> None:
    assert (await framework.call("echo", {"text": "hi"})).text == "hi"
    counts = await framework.call("word_count", {"text": "a b c"})
    assert counts.structured["words"] == 3, counts


async def tool_error(framework: Framework) -> None:
    refused = await framework.call("echo", {"text": 7})
    assert refused.is_error and "/text: 7 is not of type" in str(refused.text), refused


async def elicitation(framework: Framework) -> None:
    booked = await framework.call("book_trip", {})
    assert booked.structured["summary"] == "Booked 2 economy seats to Lisbon.", booked


async def long_call(framework: Framework) -> None:
    waited = await framework.call("wait", {"ms": 1300})
    assert waited.structured["waited_ms"] == 1300, waited


CHECKS = [
    ("revision", revision),
    ("tools/list", tools_list),
    ("tools/call", tools_call),
    ("a tool's own error", tool_error),
    ("elicitation inside a plain call", elicitation),
    ("a client that did not declare tasks never gets one", long_call),
]


async def main() -> int:
    name, kind, *where = sys.argv[1:]
    failures = 0
    async with FRAMEWORKS[name][0].connect(kind, where) as framework:
        for check, body in CHECKS:
            try:
                await asyncio.wait_for(body(framework), timeout=90)
                print("ok", check, flush=True)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong is the check's result
                failures += 1
                print(f"not ok {check}: {error!r}".replace("\n", " "), flush=True)
                traceback.print_exc()
    return min(failures, 1)


sys.exit(asyncio.run(main()))
