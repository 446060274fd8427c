"""The component's side of the border: the real host, and what the host calls.

The modules called `component` alone import the generated bindings (`wit_world`), so they exist in a component only. The module
that the component is made of imports the plugin's own module, which registers its tools, and `Tools` from here; `Resources`,
`Prompts` and `Completions` where the plugin has any.
"""

import json
import sys
from typing import Any, Sequence

from componentize_py_types import Err
from wit_world.exports import Tools as Exported
from wit_world.exports import tools as exported
from wit_world.imports import config, keyvalue, task

from . import _host, _output, _tool, _urllib, ask, errors, http, kv
from .component_types import HAS_HTTP, types

if HAS_HTTP:
    from . import component_http


def _word(name: str) -> str:
    return name.lower().replace("_", "-")


def _constant(name: str) -> str:
    return name.upper().replace("-", "_")


class _Component:
    """The host as the interface describes it."""

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        task.progress(done, total, message)

    def set_status(self, message: str) -> None:
        task.set_status(message)

    def log(self, level: str, logger: str | None, data: str) -> None:
        task.log(task.LogLevel[_constant(level)], logger, data)

    def ask(self, requests: Sequence[_host.Request]) -> list[_host.Reply]:
        try:
            responses = task.ask([task.InputRequest(request.key, _question(request), []) for request in requests])
        except Err as error:
            raise _ask_error(error.value) from None
        return [_reply(response.answer) for response in responses]

    def detach(self) -> None:
        task.detach()

    def steering(self) -> list[str]:
        return task.steering()

    def sleep(self, ms: int) -> None:
        task.sleep(ms)

    def safe_point(self) -> tuple[bool, bool]:
        signals = task.safe_point()
        return task.Signals.CANCELLED in signals, task.Signals.STEERING_PENDING in signals

    def save(self, state: bytes) -> None:
        try:
            task.checkpoint(state)
        except Err as error:
            raise ValueError(error.value) from None

    def restored(self) -> bytes | None:
        return task.restored()

    def lists_changed(self, kind: str) -> None:
        task.lists_changed(task.ListKind[_constant(kind)])

    def resource_updated(self, uri: str) -> None:
        task.resource_updated(uri)

    def fact(self, name: str) -> Any:
        value = getattr(task, name)()
        return _word(value.name) if isinstance(value, task.LogLevel) else value

    def client_supports(self, feature: str) -> bool:
        return task.client_supports(types.ClientFeature[_constant(feature)])

    def client_extension(self, name: str) -> Any:
        value = task.client_extension(name)
        return None if value is None else json.loads(value)

    def settings(self) -> dict[str, str]:
        return dict(config.all())

    def setting(self, key: str) -> str | None:
        return config.get(key)

    def kv_get(self, key: str) -> bytes | None:
        try:
            return keyvalue.get(key)
        except Err as error:
            raise _kv_error(error.value) from None

    def kv_set(self, key: str, value: bytes, ttl_ms: int | None) -> None:
        try:
            keyvalue.set(key, value, ttl_ms)
        except Err as error:
            raise _kv_error(error.value) from None

    def kv_delete(self, key: str) -> None:
        try:
            keyvalue.delete(key)
        except Err as error:
            raise _kv_error(error.value) from None

    def kv_keys(self, prefix: str, cursor: str | None) -> tuple[list[str], str | None]:
        try:
            page = keyvalue.list_keys(prefix, cursor)
        except Err as error:
            raise _kv_error(error.value) from None
        return page.keys, page.next

    def http(self, request: _host.HttpRequest) -> _host.HttpResponse:
        if not HAS_HTTP:
            raise http.NotGranted(request.method, request.url)
        return component_http.send(request)


def _question(request: _host.Request) -> task.Question:
    match request.kind:
        case "form":
            return task.Question_Form(task.FormRequest(request.message, request.payload))
        case "url":
            return task.Question_Url(task.UrlRequest(request.message, request.payload))
        case "sampling":
            return task.Question_Sampling(request.payload)
        case _:
            return task.Question_Roots()


def _reply(answer: task.Answer) -> _host.Reply:
    match answer:
        case task.Answer_Elicitation(given):
            content = None if given.content is None else json.loads(given.content)
            return _host.Reply(_word(given.action.name), content)
        case task.Answer_Sampling(text):
            return _host.Reply("sampling", json.loads(text))
        case task.Answer_Roots(roots):
            return _host.Reply("roots", [(root.uri, root.name) for root in roots])
        case task.Answer_Refused(reason):
            return _host.Reply("refused", reason)
    raise AssertionError(answer)


