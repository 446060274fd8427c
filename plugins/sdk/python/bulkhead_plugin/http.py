"""Requests to web services, through the host.

The manifest asks for the services (`[grants] http = ["https://api.example.com"]`), and the operator grants them. Everything else
is refused before a connection is made. The host does not follow redirects: they are responses like any other.

    from bulkhead_plugin import http

    def rate(currency: str) -> float:
        response = http.get(f"https://api.example.com/rates/{currency}", timeout=10)
        response.raise_for_status()
        return response.json()["rate"]

`urllib.request` goes the same way, and follows redirects by itself. Sockets are not there.
"""

import json as _json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

from . import _host
from .errors import ToolError


class HttpError(ToolError):
    """There is no response. `reason` is denied, limit, invalid, timeout, unreachable or failed; a response with a status that
    says no is none of these."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NotGranted(HttpError):
    """The operator has not granted the request. `grant` is the origin that would have to be granted."""

    def __init__(self, method: str, url: str) -> None:
        self.grant = origin(url)
        # The host knows which side withholds it, and says so in the result of a call that fails.
        super().__init__("denied", f"{method} {self.grant} is not granted to this plugin")


class LimitReached(HttpError):
    """The host ended the request at one of its limits: too many at once, or too many bytes."""

    def __init__(self, message: str) -> None:
        super().__init__("limit", message)


class Headers(Mapping[str, str]):
    """The headers of a response. Names are the same in upper and lower case; what is there several times is joined with a comma."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        #: As they came, in their order.
        self.pairs = pairs

    def __getitem__(self, name: str) -> str:
        found = [value for key, value in self.pairs if key.lower() == name.lower()]
        if not found:
            raise KeyError(name)
        return ", ".join(found)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key.lower() for key, _ in self.pairs))

    def __len__(self) -> int:
        return len({key.lower() for key, _ in self.pairs})

    def __repr__(self) -> str:
        return f"Headers({self.pairs!r})"


@dataclass(frozen=True)
class Response:
    """What a service answered."""

    status: int
    headers: Headers
    body: bytes
    #: What was asked for.
    url: str = ""

    @property
    def ok(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """The body as text, in the encoding that the response names, or UTF-8. What cannot be read is replaced."""
        named = [part.strip() for part in self.headers.get("content-type", "").split(";")]
        charset = next((part[8:].strip('"') for part in named if part.lower().startswith("charset=")), "utf-8")
        try:
            return self.body.decode(charset, "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON; a `ToolError` if it is none."""
        try:
            return _json.loads(self.body)
        except ValueError as problem:
            raise ToolError(f"{self.url} answered with {self.status} and no JSON: {problem}") from None

    def raise_for_status(self) -> "Response":
        """This response, or a `ToolError` if its status says that the request failed."""
        if self.status >= 400:
            raise ToolError(f"{self.url} answered with {self.status}{_phrase(self.status)}")
        return self


def get(url: str, *, headers: Mapping[str, str] | None = None, timeout: float | None = None) -> Response:
    """Asks for a URL."""
    return request("GET", url, headers=headers, timeout=timeout)


def post(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | str | None = None,
    json: Any = None,
    timeout: float | None = None,
) -> Response:
    """Sends a body to a URL: `body` as it is, or `json` as JSON."""
    return request("POST", url, headers=headers, body=body, json=json, timeout=timeout)


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | str | None = None,
    json: Any = None,
    timeout: float | None = None,
) -> Response:
    """Sends a request and reads the whole response. `timeout` is in seconds, for connecting, for the first byte and between two
    pieces of the body; the host has limits of its own. Whatever ends without a response raises an `HttpError`."""
    if body is not None and json is not None:
        raise TypeError("http: `body` and `json` exclude each other")
    pairs = [(name, str(value)) for name, value in (headers or {}).items()]
    given = {name.lower() for name, _ in pairs}
    if json is not None:
        body = _json.dumps(json, ensure_ascii=False, allow_nan=False)
        pairs += [] if "content-type" in given else [("content-type", "application/json")]
    pairs += [] if "user-agent" in given else [("user-agent", "bulkhead-plugin")]
    sent = body.encode() if isinstance(body, str) else body
    return send(_host.HttpRequest(method.upper(), checked(url), pairs, sent, timeout))


def send(asked: _host.HttpRequest) -> Response:
    """What everything above ends in."""
    answer = _host.current().http(asked)
    return Response(answer.status, Headers(answer.headers), answer.body, asked.url)


def checked(url: str) -> str:
    """The URL without its fragment and with everything escaped that has to be; an `HttpError` for one that cannot be asked for."""
    try:
        parts = urlsplit(url)
        parts.port  # Read for its error alone.
        host = parts.hostname
    except ValueError as problem:
        raise HttpError("invalid", f"{url!r} is no URL: {problem}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise HttpError("invalid", f"{url!r} is no URL that begins with https:// or http:// and names a host")
    if "@" in parts.netloc:
        raise HttpError("invalid", f"the URL for {host} must not hold a user name or password: send the header `authorization`")
    name = parts.netloc if parts.netloc.isascii() else _ascii_name(parts.netloc)
    kept = "%/:=&?~#+!$,;'@()*[]"
    path, query = quote(parts.path or "/", safe=kept), quote(parts.query, safe=kept)
    return f"{parts.scheme}://{name}{path}" + (f"?{query}" if query else "")


def _ascii_name(netloc: str) -> str:
    try:
        return netloc.encode("idna").decode("ascii")
    except (UnicodeError, LookupError) as problem:
        raise HttpError("invalid", f"{netloc!r} is no name of a host: {problem}") from None


def origin(url: str) -> str:
    """Scheme, host and port of a URL, as grants are written."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""
