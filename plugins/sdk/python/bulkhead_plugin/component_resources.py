"""The component's side of resources. Like `component`, it exists in a component that exports them."""

from componentize_py_types import Err
from wit_world.exports import Resources as Exported
from wit_world.exports import resources as exported

from . import _offers, errors
from .component import annotations, call_error, icons, meta
from .component_types import types


class Resources(Exported):
    """What the host calls."""

    def list_templates(self) -> list[exported.ResourceTemplate]:
        families = (known for known in _offers.RESOURCES.values() if known.pattern is not None)
        return [
            exported.ResourceTemplate(
                uri_template=known.uri,
                name=known.name,
                title=known.title,
                description=known.description,
                mime_type=known.mime_type,
                annotations=annotations(known.annotations),
                icons=icons(known.icons),
                meta=meta(known.meta),
            )
            for known in families
        ]

    def list_resources(self, cursor: str | None) -> exported.ResourcePage:
        try:
            listed, following = _offers.page(cursor)
        except errors.CallError as error:
            raise Err(call_error(error)) from None
        items = [
            exported.ResourceInfo(
                uri=known.uri,
                name=known.name,
                title=known.title,
                description=known.description,
                mime_type=known.mime_type,
                size=known.size,
                annotations=annotations(known.annotations),
                icons=icons(known.icons),
                meta=meta(known.meta),
            )
            for known in listed
        ]
        return exported.ResourcePage(items, following, [])

    def read_resource(self, uri: str) -> list[types.ResourceContents]:
        try:
            mime_type, body, entries = _offers.read(uri)
        except errors.CallError as error:
            raise Err(call_error(error)) from None
        wrapped = types.ResourceBody_Text(body) if isinstance(body, str) else types.ResourceBody_Blob(body)
        return [types.ResourceContents(uri, mime_type, wrapped, meta(entries))]
