"""Why a tool did not succeed, or why a call could not be made at all."""

from typing import Any


class ToolError(Exception):
    """The tool ran and did not succeed. The client gets a failed result (`isError`) with this text."""


class CallError(Exception):
    """The call itself could not be made. The client gets a JSON-RPC error."""


class InvalidParams(CallError):
    """The request is wrong in a way that the schema cannot say."""


class NotFound(CallError):
    """What the request names does not exist."""


class InternalError(CallError):
    """Something broke. The text goes to the operator's log; the client sees a fixed one."""


class MissingCapability(CallError):
    """The call needs something that the client did not declare."""

    def __init__(self, feature: str) -> None:
        super().__init__(f"the client does not support {feature}")
        self.feature = feature


class CustomError(CallError):
    """A JSON-RPC error with a code of your own, outside -32768 to -32000."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def described(error: Exception) -> str:
    """The type of an exception and its text, which alone often says nothing: that of a `KeyError` is the key."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
