"""`urllib.request` by way of the host.

Its handler of `http:` opens a socket, and that of `https:` is not there without the module `ssl`. Both get another way to send a
request; everything around it (redirects, errors, data, openers of a program's own) stays as it is.
"""

import io
import sys
from contextlib import contextmanager
from typing import Any, Iterator

from . import _host, http

#: What is for the host to say.
_NOT_SENT = ("host", "connection")


def install() -> None:
    """Leads `urllib.request` through the host, if the program has it."""
    if "urllib.request" in sys.modules:
        _lead()


def _lead() -> list[tuple[type, str, Any]]:
    """Changes the handlers; gives back what they had."""
    import urllib.request

    known = [urllib.request.HTTPHandler, getattr(urllib.request, "HTTPSHandler", None)]
    changes = [(kind, name) for kind in known if kind is not None for name in ("http_open", "https_open")]
    before = [(kind, name, kind.__dict__.get(name)) for kind, name in changes]
    for kind, name in changes:
        setattr(kind, name, _open)
    # Headers of a request with data are added by a method for each scheme.
    if not hasattr(urllib.request.HTTPHandler, "https_request"):
        before.append((urllib.request.HTTPHandler, "https_request", None))
        urllib.request.HTTPHandler.https_request = urllib.request.HTTPHandler.http_request  # type: ignore[attr-defined]
    return before


@contextmanager
def led() -> Iterator[None]:
    """Leads it through the host for the duration of a `with`."""
    before = _lead()
    try:
        yield
    finally:
        for kind, name, method in before:
            if method is None:
                delattr(kind, name)
            else:
                setattr(kind, name, method)


def _open(_handler: Any, request: Any) -> Any:
    """What `http_open` of a handler does."""
    import email.message
    import socket
    import urllib.error
    import urllib.response
    from http.client import HTTPMessage, responses

    headers = {**request.unredirected_hdrs, **request.headers}
    pairs = [(name, str(value)) for name, value in headers.items() if name.lower() not in _NOT_SENT]
    timeout = request.timeout
    if timeout is socket._GLOBAL_DEFAULT_TIMEOUT:  # type: ignore[attr-defined]
        timeout = None
    asked = (request.get_method(), http.checked(request.full_url), pairs, _data(request.data), timeout)
    try:
        answer = http.send(_host.HttpRequest(*asked))
    except http.HttpError as error:
        raise urllib.error.URLError(error) from error
    said: email.message.Message = HTTPMessage()
    for name, value in answer.headers.pairs:
        said[name] = value
    response = urllib.response.addinfourl(io.BytesIO(answer.body), said, request.full_url, answer.status)
    response.msg = response.reason = responses.get(answer.status, "")  # type: ignore[attr-defined]
    return response


def _data(data: Any) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return bytes(data)
    return bytes(data.read()) if hasattr(data, "read") else b"".join(data)
