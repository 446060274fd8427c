"""A tool as a function with a name, and the list of all of them."""

import dataclasses
import inspect
import json
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Callable, Literal, ParamSpec, TypeVar, get_type_hints, overload

from . import _output, _schema, ask, task
from .errors import CallError, NotFound, ToolError, described

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Icon:
    """An image that a client may show beside a name. `src` is an `https:` or `data:` URI."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] = ()
    theme: Literal["light", "dark"] | None = None


@dataclass(frozen=True)
class Tool:
    """One tool, as the host hears of it."""

    name: str
    title: str | None
    description: str
    function: Callable[..., Any]
    fields: _schema.Fields
    #: The hint of what the function returns, or `Any`.
    returns: Any
    input_schema: _schema.Json
    output_schema: _schema.Json | None
    #: Whether what the function returns stands in an object, as `{"result": …}`.
    wraps_result: bool
    task: Literal["forbidden", "optional", "required"]
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    icons: tuple[Icon, ...]
    meta: dict[str, Any]


#: Every tool of the plugin, in the order of their definition.
TOOLS: dict[str, Tool] = {}


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    task: Literal["forbidden", "optional", "required"] = "forbidden",
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    icons: tuple[Icon, ...] = (),
    meta: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a tool; the function itself stays as it is.

    Parameters become the input schema, the docstring the description: say what the tool does and what comes back.
    `task="optional"` says that a call may become a task: for everything that may take longer than a second. The hints
    are for clients: `read_only` (changes nothing), `destructive` (may delete or overwrite), `idempotent` (a second call
    with the same arguments changes nothing more; only then may the host run a call again after a restart), `open_world`
    (deals with an open set of outside things, as a web search does).
    """
    if function is not None:
        return _register(function)
    return lambda function: _register(function, **options)


def _register(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    name = options.pop("name", None) or function.__name__
    description = options.pop("description", None) or inspect.getdoc(function)
    if not description:
        raise TypeError(f"tool {name}: write a docstring, it is what a model reads to decide whether to call the tool")
    if name in TOOLS:
        raise TypeError(f"tool {name}: there is a tool of this name already")
    _schema.check_returns_once(f"tool {name}", function)
    hints = get_type_hints(function, include_extras=True)
    try:
        fields = _fields(function, hints)
        tool = Tool(
            name=name,
            title=options.pop("title", None),
            description=description,
            function=function,
            fields=fields,
            returns=hints.get("return", Any),
            input_schema=_schema.of_object(fields),
            output_schema=_output_schema(hints.get("return")),
            wraps_result=_wraps_result(hints.get("return")),
            task=options.pop("task", "forbidden"),
            icons=tuple(options.pop("icons", ())),
            meta=options.pop("meta", None) or {},
            **{hint: options.pop(hint, None) for hint in ("read_only", "destructive", "idempotent", "open_world")},
        )
    except TypeError as problem:
        raise TypeError(f"tool {name}: {problem}") from None
    if options:
        raise TypeError(f"tool {name}: there is no option {', '.join(options)}")
    TOOLS[name] = tool
    return function


def _fields(function: Callable[..., Any], hints: dict[str, Any]) -> _schema.Fields:
    fields: _schema.Fields = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"parameter {name} cannot be given by name")
        if name not in hints:
            raise TypeError(f"parameter {name} has no type hint")
        default = dataclasses.MISSING if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default)
    return fields


def _output_schema(hint: Any) -> _schema.Json | None:
    """Structured content is an object in every revision of MCP, and only hints that say what is in it are worth a schema."""
    if hint in _WITHOUT_SCHEMA:
        return None
    schema = _schema.of(hint)
    if _wraps_result(hint):
        return _schema.of_object({"result": (hint, dataclasses.MISSING)})
    return schema if schema.get("type") == "object" else None


_WITHOUT_SCHEMA = (None, str, dict, list, _output.Output, type(None))


def _wraps_result(hint: Any) -> bool:
    """Numbers, truth values and arrays are wrapped. Where a text or an object is possible, it comes as it is."""
    if hint in _WITHOUT_SCHEMA:
        return False
    kinds = _schema.kinds(_schema.of(hint)) - {"null"}
    return bool(kinds) and kinds <= {"integer", "number", "boolean", "array"}


def run(name: str, arguments: str) -> _output.Output:
    """Runs a tool on a JSON object. Whatever it raises becomes a failed result, except a `CallError`."""
    tool = TOOLS.get(name)
    if tool is None:
        raise NotFound(f"there is no tool {name}")
    try:
        given = _schema.decode_object(tool.fields, json.loads(arguments), "")
    except ValueError as problem:
        # The host has checked the schema, so this is what a schema cannot say; the model can still correct it.
        return _output.Output().text(f"these arguments do not fit: {problem}").failed()
    try:
        value = _schema.finished(tool.function(**given))
        if not _schema.is_plausible(tool.returns, value):
            raise TypeError(f"tool {name} returned a value of type {type(value).__name__}, but says that it returns {_schema.shown(tool.returns)}")
        return _output.of(value, wraps=tool.wraps_result)
    except (CallError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, (ToolError, ask.AskError, task.Cancelled)):
            return _output.Output().text(str(error) or type(error).__name__).failed()
        # Nobody meant it: the operator may see where it came from, at debug level. The client reads the text.
        traceback.print_exc(file=sys.stderr)
        return _output.Output().text(described(error)).failed()
