"""A host for unit tests: it answers questions from a script and remembers what the tool said.

    from bulkhead_plugin import testing

    def test_booking():
        with testing.host(answers={"journey": {"city": "Oslo"}}) as host:
            assert book_trip().city == "Oslo"
        assert host.statuses == ["Booking"]
"""

import json
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

from . import _host, _urllib, ask, http, kv


class TestHost:
    """What the tool said (`progress`, `statuses`, `logs`, `asked`, `requests`), and what it is going to hear."""

    __test__ = False

    def __init__(
        self,
        answers: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        steering: Sequence[str] = (),
        features: Sequence[str] | None = None,
        kept: Mapping[str, bytes] | None = None,
        services: Mapping[str, Any] | None = None,
        restored: bytes | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> None:
        self.answers = {key: list(value) if isinstance(value, list) else [value] for key, value in (answers or {}).items()}
        self.config = dict(config or {})
        self.messages = list(steering)
        self.features = features
        self.kept: dict[str, bytes] = dict(kept or {})
        self.services = dict(services or {})
        self.saved_before = restored
        self.saved: bytes | None = None
        self.extensions = dict(extensions or {})
        self.requests: list[_host.HttpRequest] = []
        self.cancelled = False
        self.detached = False
        self.slept_ms = 0
        self.reported: list[tuple[float, float | None, str | None]] = []
        self.statuses: list[str] = []
        self.logs: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, str]] = []

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self.reported.append((done, total, message))

    def set_status(self, message: str) -> None:
        self.statuses.append(message)

    def log(self, level: str, logger: str | None, data: str) -> None:
        self.logs.append((level, json.loads(data)))

    def ask(self, requests: Sequence[_host.Request]) -> list[_host.Reply]:
        return [self._reply(request) for request in requests]

    def _reply(self, request: _host.Request) -> _host.Reply:
        self.asked.append((request.key, request.message or request.payload))
        if not self.client_supports({"form": "elicitation-form", "url": "elicitation-url"}.get(request.kind, request.kind)):
            raise ask.Unsupported(request.kind)
        script = self.answers.get(request.key)
        if not script:
            raise AssertionError(f"the test has no answer for the question {request.key!r}: {request.message}")
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if request.kind in ("form", "url"):
            return _host.Reply(answer, None) if answer in ("decline", "cancel") else _host.Reply("accept", answer)
        if request.kind == "sampling":
            result = {"role": "assistant", "model": "test", "content": {"type": "text", "text": answer}}
            return _host.Reply("sampling", result)
        return _host.Reply("roots", [(uri, None) for uri in answer])

    def detach(self) -> None:
        self.detached = True

    def steering(self) -> list[str]:
        taken, self.messages = self.messages, []
        return taken

    def sleep(self, ms: int) -> None:
        self.slept_ms += ms

    def safe_point(self) -> tuple[bool, bool]:
        return self.cancelled, bool(self.messages)

    def save(self, state: bytes) -> None:
        if len(state) > 256 << 10:
            raise ValueError(f"the state of a checkpoint has {len(state)} bytes; at most {256 << 10} are kept")
        self.saved = state

    def restored(self) -> bytes | None:
        return self.saved_before

    def lists_changed(self, kind: str) -> None:
        pass

    def resource_updated(self, uri: str) -> None:
        pass

    def fact(self, name: str) -> Any:
        facts = {"call_id": "test", "attempt": 1, "idempotency_key": "test", "requestor_id": "test", "related_tasks": []}
        return facts.get(name)

    def client_supports(self, feature: str) -> bool:
        return self.features is None or feature in self.features

    def client_extension(self, name: str) -> Any:
        return self.extensions.get(name)

    def settings(self) -> dict[str, str]:
        return {key: json.dumps(value) for key, value in self.config.items()}

    def setting(self, key: str) -> str | None:
        return self.settings().get(key)

    def kv_get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    def kv_set(self, key: str, value: bytes, ttl_ms: int | None) -> None:
        if not 1 <= len(key.encode()) <= 256:
            raise kv.KvError("invalid", "a key has 1 to 256 bytes")
        self.kept[key] = value

    def kv_delete(self, key: str) -> None:
        self.kept.pop(key, None)

    def kv_keys(self, prefix: str, cursor: str | None) -> tuple[list[str], str | None]:
        return sorted((key for key in self.kept if key.startswith(prefix)), key=str.encode), None

    def http(self, request: _host.HttpRequest) -> _host.HttpResponse:
        self.requests.append(request)
        for key in (f"{request.method} {request.url}", request.url, http.origin(request.url)):
            if key in self.services:
                return _response(self.services[key], request)
        raise http.NotGranted(request.method, request.url)


def _response(answer: Any, request: _host.HttpRequest) -> _host.HttpResponse:
    """What a script of answers means."""
    if callable(answer):
        answer = answer(request)
    match answer:
        case Exception():
            raise answer
        case http.Response():
            return _host.HttpResponse(answer.status, answer.headers.pairs, answer.body)
        case int():
            return _host.HttpResponse(answer, [], b"")
        case bytes() | str():
            body = answer if isinstance(answer, bytes) else answer.encode()
            return _host.HttpResponse(200, [("content-type", "text/plain; charset=utf-8")], body)
        case _:
            return _host.HttpResponse(200, [("content-type", "application/json")], json.dumps(answer).encode())


@contextmanager
def host(
    *,
    answers: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    steering: Sequence[str] = (),
    features: Sequence[str] | None = None,
    kept: Mapping[str, bytes] | None = None,
    services: Mapping[str, Any] | None = None,
    restored: bytes | None = None,
    extensions: Mapping[str, Any] | None = None,
) -> Iterator[TestHost]:
    """A host for the duration of a `with`.

    `answers` is by question key: an object fills in a form, `"decline"` and `"cancel"` do not, a text is what the client's
    model says, an exception is raised; a list holds the answers of a key that is asked more than once (roots: a list with
    one list of URIs). `features` are those that the client supports; all of them unless said. `extensions` are
    what it says of extensions of MCP, by name; none unless said. `kept` is what `kv` finds; nothing expires.
    `restored` is what an earlier run of the tool saved; `saved` of the host has the last state.

    `services` is what `http` and `urllib.request` reach, by `"METHOD URL"`, URL or origin: a text, bytes, a status, an
    `http.Response`, an exception that is raised, a function of the request, or anything else as JSON. What is not there is not
    granted. `requests` of the host has what was sent.
    """
    standing_in = TestHost(answers, config, steering, features, kept, services, restored, extensions)
    before = _host.become(standing_in)
    try:
        with _urllib.led():
            yield standing_in
    finally:
        _host.become(before)
