"""What a plugin offers beside tools: resources that clients read by URI, prompts, and suggestions for their arguments."""

import inspect
import json
import re
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Literal, NamedTuple, ParamSpec, TypeVar, get_type_hints, overload
from urllib.parse import unquote

from . import _output, _schema, _tool
from ._tool import Icon
from .errors import CallError, InternalError, InvalidParams, NotFound, described

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., list[str] | Awaitable[list[str]]])

#: Resources on one page of the list.
PAGE = 100
#: Suggestions that fit into one answer, as MCP says.
VALUES_MAX = 100
#: The media type by which clients know a view.
VIEW_TYPE = "text/html;profile=mcp-app"
#: What a view may reach, and use.
CSP = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
PERMISSIONS = ("camera", "microphone", "geolocation", "clipboardWrite")


@dataclass(frozen=True)
class Resource:
    """A resource, or a family of them where `pattern` is set, as the host hears of it."""

    uri: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    annotations: _output.Annotations | None
    icons: tuple[Icon, ...]
    meta: dict[str, Any]
    function: Callable[..., Any]
    pattern: re.Pattern[str] | None
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class PromptArgument:
    name: str
    description: str | None
    required: bool


@dataclass(frozen=True)
class Prompt:
    """One prompt, as the host hears of it."""

    name: str
    title: str | None
    description: str
    icons: tuple[Icon, ...]
    meta: dict[str, Any]
    function: Callable[..., Any]
    arguments: tuple[PromptArgument, ...]


@dataclass(frozen=True)
class Message:
    """One message of a prompt. Each block of an `Output` is a message of its own."""

    role: Literal["user", "assistant"]
    content: "str | _output.Output"


#: Resources and families of them by URI or template, prompts by name, in the order of their definition.
RESOURCES: dict[str, Resource] = {}
PROMPTS: dict[str, Prompt] = {}
#: Who suggests values, by kind ("prompt" or "resource"), name or template, and argument.
COMPLETERS: dict[tuple[str, str, str], Callable[..., list[str] | Awaitable[list[str]]]] = {}


def clear() -> None:
    """Forgets everything; for tests."""
    for known in (RESOURCES, PROMPTS, COMPLETERS):
        known.clear()


