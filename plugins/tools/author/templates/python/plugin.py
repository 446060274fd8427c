"""Greets people, and counts down."""

from dataclasses import dataclass
from typing import Annotated

from bulkhead_plugin import Field, task, tool


@tool(read_only=True)
def greet(name: Annotated[str, "Who is greeted."]) -> str:
    """Greets someone by name."""
    return f"Hello, {name}!"


@dataclass
class Counted:
    left: Annotated[int, "Seconds that were left when it ended."]
    messages: Annotated[list[str], "The messages that arrived meanwhile."]


@tool(task="optional", read_only=True)
def countdown(seconds: Annotated[int, "How long it takes.", Field(minimum=1, maximum=3600)]) -> Counted:
    """Counts down. As a task it takes messages: `stop` ends it."""
    messages: list[str] = []
    for left in range(seconds, 0, -1):
        task.progress(seconds - left, seconds, f"{left} s left")
        task.sleep(1)
        task.checkpoint()
        messages += task.steering()
        if "stop" in messages:
            return Counted(left - 1, messages)
    return Counted(0, messages)
