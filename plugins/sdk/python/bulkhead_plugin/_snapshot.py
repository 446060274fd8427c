"""What a plugin's modules do once, while the component is made of their state.

Every call begins from that state: a clock, a random number or a variable that a module reads when it is imported is the same in every
call. Such reads are seen as they happen, by the interpreter's own hook, and reported; what only a call can ask of the host is refused.
"""

import json
import os
import sys
from types import CodeType, FrameType
from typing import Any, Callable, cast

from . import _host, _late

#: Functions in C that give something else each time, by the module that they are of.
_READS = {
    "time": frozenset(f"{clock}{unit}" for clock in ("time", "monotonic", "perf_counter", "process_time") for unit in ("", "_ns")),
    "datetime": frozenset(("now", "utcnow", "today")),
    "random": frozenset(("random", "getrandbits")),
    "posix": frozenset(("urandom", "getrandom")),
}
_NAMES = frozenset[str]().union(*_READS.values())

#: Functions in Python that read variables.
_VARIABLES: frozenset[CodeType] = frozenset((type(os.environ).__getitem__.__code__, type(os.environ).__iter__.__code__))

_found: dict[tuple[str, int], str] = {}


class _NoCall:
    """The host while there is no call."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # A `TypeError` is what the SDK says about a plugin, and shown without its name.
        raise TypeError("this asks the host while the plugin is built, where there is no call. Do it inside of the tool")


def watch() -> None:
    """Begins to look, before the plugin is imported."""
    _found.clear()
    _host.become(cast(_host.Host, _NoCall()))
    sys.setprofile(_look)


def report(path: str) -> None:
    """Ends it, and writes what was read into a file, as JSON."""
    sys.setprofile(None)
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"what": what, "file": _late.shown(file), "line": line} for (file, line), what in _found.items()], file)


def _look(frame: FrameType, event: str, argument: Any) -> None:
    what = None
    if event == "c_call":
        what = _read(argument)
    elif event == "call" and frame.f_code in _VARIABLES:
        what = "os.environ"
    place = _place(frame) if what else None
    if what and place:
        _found.setdefault(place, what)


def _read(function: Any) -> str | None:
    """What a function in C reads, if it is one of those."""
    name = function.__name__
    if name not in _NAMES:
        return None
    owner = getattr(function, "__self__", None)
    module = owner.__name__ if type(owner) is type(sys) else _module(owner)
    if name not in _READS.get(module, ()):
        return None
    if module == "random" and owner is not getattr(sys.modules.get("random"), "_inst", None):
        # A generator of the plugin's own has the seed that the plugin gave it.
        return None
    return "os.urandom" if module == "posix" else f"{module}.{name}"


def _module(owner: Any) -> str:
    """Where the type of an object is defined, or the class itself."""
    of = owner if isinstance(owner, type) else type(owner)
    known = (base.__module__ for base in of.__mro__ if base.__module__ in _READS)
    return next(known, "")


def _place(frame: FrameType | None) -> tuple[str, int] | None:
    """Where the plugin or a package does it. What the standard library reads for itself when it is imported is nobody's mistake."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        if _late.is_own(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