def resource(
    uri: str,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: _output.Annotations | None = None,
    icons: tuple[Icon, ...] = (),
    meta: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Makes a function the resource of this URI: what it returns is read. The function itself stays as it is.

    `{city}` in the URI makes it a family of resources, whose variables are the function's parameters: `{city}` stands for
    one or more characters without `/`, `?` and `#`, `{+path}` for any. A `str` is text, `bytes` are data, and a dataclass,
    a `dict` or a `list` is JSON. The docstring is the description. `meta` is its `_meta`, in the list and on what is read.

        @resource("weather://{city}/now", mime_type="text/plain")
        def weather(city: str) -> str:
            \"\"\"How the weather is.\"\"\"
            return f"Rain in {city}."
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        if uri in RESOURCES:
            raise TypeError(f"resource {uri}: there is one of this URI already")
        _schema.check_returns_once(f"resource {uri}", function)
        pattern, variables = _pattern(uri)
        parameters = tuple(inspect.signature(function).parameters)
        if set(parameters) != set(variables):
            wanted = ", ".join(variables) or "none"
            raise TypeError(f"resource {uri}: the function's parameters must be the variables of the URI: {wanted}")
        if variables and size is not None:
            raise TypeError(f"resource {uri}: a family of resources has no size")
        RESOURCES[uri] = Resource(
            uri=uri,
            name=name or function.__name__,
            title=title,
            description=description or inspect.getdoc(function),
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            icons=tuple(icons),
            meta=meta or {},
            function=function,
            pattern=pattern if variables else None,
            arguments=variables,
        )
        return function

    return register


def app(
    uri: str,
    html: str | Callable[[], str],
    *,
    name: str,
    title: str | None = None,
    description: str | None = None,
    csp: dict[str, list[str]] | None = None,
    permissions: tuple[str, ...] = (),
    meta: dict[str, Any] | None = None,
) -> None:
    """The view of an MCP App: a page of HTML that clients show in a frame. Its URI begins with `ui://`.

    `csp` has the domains that the page may reach, by `connectDomains` (requests), `resourceDomains` (scripts, styles, images, fonts),
    `frameDomains` and `baseUriDomains`; without it the page reaches nothing. `permissions` are `camera`, `microphone`, `geolocation`
    and `clipboardWrite`. Both are part of what an operator accepts. A tool names its view in its `meta`:

        app("ui://chart/view.html", HTML, name="chart", csp={"connectDomains": ["https://api.example.com"]})

        @tool(meta={"ui": {"resourceUri": "ui://chart/view.html"}})
        def show() -> str: ...
    """
    if not uri.startswith("ui://"):
        raise TypeError(f"app {uri}: the URI of a view begins with ui://")
    reach = _reach(uri, csp or {}, permissions)
    entries = dict(meta or {})
    if reach:
        entries["ui"] = {**entries.get("ui", {}), **reach}

    def view() -> str:
        return html if isinstance(html, str) else html()

    resource(uri, name=name, title=title, description=description, mime_type=VIEW_TYPE, meta=entries)(view)


def _reach(uri: str, csp: dict[str, list[str]], permissions: tuple[str, ...]) -> dict[str, Any]:
    for directive, domains in csp.items():
        if directive not in CSP:
            raise TypeError(f"app {uri}: there is no {directive} in a csp; expected {', '.join(CSP)}")
        if isinstance(domains, str) or not all(isinstance(domain, str) for domain in domains):
            raise TypeError(f"app {uri}: {directive} must be a list of domains")
    for permission in permissions:
        if permission not in PERMISSIONS:
            raise TypeError(f"app {uri}: there is no permission {permission}; expected {', '.join(PERMISSIONS)}")
    reach = {"csp": {key: list(value) for key, value in csp.items()}, "permissions": {key: {} for key in permissions}}
    return {key: value for key, value in reach.items() if value}


@overload
def prompt(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def prompt(
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    icons: tuple[Icon, ...] = (),
    meta: dict[str, Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def prompt(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a prompt that clients offer to their users; the function itself stays as it is.

    Its parameters are texts, and those with a default may be left out; `Annotated[str, "…"]` describes one. It returns what
    the user says (a `str`), or a list of `Message`. The docstring is the description.

        @prompt
        def review(code: Annotated[str, "What is reviewed."], language: str = "Python") -> str:
            \"\"\"Reviews a piece of code.\"\"\"
            return f"Review this {language} code:\\n{code}"
    """
    if function is not None:
        return _register_prompt(function)
    return lambda function: _register_prompt(function, **options)


def _register_prompt(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    name = options.pop("name", None) or function.__name__
    description = options.pop("description", None) or inspect.getdoc(function)
    if not description:
        raise TypeError(f"prompt {name}: write a docstring, it is what users read to choose it")
    if name in PROMPTS:
        raise TypeError(f"prompt {name}: there is a prompt of this name already")
    _schema.check_returns_once(f"prompt {name}", function)
    hints = get_type_hints(function, include_extras=True)
    arguments = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"prompt {name}: parameter {parameter.name} cannot be given by name")
        schema = _schema.of(hints.get(parameter.name, str))
        if schema.get("type") != "string":
            raise TypeError(f"prompt {name}: parameter {parameter.name} is no text, and a prompt has no other arguments")
        required = parameter.default is parameter.empty
        arguments.append(PromptArgument(parameter.name, schema.get("description"), required))
    PROMPTS[name] = Prompt(
        name=name,
        title=options.pop("title", None),
        description=description,
        icons=tuple(options.pop("icons", ())),
        meta=options.pop("meta", None) or {},
        function=function,
        arguments=tuple(arguments),
    )
    if options:
        raise TypeError(f"prompt {name}: there is no option {', '.join(options)}")
    return function


def complete(offer: Callable[..., Any] | str, argument: str) -> Callable[[F], F]:
    """Makes a function suggest values for an argument of a prompt, or for a variable of a family of resources.

    `offer` is the function with `@prompt` or `@resource`, or the prompt's name or the URI template. The function gets what was
    typed so far, and in a second parameter, where it has one, the arguments that are already decided. Best first.

        @complete(review, "language")
        def languages(typed: str) -> list[str]:
            return [name for name in ("Python", "Rust") if name.startswith(typed)]
    """
    for kind, offers in (("prompt", PROMPTS), ("resource", RESOURCES)):
        for key, known in offers.items():
            if offer in (known.function, key):
                names = [getattr(known_argument, "name", known_argument) for known_argument in known.arguments]
                if argument not in names:
                    raise TypeError(f"{kind} {key}: there is no argument {argument} to complete")

                def register(function: F) -> F:
                    _schema.check_returns_once(f"complete {key}", function)
                    COMPLETERS[kind, key, argument] = function
                    return function

                return register
    raise TypeError(f"complete: {getattr(offer, '__name__', offer)} is no prompt and no resource (define it before)")


_EXPRESSION = re.compile(r"\{(\+?)([A-Za-z_]\w*)\}")


def _pattern(template: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """What fits a template, with a group for each variable."""
    if re.search("[{}]", _EXPRESSION.sub("", template)):
        raise TypeError(f"resource {template}: only {{name}} and {{+name}} can stand in a URI template")
    variables = tuple(found[2] for found in _EXPRESSION.finditer(template))
    if len(set(variables)) < len(variables):
        raise TypeError(f"resource {template}: a variable is there twice")
    literal, *others = _EXPRESSION.split(template)
    parts = [re.escape(literal)]
    for crosses, name, literal in zip(others[::3], others[1::3], others[2::3]):
        parts.append(f"(?P<{name}>{'.' if crosses else '[^/?#]'}+?){re.escape(literal)}")
    return re.compile("".join(parts), re.DOTALL), variables


def page(cursor: str | None) -> tuple[list[Resource], str | None]:
    """Resources that are listed, and the cursor of the next page. A cursor is where its page begins."""
    if cursor is not None and not cursor.isdecimal():
        raise InvalidParams("this is no cursor of this list")
    begin = int(cursor or 0)
    listed = [known for known in RESOURCES.values() if known.pattern is None]
    end = begin + PAGE
    return listed[begin:end], str(end) if end < len(listed) else None


class Contents(NamedTuple):
    """What is read of a resource."""

    mime_type: str | None
    body: str | bytes
    meta: dict[str, Any]


def read(uri: str) -> Contents:
    """The contents of a resource."""
    known, given = RESOURCES.get(uri), {}
    if known is None or known.pattern is not None:
        families = ((family, family.pattern.fullmatch(uri)) for family in RESOURCES.values() if family.pattern)
        known, found = next(((family, found) for family, found in families if found), (None, None))
        if known is None or found is None:
            raise NotFound(f"there is no resource {uri}")
        given = {name: unquote(value) for name, value in found.groupdict().items()}
    value = _run(lambda: known.function(**given))
    if isinstance(value, str | bytes | bytearray):
        return Contents(known.mime_type, value if isinstance(value, str) else bytes(value), known.meta)
    text = json.dumps(_schema.encode(value), ensure_ascii=False, allow_nan=False)
    return Contents(known.mime_type or "application/json", text, known.meta)


def fill_in(name: str, arguments: dict[str, str]) -> tuple[str, list[Message]]:
    """The description and the messages of a prompt."""
    known = PROMPTS.get(name)
    if known is None:
        raise NotFound(f"there is no prompt {name}")
    names = [argument.name for argument in known.arguments]
    missing = [argument.name for argument in known.arguments if argument.required and argument.name not in arguments]
    if missing:
        raise InvalidParams(f"the argument {missing[0]} is missing")
    said = _run(lambda: known.function(**{name: value for name, value in arguments.items() if name in names}))
    return known.description, [Message("user", said)] if isinstance(said, str | _output.Output) else list(said)


def suggest(kind: str, key: str, argument: str, typed: str, decided: dict[str, str]) -> tuple[list[str], int]:
    """Values for an argument, and how many there are in all. Nobody who suggests any is no error."""
    if key not in (PROMPTS if kind == "prompt" else RESOURCES):
        raise NotFound(f"there is no {kind} {key}")
    completer = COMPLETERS.get((kind, key, argument))
    if completer is None:
        return [], 0
    wants_decided = len(inspect.signature(completer).parameters) > 1
    values = list(_run(lambda: completer(typed, decided) if wants_decided else completer(typed)))
    return values[:VALUES_MAX], len(values)


def check(exported: set[str]) -> None:
    """What is defined and not exported would be lost without a word, and a plugin without anything is a mistake."""
    if not (_tool.TOOLS or RESOURCES or PROMPTS):
        raise TypeError("the plugin has no tool: write `@tool` above a function of plugin.py, or of a module that it imports")
    for kind, known, name in (
        ("resources", RESOURCES, "resource"),
        ("prompts", PROMPTS, "prompt"),
        ("completions", COMPLETERS, "complete"),
    ):
        if known and kind not in exported:
            raise TypeError(
                f"the plugin has {kind} that the build did not see: write `from bulkhead_plugin import {name}` in the module "
                "that uses it"
            )


def _run(function: Callable[[], Any]) -> Any:
    """These requests have no failed results: whatever is no `CallError` is for the operator's log."""
    try:
        return _schema.finished(function())
    except (CallError, MemoryError):
        raise
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise InternalError(described(error)) from None
