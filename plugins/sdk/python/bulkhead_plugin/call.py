"""What is known about the call that is running."""

from typing import Any, Literal, cast

from . import _host
from .task import LogLevel

ClientFeature = Literal[
    "elicitation-form", "elicitation-url", "sampling", "sampling-tools", "sampling-context", "roots", "tasks"
]


def id() -> str:
    """An id of this call, for logs; unguessable, never shown to anyone else."""
    return cast(str, _host.current().fact("call_id"))


def task_id() -> str | None:
    """The task's id, once the call is a task."""
    return cast("str | None", _host.current().fact("task_id"))


def attempt() -> int:
    """1 for the first run, 2 for the run after a restart of the host, and so on."""
    return cast(int, _host.current().fact("attempt"))


def idempotency_key() -> str:
    """The same for every attempt of the same call: pass it to services that deduplicate."""
    return cast(str, _host.current().fact("idempotency_key"))


def requestor_id() -> str:
    """Who is calling, as a random id that is the same for every call of one requestor; never a name."""
    return cast(str, _host.current().fact("requestor_id"))


def client_supports(feature: ClientFeature) -> bool:
    """Whether the client can do this. Look before asking where the tool can do without."""
    return _host.current().client_supports(feature)


def client_extension(name: str) -> dict[str, Any] | None:
    """What the client says of an extension of MCP, as far as the host knows that extension. `None`: it does not have it."""
    return cast("dict[str, Any] | None", _host.current().client_extension(name))


def client_shows_views() -> bool:
    """Whether the client shows views (MCP Apps). Where it does not, its user sees the text of a result alone."""
    return client_extension("io.modelcontextprotocol/ui") is not None


def wanted_log_level() -> LogLevel | None:
    """The lowest level that the client wants to see; `None`: it wants no logs."""
    return cast("LogLevel | None", _host.current().fact("wanted_log_level"))


def related_tasks() -> list[str]:
    """Ids of earlier tasks of the same requestor that this call continues or replaces."""
    return cast("list[str]", _host.current().fact("related_tasks"))
