"""Requests of a component, by `wasi:http`."""

# Names of hosts are encoded by what is looked up when it is needed, and nothing can be imported in a call.
import encodings.idna
import encodings.punycode
from typing import Any
from urllib.parse import urlsplit

from componentize_py_types import Err
from wit_world.imports import outgoing_handler, streams
from wit_world.imports import wasi_http_types as wasi

from . import _host, http

#: Bytes that are read at a time.
_CHUNK = 64 * 1024

_METHODS: dict[str, Any] = {
    "GET": wasi.Method_Get,
    "HEAD": wasi.Method_Head,
    "POST": wasi.Method_Post,
    "PUT": wasi.Method_Put,
    "DELETE": wasi.Method_Delete,
    "OPTIONS": wasi.Method_Options,
    "PATCH": wasi.Method_Patch,
}


def send(asked: _host.HttpRequest) -> _host.HttpResponse:
    """Sends a request, and waits for the whole response."""
    request = _request(asked)
    try:
        body = None if asked.body is None else request.body()
        with outgoing_handler.handle(request, _options(asked.timeout)) as coming:
            if body is not None and asked.body is not None:
                _write(body, asked.body)
            with coming.subscribe() as ready:
                ready.block()
            # The outer result is of taking it once, the inner one of the request.
            outcome = _value(_value(coming.get()))
        with outcome as response:
            return _read(response)
    except Err as error:
        raise _error(asked, error.value) from None


def _value(result: Any) -> Any:
    """What a result holds; an error in it is raised."""
    if isinstance(result, Err):
        raise result
    return result.value


def _request(asked: _host.HttpRequest) -> wasi.OutgoingRequest:
    parts = urlsplit(asked.url)
    given = [(name, value.encode("utf-8")) for name, value in asked.headers if name.lower() != "content-length"]
    if asked.body is not None:
        given.append(("content-length", str(len(asked.body)).encode()))
    try:
        request = wasi.OutgoingRequest(wasi.Fields.from_list(given))
    except Err:
        names = ", ".join(name for name, _ in asked.headers)
        raise http.HttpError("invalid", f"one of these headers is no header, or is for the host to say: {names}") from None
    try:
        named = _METHODS.get(asked.method)
        request.set_method(named() if named else wasi.Method_Other(asked.method))
        request.set_scheme(wasi.Scheme_Https() if parts.scheme == "https" else wasi.Scheme_Http())
        request.set_authority(parts.netloc)
        request.set_path_with_query(parts.path + (f"?{parts.query}" if parts.query else ""))
    except Err:
        raise http.HttpError("invalid", f"{asked.method} {asked.url} is no request that the host takes") from None
    return request


def _options(timeout: float | None) -> wasi.RequestOptions | None:
    if timeout is None:
        return None
    options, nanoseconds = wasi.RequestOptions(), max(1, round(timeout * 1e9))
    options.set_connect_timeout(nanoseconds)
    options.set_first_byte_timeout(nanoseconds)
    options.set_between_bytes_timeout(nanoseconds)
    return options


def _write(body: wasi.OutgoingBody, data: bytes) -> None:
    """Sends the body. If the host takes no more of it, the response says why."""
    try:
        with body.write() as stream:
            while data:
                with stream.subscribe() as ready:
                    ready.block()
                room = stream.check_write()
                stream.write(data[:room])
                data = data[room:]
        wasi.OutgoingBody.finish(body, None)
    except Err:
        body.__exit__(None, None, None)


def _read(response: wasi.IncomingResponse) -> _host.HttpResponse:
    with response.headers() as fields:
        headers = [(name, value.decode("latin-1")) for name, value in fields.entries()]
    pieces = []
    with response.consume() as body, body.stream() as stream:
        while True:
            try:
                pieces.append(stream.blocking_read(_CHUNK))
            except Err as error:
                if isinstance(error.value, streams.StreamError_Closed):
                    return _host.HttpResponse(response.status(), headers, b"".join(pieces))
                with error.value.value as failure:
                    raise Err(wasi.http_error_code(failure)) from None


def _error(asked: _host.HttpRequest, code: Any) -> http.HttpError:
    what = f"{asked.method} {http.origin(asked.url)}"
    match code:
        case wasi.ErrorCode_HttpRequestDenied():
            return http.NotGranted(asked.method, asked.url)
        case wasi.ErrorCode_DestinationIpProhibited():
            return http.HttpError("denied", f"{what}: the address of this host is not a public one, and the grant does not name it")
        case wasi.ErrorCode_ConnectionLimitReached():
            return http.LimitReached(f"{what}: too many requests are under way at once")
        case wasi.ErrorCode_HttpRequestBodySize(bytes_max):
            return http.LimitReached(f"{what}: the body has more bytes than the host sends ({bytes_max})")
        case wasi.ErrorCode_HttpResponseBodySize(bytes_max):
            return http.LimitReached(f"{what}: the response has more bytes than the host reads ({bytes_max})")
        case wasi.ErrorCode_HttpResponseHeaderSectionSize(bytes_max):
            return http.LimitReached(f"{what}: the headers of the response have more bytes than the host reads ({bytes_max})")
        case (
            wasi.ErrorCode_ConnectionTimeout()
            | wasi.ErrorCode_ConnectionReadTimeout()
            | wasi.ErrorCode_ConnectionWriteTimeout()
            | wasi.ErrorCode_HttpResponseTimeout()
            | wasi.ErrorCode_DnsTimeout()
        ):
            return http.HttpError("timeout", f"{what}: there was no answer in time")
        case wasi.ErrorCode_DnsError() | wasi.ErrorCode_DestinationNotFound():
            return http.HttpError("unreachable", f"{what}: this name of a host leads nowhere")
        case wasi.ErrorCode_ConnectionRefused() | wasi.ErrorCode_DestinationUnavailable():
            return http.HttpError("unreachable", f"{what}: nobody answers there")
        case None:
            return http.HttpError("failed", f"{what}: the response ended early")
        case _:
            return http.HttpError("failed", f"{what} failed: {_words(code)}")


def _words(code: Any) -> str:
    """`ErrorCode_TlsProtocolError()` as "tls protocol error", with the host's words where there are some, such as "in doubt"."""
    name = type(code).__name__.removeprefix("ErrorCode_")
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    said = getattr(code, "value", None)
    return f"{words}: {said}" if isinstance(said, str) else words
