"""Bytes that outlive a call, under keys of the plugin's own.

What is kept belongs to the plugin's name and to the tenant that calls: every version of the plugin finds it, nobody else
does. The operator grants it (`[plugin.kv]`), with limits. A key has 1 to 256 bytes of UTF-8. Calls run side by side, and
of two that write one key the later one wins: there is no lock.

    from bulkhead_plugin import kv

    def greeted_before(name: str) -> bool:
        before = kv.get(f"greeted/{name}") is not None
        kv.set(f"greeted/{name}", "yes", ttl=86400)
        return before
"""

import json
from typing import Any

from . import _host
from .errors import ToolError


class KvError(ToolError):
    """Nothing was kept or found. `reason` is denied, quota, too-large, invalid or unavailable; a tool that can do without
    goes on when it is denied."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def get(key: str) -> bytes | None:
    """The value, or none."""
    return _host.current().kv_get(key)


def set(key: str, value: bytes | str, ttl: float | None = None) -> None:
    """Keeps a value in the place of the one before; it is on disk when this returns. With `ttl` it goes away by itself
    after so many seconds."""
    ttl_ms = None if ttl is None else int(ttl * 1000)
    _host.current().kv_set(key, value.encode() if isinstance(value, str) else bytes(value), ttl_ms)


def get_json(key: str, default: Any = None) -> Any:
    """The value as JSON, or the default."""
    value = get(key)
    return default if value is None else json.loads(value)


def set_json(key: str, value: Any, ttl: float | None = None) -> None:
    """Keeps a value as JSON."""
    set(key, json.dumps(value, ensure_ascii=False), ttl)


def delete(key: str) -> None:
    """Forgets a key; one that is not there is fine."""
    _host.current().kv_delete(key)


def keys(prefix: str = "") -> list[str]:
    """Every key that begins with `prefix`, in the order of their bytes."""
    found, cursor = _host.current().kv_keys(prefix, None)
    while cursor is not None:
        more, cursor = _host.current().kv_keys(prefix, cursor)
        found += more
    return found
