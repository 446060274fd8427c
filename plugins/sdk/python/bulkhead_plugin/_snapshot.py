"""What a plugin's modules do once, while the component is made of their state.

Every call begins from that state: a clock, a random number or a variable that a module reads when it is imported is the same in every
call. Such reads are seen as they happen, by the interpreter's own hook, and reported; what only a call can ask of the host is refused.
"""

import json
import os
import sys
import time
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

#: Functions in C that read the clock if they are given no time, by their ids: comparing them would ask whatever is called.
_NOW = {id(getattr(time, name)): f"time.{name}" for name in ("localtime", "gmtime", "ctime", "asctime")}

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
    _watch_arguments()


def report(path: str) -> None:
    """Ends it, and writes what was read into a file, as JSON."""
    sys.setprofile(None)
    _forget_arguments()
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"what": what, "file": _late.shown(file), "line": line} for (file, line), what in _found.items()], file)


def _look(frame: FrameType, event: str, argument: Any) -> None:
    what = None
    if event == "c_call":
        what = _read(argument)
    elif event == "call" and frame.f_code in _VARIABLES:
        what = "os.environ"
    elif event == "call" and frame.f_code.co_qualname == "Random.seed":
        what = _seed(frame)
    if what:
        _note(what, frame)


def _note(what: str, frame: FrameType) -> None:
    place = _place(frame)
    if place:
        _found.setdefault(place, what)


def _seed(frame: FrameType) -> str | None:
    """What a generator of random numbers reads where it is given no seed."""
    if frame.f_globals.get("__name__") != "random" or frame.f_locals["a"] is not None:
        return None
    is_shared = frame.f_locals["self"] is frame.f_globals.get("_inst")
    return "the seed of random.seed()" if is_shared else "the seed of random.Random()"


if sys.version_info >= (3, 12):

    def _watch_arguments() -> None:
        """The profiler's hook does not say with what a function in C is called; this one knows the first argument."""
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.PROFILER_ID, "bulkhead")
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.CALL, _look_at_argument)
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.CALL)

    def _forget_arguments() -> None:
        sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
        sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)

    def _look_at_argument(code: CodeType, offset: int, function: object, first: object) -> None:
        what = _NOW.get(id(function))
        if what and (first is None or first is sys.monitoring.MISSING):
            _note(what, sys._getframe(1))

else:

    def _watch_arguments() -> None:
        """Components have a newer Python."""

    def _forget_arguments() -> None:
        pass


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
