"""The border to the host, in plain Python values.

Two hosts exist: the real one, which `component` sets when the module is built into a component, and the one of
`testing`, for unit tests. Everything above asks `current()` and knows neither.
"""

from dataclasses import dataclass
from typing import Any, Protocol, Sequence


@dataclass(frozen=True)
class Request:
    """One question. `kind` is form, url, sampling or roots; `message` belongs to the first two."""

    key: str
    kind: str
    message: str
    payload: str


@dataclass(frozen=True)
class Reply:
    """One answer. `kind` is accept, decline or cancel (a form or URL), sampling, roots, or refused."""

    kind: str
    value: Any


@dataclass(frozen=True)
class HttpRequest:
    """A request to a service. The URL is absolute; the timeout is in seconds."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes | None
    timeout: float | None


@dataclass(frozen=True)
class HttpResponse:
    """What the service answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Host(Protocol):
    """What a running tool may do. JSON crosses as text."""

    def progress(self, done: float, total: float | None, message: str | None) -> None: ...
    def set_status(self, message: str) -> None: ...
    def log(self, level: str, logger: str | None, data: str) -> None: ...
    def ask(self, requests: Sequence[Request]) -> list[Reply]: ...
    def detach(self) -> None: ...
    def steering(self) -> list[str]: ...
    def sleep(self, ms: int) -> None: ...
    def safe_point(self) -> tuple[bool, bool]:
        """Whether the call was cancelled, and whether messages wait."""
        ...

    def save(self, state: bytes) -> None: ...
    def restored(self) -> bytes | None: ...
    def lists_changed(self, kind: str) -> None: ...
    def resource_updated(self, uri: str) -> None: ...
    def fact(self, name: str) -> Any:
        """One of the facts in `call`."""
        ...

    def client_supports(self, feature: str) -> bool: ...
    def client_extension(self, name: str) -> Any: ...
    def settings(self) -> dict[str, str]: ...
    def setting(self, key: str) -> str | None: ...
    def kv_get(self, key: str) -> bytes | None: ...
    def kv_set(self, key: str, value: bytes, ttl_ms: int | None) -> None: ...
    def kv_delete(self, key: str) -> None: ...
    def kv_keys(self, prefix: str, cursor: str | None) -> tuple[list[str], str | None]: ...
    def http(self, request: HttpRequest) -> HttpResponse: ...


_current: Host | None = None


def current() -> Host:
    """The host of the running call."""
    if _current is None:
        raise RuntimeError("there is no host here: wrap the test in `with bulkhead_plugin.testing.host():`")
    return _current


def become(host: Host | None) -> Host | None:
    """Makes this the host; gives back the one before."""
    global _current
    before, _current = _current, host
    return before
