"""What a tool gives back."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from . import _schema


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """Hints about a piece of content."""

    audience: list[Literal["user", "assistant"]] = field(default_factory=list)
    #: From 0 (optional) to 1 (effectively required).
    priority: float | None = None
    #: ISO 8601.
    last_modified: str | None = None


@dataclass(frozen=True)
class Block:
    """One content block: `kind` is text, image, audio, resource-link or resource; `fields` are those of the interface."""

    kind: str
    fields: dict[str, Any]
    annotations: Annotations | None = None


class Output:
    """A result that is more than one text or one object. Each method adds to it and gives it back:

    `Output().text("The chart:").image(png, "image/png")`
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.structured_json: str | None = None
        self.is_error = False
        self.meta_entries: dict[str, Any] = {}

    def text(self, text: str, annotations: Annotations | None = None) -> "Output":
        """Adds a text."""
        return self._add(Block("text", {"text": text}, annotations))

    def image(self, data: bytes, mime_type: str, annotations: Annotations | None = None) -> "Output":
        """Adds an image."""
        return self._add(Block("image", {"data": bytes(data), "mime_type": mime_type}, annotations))

    def audio(self, data: bytes, mime_type: str, annotations: Annotations | None = None) -> "Output":
        """Adds a sound."""
        return self._add(Block("audio", {"data": bytes(data), "mime_type": mime_type}, annotations))

    def link(
        self, uri: str, name: str, *, title: str | None = None, description: str | None = None, mime_type: str | None = None
    ) -> "Output":
        """Adds a pointer to a resource that the client may read later."""
        fields = {"uri": uri, "name": name, "title": title, "description": description, "mime_type": mime_type}
        return self._add(Block("resource-link", fields))

    def resource(self, uri: str, body: str | bytes, mime_type: str | None = None) -> "Output":
        """Adds a resource with its contents."""
        return self._add(Block("resource", {"uri": uri, "body": body, "mime_type": mime_type}))

    def structured(self, value: Any) -> "Output":
        """Sets the structured content: a dataclass or a `dict`."""
        self.structured_json = json.dumps(_schema.encode(value), ensure_ascii=False, allow_nan=False)
        return self

    def meta(self, key: str, value: Any) -> "Output":
        """Adds an entry of the result's `_meta`."""
        self.meta_entries[key] = value
        return self

    def failed(self) -> "Output":
        """Says that the tool did not succeed; the content says why."""
        self.is_error = True
        return self

    def _add(self, block: Block) -> "Output":
        self.blocks.append(block)
        return self


def of(value: Any, wraps: bool = False) -> Output:
    """The output of whatever a tool returned; with `wraps`, its structured content has that as `result`."""
    if isinstance(value, Output):
        return value
    if value is None and not wraps:
        return Output()
    if isinstance(value, str):
        return Output().text(value)
    encoded = _schema.encode(value)
    output = Output().text(json.dumps(encoded, ensure_ascii=False, allow_nan=False))
    if wraps:
        return output.structured({"result": encoded})
    return output.structured(encoded) if isinstance(encoded, dict) else output
