"""Write tools for Bulkhead, the WebAssembly plugin host for MCP.

A plugin is a module with functions, and each function with `@tool` is a tool. Its type hints say what clients may send
and what they get back; its docstring is what a model reads to decide whether to call it:

    from typing import Annotated
    from bulkhead_plugin import tool

    @tool(read_only=True)
    def greet(name: Annotated[str, "Who is greeted."]) -> str:
        \"\"\"Greets someone by name.\"\"\"
        return f"Hello, {name}!"

`bulkhead plugin build` makes a component of it.

What a tool returns decides what the client sees: a `str` is one text block; a dataclass or a `dict` is structured
content (with an output schema, where the hint says what is in it) and the same JSON as text; a number, a `bool` or a list
whose hint says so (`-> int`, `-> list[str]`) is the same in an object, `{"result": …}`; `Output` is anything else, such as
images. A `ToolError` (and any other exception) is a failed result that a model can read and react to; a
`CallError` is a JSON-RPC error.

A function with `@resource` is data that clients read by its URI, one with `@prompt` is a prompt that they offer to their
users, and one with `@complete` suggests values for their arguments. `app` is the view of an MCP App.

`task` reports progress, waits and looks whether to stop; `ask` puts questions to the user or the client's model; `call`
tells what is known about the call; `config` reads the operator's settings; `kv` keeps bytes from one call to the next; `http` asks
web services. `testing.host()` stands in for the host in unit tests.
"""

from . import ask, call, config, http, kv, task, testing
from ._offers import Message, app, complete, prompt, resource
from ._output import Annotations, Output
from ._schema import Field
from ._tool import Icon, tool
from .errors import CallError, CustomError, InternalError, InvalidParams, MissingCapability, NotFound, ToolError

__all__ = [
    "Annotations",
    "CallError",
    "CustomError",
    "Field",
    "Icon",
    "InternalError",
    "InvalidParams",
    "Message",
    "MissingCapability",
    "NotFound",
    "Output",
    "ToolError",
    "app",
    "ask",
    "call",
    "complete",
    "config",
    "http",
    "kv",
    "prompt",
    "resource",
    "task",
    "testing",
    "tool",
]
