"""Reporting, waiting and stopping: what a tool does while it runs.

None of these functions fails because the client cannot show what was said.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from . import _host

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Cancelled(Exception):
    """The call was cancelled; what `checkpoint` raises to leave the tool."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled")


@dataclass(frozen=True)
class Signals:
    """What has happened since the last look."""

    #: The call was cancelled: tidy up and return; the result no longer matters.
    cancelled: bool
    #: `steering` would return at least one message.
    steering_pending: bool


def progress(done: float, total: float | None = None, message: str | None = None) -> None:
    """Reports how far the work is, in any unit that grows: items, bytes, per cent. Report as often as is convenient."""
    _host.current().progress(float(done), None if total is None else float(total), message)


def set_status(message: str) -> None:
    """Says in one line what is happening now; shown with the task's status."""
    _host.current().set_status(message)


def log(level: LogLevel, data: Any, logger: str | None = None) -> None:
    """Sends a log record: a text, or anything that `json` can write."""
    _host.current().log(level, logger, json.dumps(data, ensure_ascii=False))


def detach() -> None:
    """Becomes a task now, where client and tool allow it; else nothing happens."""
    _host.current().detach()


def steering() -> list[str]:
    """Takes the messages that the client sent to the running task, oldest first, each once."""
    return _host.current().steering()


def sleep(seconds: float) -> None:
    """Waits without using CPU time. (`time.sleep` works as well; it keeps the call's running slot.)"""
    _host.current().sleep(max(0, round(seconds * 1000)))


def safe_point() -> Signals:
    """Looks whether the call was cancelled and whether `steering` has something. Cheap; call it in loops.

    A tool that never looks is stopped without warning when its call is cancelled; one that looks has a moment to tidy up.
    """
    return Signals(*_host.current().safe_point())


def checkpoint() -> Signals:
    """Like `safe_point`, for tools that have nothing to tidy up: raises `Cancelled` once the call is."""
    signals = safe_point()
    if signals.cancelled:
        raise Cancelled
    return signals


def save(state: bytes) -> None:
    """Writes down where the work is, in at most 256 KiB, so that a task whose host stops need not begin at its begin.

    If the tool does nothing but compute afterwards, it is called anew, and `restored` gives the state. Save as often as is
    convenient, and after each effect; what comes too soon after another is passed over. In a call that is no task this does
    nothing. Raises `ValueError` if the state is too large.
    """
    _host.current().save(bytes(state))


def restored() -> bytes | None:
    """The state that the tool was called anew with; none: it begins at its begin. Look before you start."""
    return _host.current().restored()


def lists_changed(kind: Literal["tools", "resources", "prompts"]) -> None:
    """Tells the host that a list of this plugin is different now."""
    _host.current().lists_changed(kind)


def resource_updated(uri: str) -> None:
    """Tells the host that a resource's contents are different now."""
    _host.current().resource_updated(uri)
