"""The operator's settings for this plugin: `[[plugin]] config = { … }` in the host's configuration.

Never secrets: those do not enter a guest.
"""

import json
from typing import Any, TypeVar, cast

from . import _host, _schema
from .errors import InternalError

T = TypeVar("T")


def get(key: str, default: T, type: Any = None) -> T:
    """One setting, or the default. It must have the default's type, or the one that `type` says (`list[str]`, a dataclass).

    A setting of another type is the operator's mistake: the error goes to the log and names the key.
    """
    text = _host.current().setting(key)
    if text is None:
        return default
    wanted = type if type is not None else default.__class__
    try:
        value = json.loads(text)
        return cast(T, value if wanted is None.__class__ else _schema.decode(wanted, value, ""))
    except ValueError as error:
        raise InternalError(f"config.{key}: {error}") from error


def all() -> dict[str, Any]:
    """All settings, as JSON values."""
    return {key: json.loads(text) for key, text in _host.current().settings().items()}