def _ask_error(error: task.AskError) -> Exception:
    match error:
        case task.AskError_Unsupported(feature):
            return ask.Unsupported(_word(feature.name))
        case task.AskError_Invalid(reason):
            return ask.Invalid(reason)
        case task.AskError_Unreachable(reason):
            return ask.Unreachable(f"the client cannot be asked: {reason}")
        case _:
            return ask.Cancelled("the call was cancelled")


def _kv_error(error: keyvalue.Error) -> kv.KvError:
    match error:
        case keyvalue.Error_Denied(why):
            return kv.KvError("denied", why)
        case keyvalue.Error_Quota(why):
            return kv.KvError("quota", why)
        case keyvalue.Error_TooLarge(why):
            return kv.KvError("too-large", why)
        case keyvalue.Error_Invalid(why):
            return kv.KvError("invalid", why)
        case _:
            return kv.KvError("unavailable", error.value)


class Tools(Exported):
    """What the host calls."""

    def list_tools(self) -> list[exported.Tool]:
        return [_described(tool) for tool in _tool.TOOLS.values()]

    def call_tool(self, name: str, arguments: str) -> exported.ToolOutput:
        try:
            output = _tool.run(name, arguments)
        except errors.CallError as error:
            raise Err(call_error(error)) from None
        blocks = [content(block) for block in output.blocks]
        return exported.ToolOutput(blocks, output.structured_json, output.is_error, meta(output.meta_entries))


def _described(tool: _tool.Tool) -> exported.Tool:
    hints = (tool.read_only, tool.destructive, tool.idempotent, tool.open_world)
    said = any(hint is not None for hint in hints)
    return exported.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=json.dumps(tool.input_schema, ensure_ascii=False),
        output_schema=None if tool.output_schema is None else json.dumps(tool.output_schema, ensure_ascii=False),
        annotations=exported.ToolAnnotations(None, *hints) if said else None,
        task_support=exported.TaskSupport[_constant(tool.task)],
        icons=icons(tool.icons),
        meta=meta(tool.meta),
    )


def call_error(error: errors.CallError) -> types.CallError:
    match error:
        case errors.InvalidParams():
            return types.CallError_InvalidParams(str(error))
        case errors.NotFound():
            return types.CallError_NotFound(str(error))
        case errors.MissingCapability():
            return types.CallError_MissingCapability(types.ClientFeature[_constant(error.feature)])
        case errors.CustomError():
            data = None if error.data is None else json.dumps(error.data)
            return types.CallError_Custom(types.CustomError(error.code, str(error), data, []))
        case _:
            return types.CallError_Internal(str(error))


def annotations(said: _output.Annotations | None) -> types.Annotations | None:
    if said is None:
        return None
    audience = [types.Role[_constant(role)] for role in said.audience]
    return types.Annotations(audience, said.priority, said.last_modified)


def icons(known: Sequence[_tool.Icon]) -> list[types.Icon]:
    return [types.Icon(icon.src, icon.mime_type, list(icon.sizes), icon.theme) for icon in known]


def content(block: _output.Block) -> types.Content:
    fields, notes = block.fields, annotations(block.annotations)
    match block.kind:
        case "text":
            return types.Content_Text(types.TextContent(fields["text"], notes, []))
        case "image":
            return types.Content_Image(types.MediaContent(fields["data"], fields["mime_type"], notes, []))
        case "audio":
            return types.Content_Audio(types.MediaContent(fields["data"], fields["mime_type"], notes, []))
        case "resource-link":
            return types.Content_ResourceLink(types.ResourceLink(**fields, size=None, annotations=notes, meta=[]))
        case _:
            body = fields["body"]
            wrapped = types.ResourceBody_Text(body) if isinstance(body, str) else types.ResourceBody_Blob(bytes(body))
            contents = types.ResourceContents(fields["uri"], fields["mime_type"], wrapped, [])
            return types.Content_Resource(types.EmbeddedResource(contents, notes, []))


def meta(entries: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key, json.dumps(value, ensure_ascii=False)) for key, value in entries.items()]


def settle() -> None:
    """What is done once everything is loaded that calls are going to use."""
    _urllib.install()
    if "asyncio" in sys.modules:
        from . import _async

        _async.install()


_host.become(_Component())
