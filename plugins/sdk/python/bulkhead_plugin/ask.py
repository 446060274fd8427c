"""Questions: to the user through the client, and to the client's model.

A question waits for its answer without using CPU time, for as long as the host allows. Its key names it to the client
(1 to 64 characters of `[A-Za-z0-9_.-]`); give each question of a tool a key of its own.

A task waits where it stands. A plain call of a client of MCP 2026-07-28 may be **run again from the start** when its
answers come, and gets the earlier answers by key. So ask before you act, with the same keys in the same order each time;
or call `task.detach()` first, which makes the call a task where the client has them.

An `AskError` that nobody catches does the right thing: a client that cannot show the question is told so, everything else
becomes a failed result.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from . import _host, _schema
from .errors import MissingCapability

T = TypeVar("T")


class AskError(Exception):
    """There is no answer."""


class Unsupported(AskError, MissingCapability):
    """The client did not declare that it can show this."""


class Invalid(AskError):
    """The question is malformed, or the answer does not fit the type."""


class Unreachable(AskError):
    """There is no way to reach the client any more, or it did not answer in time."""


class Refused(AskError):
    """The client answered with an error, such as a user who refused the sampling."""


class NotAccepted(AskError):
    """The user declined or closed the form; only from `Answer.accepted`."""


class Cancelled(AskError):
    """The call was cancelled while it waited."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What the user did with a form or a URL."""

    action: Literal["accept", "decline", "cancel"]
    #: What was filled in, with `accept` of a form.
    content: T | None

    def accepted(self) -> T:
        """The content, where a tool can only go on with one; else `NotAccepted`."""
        if self.action != "accept":
            raise NotAccepted("the user did not accept")
        return cast(T, self.content)


@dataclass(frozen=True)
class Completion:
    """What the client's model said."""

    #: The text blocks, joined.
    text: str
    model: str
    #: Why it stopped, such as `endTurn` or `maxTokens`.
    stop_reason: str | None
    #: The whole result object.
    result: dict[str, Any]


@dataclass(frozen=True)
class Root:
    """One root folder of the client."""

    uri: str
    name: str | None


@dataclass(frozen=True)
class Form(Generic[T]):
    """A form whose fields are those of the dataclass: strings, numbers, booleans, `Literal`s and enums. Never ask for a
    password or any other secret this way."""

    type: type[T]
    key: str
    message: str

    def _request(self) -> _host.Request:
        return _host.Request(self.key, "form", self.message, json.dumps(_schema.of_form(self.type)))

    def _read(self, reply: _host.Reply) -> Answer[T]:
        action = _action(reply)
        return Answer(action, cast(T, _fitting(self.type, reply.value)) if action == "accept" else None)


@dataclass(frozen=True)
class Url:
    """A page to visit, for everything that must not pass through the client: `https:`, without secrets in it. `accept` says
    that the user agreed to go there, not that anything was completed."""

    url: str
    key: str
    message: str

    def _request(self) -> _host.Request:
        return _host.Request(self.key, "url", self.message, self.url)

    def _read(self, reply: _host.Reply) -> Answer[None]:
        return Answer(_action(reply), None)


@dataclass(frozen=True)
class Sampling:
    """A text for the client's model. `parameters` are further members of the params of `sampling/createMessage`."""

    text: str
    key: str
    max_tokens: int
    system: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)

    def _request(self) -> _host.Request:
        message = {"role": "user", "content": {"type": "text", "text": self.text}}
        params: dict[str, Any] = {"messages": [message], "maxTokens": self.max_tokens}
        if self.system is not None:
            params["systemPrompt"] = self.system
        return _host.Request(self.key, "sampling", "", json.dumps({**params, **self.parameters}))

    def _read(self, reply: _host.Reply) -> Completion:
        result = _of(reply, "sampling")
        content = result.get("content")
        blocks = content if isinstance(content, list) else [content or {}]
        text = "".join(block.get("text", "") for block in blocks)
        return Completion(text, result.get("model", ""), result.get("stopReason"), result)


@dataclass(frozen=True)
class Roots:
    """The client's root folders."""

    key: str

    def _request(self) -> _host.Request:
        return _host.Request(self.key, "roots", "", "")

    def _read(self, reply: _host.Reply) -> list[Root]:
        return [Root(uri, name) for uri, name in _of(reply, "roots")]


def form(type: type[T], *, key: str, message: str) -> Answer[T]:
    """Asks the user to fill in a form."""
    return cast("Answer[T]", all(Form(type, key, message))[0])


def url(url: str, *, key: str, message: str) -> Answer[None]:
    """Asks the user to visit a page."""
    return cast("Answer[None]", all(Url(url, key, message))[0])


def sampling(text: str, *, key: str, max_tokens: int, system: str | None = None, **parameters: Any) -> Completion:
    """Asks the client's model."""
    return cast(Completion, all(Sampling(text, key, max_tokens, system, parameters))[0])


def roots(*, key: str) -> list[Root]:
    """Asks for the client's root folders."""
    return cast("list[Root]", all(Roots(key))[0])


def all(*questions: Form[Any] | Url | Sampling | Roots) -> list[Any]:
    """Asks several questions at once, at most 16, and waits for all answers, which come in the order of the questions."""
    replies = _host.current().ask([question._request() for question in questions])
    return [question._read(reply) for question, reply in zip(questions, replies, strict=True)]


def _action(reply: _host.Reply) -> Literal["accept", "decline", "cancel"]:
    match reply.kind:
        case "accept" | "decline" | "cancel":
            return reply.kind
    _of(reply, "elicitation")
    raise AssertionError


def _of(reply: _host.Reply, kind: str) -> Any:
    if reply.kind == "refused":
        raise Refused(f"the client refused: {reply.value}")
    if reply.kind != kind:
        raise Invalid("the answer belongs to another kind of question")
    return reply.value


def _fitting(type: Any, value: Any) -> Any:
    try:
        return _schema.decode(type, value, "")
    except ValueError as error:
        raise Invalid(f"the answer does not fit: {error}") from error
