"""An event loop for a component: no threads, no sockets, and waiting is the host's.

One call is one thread, so a loop has nobody to wait for but its own clock. What asks for a thread runs at once.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from . import _host

T = TypeVar("T")


class _Clock:
    """What the loop waits on: in place of sockets, the next point in time."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("the tool awaits something that nothing is left to bring about: the call would never end")
        if timeout > 0:
            begin = self._loop.time()
            _host.current().sleep(max(1, round(timeout * 1000)))
            # The host of a unit test does not wait, and a real one may count a little less.
            self._loop.skip_to(begin + timeout)
        return []


class Loop(asyncio.BaseEventLoop):
    """Runs coroutines until there is nothing left to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped = 0.0
        self._selector = _Clock(self)

    def time(self) -> float:
        return time.monotonic() + self._skipped

    def skip_to(self, when: float) -> None:
        """Moves the clock on."""
        self._skipped += max(0.0, when - self.time())

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end; what it began and did not await is cancelled."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(coroutine)


def install() -> None:
    """Makes this the loop of `asyncio.run`."""
    asyncio.new_event_loop = asyncio.events.new_event_loop = Loop
