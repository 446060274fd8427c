"""The types of the interface, and whether the component reaches web services: only one whose manifest asks for that imports
`wasi:http`, whose types have the same name. The bindings tell the two apart by longer names then."""

try:
    from wit_world.imports import bulkhead_plugin_types as types

    HAS_HTTP = True
except ImportError:
    from wit_world.imports import types  # type: ignore[attr-defined, no-redef]

    HAS_HTTP = False

__all__ = ["HAS_HTTP", "types"]
