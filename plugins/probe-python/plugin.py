"""Tests only: attacks, and one tool for each thing that the SDK translates."""

import os
import random
import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from bulkhead_plugin import (
    Annotations,
    CustomError,
    Field,
    InvalidParams,
    Message,
    NotFound,
    Output,
    ask,
    call,
    complete,
    config,
    kv,
    prompt,
    resource,
    task,
    tool,
)


@tool(read_only=True, idempotent=True)
def py_echo(text: str) -> str:
    """Gives back what it gets."""
    return text


@tool(task="optional")
def py_spin() -> str:
    """Loops for ever."""
    while True:
        pass


@tool(task="optional")
def py_grow() -> str:
    """Takes memory for ever."""
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


@tool
def py_recurse() -> str:
    """Calls itself for ever."""

    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    return str(deeper(0))


@tool(task="optional")
def py_tidy() -> str:
    """Waits until it is cancelled, and tidies up."""
    while True:
        task.checkpoint()
        task.sleep(0.02)


@tool
def py_raise(how: Literal["error", "params", "missing", "custom", "exit"]) -> str:
    """Fails in one of the ways that there are."""
    match how:
        case "params":
            raise InvalidParams("not these")
        case "missing":
            raise NotFound("no such thing")
        case "custom":
            raise CustomError(77, "of its own", {"a": [1]})
        case "exit":
            os._exit(3)
    raise ValueError("a mistake")


@tool
def py_outside() -> dict[str, Any]:
    """Looks outside of the sandbox."""
    seen: dict[str, Any] = {"environment": dict(os.environ)}
    for path in ("/etc/passwd", "/", "plugin.py"):
        try:
            seen[path] = os.listdir(path) if path == "/" else open(path).read()
        except OSError as error:
            seen[path] = f"refused: {type(error).__name__}"
    return seen


@dataclass
class Chance:
    """Numbers of the call."""

    number: int
    now_ms: int


@tool
def py_chance() -> Chance:
    """Draws a number and looks at the clock."""
    return Chance(random.SystemRandom().randrange(1 << 62), int(time.time() * 1000))


@tool
def py_blocks() -> Output:
    """One block of each kind."""
    output = Output().text("a text").image(b"\x89PNG", "image/png").audio(b"RIFF", "audio/wav")
    return output.link("file:///a", "a").resource("file:///b", b"\x00\x01").structured({"n": 1}).meta("example.com/k", [1])


@dataclass
class Choice:
    """A form."""

    color: Literal["red", "green"]
    amount: Annotated[int, Field(minimum=1, maximum=9)]
    note: str | None = None


@tool(task="optional")
def py_ask() -> dict[str, Any]:
    """Asks everything that can be asked."""
    form = ask.form(Choice, key="choice", message="Which one?")
    url = ask.url("https://example.com/pay", key="pay", message="Pay there.")
    said = ask.sampling("Say something.", key="words", max_tokens=20, system="Be short.", temperature=0.5)
    roots = ask.roots(key="roots")
    choice = None if form.content is None else [form.content.color, form.content.amount, form.content.note]
    return {"form": form.action, "choice": choice, "url": url.action, "said": said.text, "roots": [r.uri for r in roots]}


@tool
def py_facts() -> dict[str, Any]:
    """What is known about the call."""
    task.log("warning", {"seen": True}, logger="facts")
    return {
        "id": call.id(),
        "task": call.task_id(),
        "attempt": call.attempt(),
        "key": call.idempotency_key(),
        "requestor": call.requestor_id(),
        "sampling": call.client_supports("sampling"),
        "level": call.wanted_log_level(),
        "related": call.related_tasks(),
        "settings": config.all(),
        "delimiter": config.get("delimiter", ","),
    }


@tool
def py_keep(key: str) -> dict[str, Any]:
    """Counts how often it was called with a key, and tries the rest of the store."""
    try:
        count = kv.get_json(key, 0) + 1
        kv.set_json(key, count)
        kv.set(key + "/raw", b"\x00\xff", ttl=3600)
        raw = kv.get(key + "/raw")
        kv.delete(key + "/gone")
        return {"count": count, "raw": list(raw or b""), "keys": kv.keys(key)}
    except kv.KvError as error:
        return {"reason": error.reason, "message": str(error)}


WORDS = ["apple", "apricot", "banana"]


@resource(
    "py-probe://text",
    title="A text",
    mime_type="text/plain",
    size=5,
    annotations=Annotations(audience=["user"], priority=0.5),
)
def text() -> str:
    """Always the same."""
    return "plain"


@resource("py-probe://fruit/{name}/{+rest}")
def fruit(name: str, rest: str) -> dict[str, str] | bytes:
    if name == "none":
        raise NotFound("no such fruit")
    if name == "wrong":
        raise ValueError("the operator's business")
    return b"\x00\xff" if name == "bytes" else {"name": name, "rest": rest}


@complete(fruit, "name")
def fruits(typed: str) -> list[str]:
    return [word for word in WORDS if word.startswith(typed)]


@prompt(name="py_compare", title="Compare")
def compare(first: Annotated[str, "The first word."], second: str = "nothing") -> list[Message]:
    """Compares two words."""
    return [Message("user", f"{first} or {second}?"), Message("assistant", first)]


@complete(compare, "second")
def others(typed: str, decided: dict[str, str]) -> list[str]:
    return [word for word in WORDS if word.startswith(typed) and word != decided.get("first")]
