"""JSON Schemas from type hints, and values of those types from JSON.

Both directions know the same types: `str`, `int`, `float`, `bool`, `None`, `Any`, `list`, `dict[str, …]`, `Literal`,
`Enum`, unions, dataclasses, `datetime` and `date`. `Annotated` adds a description (a string) or limits (`Field`).
"""

import dataclasses
import datetime
import enum
import inspect
import types
from dataclasses import dataclass
from typing import Annotated, Any, Callable, Literal, Union, get_args, get_origin, get_type_hints

Json = dict[str, Any]

_PLAIN: dict[Any, Json] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    list: {"type": "array"},
    dict: {"type": "object", "properties": {}},
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """What a type hint cannot say: `Annotated[int, Field(description="How many.", minimum=1, maximum=9)]`."""

    title: str | None = None
    description: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    pattern: str | None = None
    format: str | None = None

    def keywords(self) -> Json:
        """As keywords of JSON Schema."""
        said = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return {_camel(name): value for name, value in said if value is not None}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def of(hint: Any, within: tuple[type, ...] = ()) -> Json:
    """The schema of a type; `TypeError` for one that JSON cannot hold."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None and hint in _PLAIN:
        return dict(_PLAIN[hint])
    if origin is Annotated:
        schema = of(arguments[0], within)
        for note in arguments[1:]:
            schema |= {"description": note} if isinstance(note, str) else note.keywords() if isinstance(note, Field) else {}
        return schema
    if origin is Literal:
        return _choice(list(arguments))
    if origin in (Union, types.UnionType):
        return _union([of(argument, within) for argument in arguments])
    if origin is list:
        return {"type": "array", "items": of(arguments[0], within)}
    if origin is dict and arguments[0] is str:
        return _object({}, of(arguments[1], within))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choice([member.value for member in hint])
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint in within:
            raise TypeError(f"{hint.__name__} contains itself, which a tool's schema cannot say")
        return of_object(dataclass_fields(hint), (*within, hint))
    raise TypeError(f"{hint!r} has no JSON Schema; use str, int, float, bool, list, dict[str, …], Literal, Enum or a dataclass")


#: name → (type hint, default or `dataclasses.MISSING`)
Fields = dict[str, tuple[Any, Any]]


def of_object(fields: Fields, within: tuple[type, ...] = ()) -> Json:
    """The schema of an object that takes these names and no others: a model that misspells one should hear of it."""
    properties: Json = {}
    for name, (hint, default) in fields.items():
        properties[name] = of(hint, within)
        if default is not dataclasses.MISSING and default is not None:
            properties[name]["default"] = encode(default)
    required = [name for name, (_, default) in fields.items() if default is dataclasses.MISSING]
    return _object(properties, False, required)


def _object(properties: Json, others: Json | bool, required: list[str] = []) -> Json:
    """An object always has `properties`, also where it has none: interfaces of models refuse it without."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": others,
    }


def of_form(kind: Any) -> Json:
    """The schema of a form: one flat object with primitive properties. An optional field is one that the user may leave out,
    never one that is `null`."""
    schema = of(kind)
    if schema.get("type") != "object":
        raise TypeError(f"a form is a dataclass, not {kind!r}")
    schema.pop("additionalProperties", None)
    for name, field in schema["properties"].items():
        if isinstance(field.get("type"), list):
            field["type"] = next(word for word in field["type"] if word != "null")
            if "enum" in field:
                field["enum"] = [value for value in field["enum"] if value is not None]
        if field.get("type") not in ("string", "number", "integer", "boolean"):
            raise TypeError(f"field {name!r} of the form {kind.__name__} is no string, number, boolean or choice of strings")
    return schema


def dataclass_fields(kind: Any) -> Fields:
    """The fields of a dataclass, with resolved hints."""
    hints = get_type_hints(kind, include_extras=True)

    def default(field: "dataclasses.Field[Any]") -> Any:
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return field.default

    return {field.name: (hints[field.name], default(field)) for field in dataclasses.fields(kind) if field.init}


def _choice(values: list[Any]) -> Json:
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    return {"enum": values}


def _union(options: list[Json]) -> Json:
    """`anyOf`, or for "this or null" of one plain type the shorter form that every client understands."""
    null = {"type": "null"}
    others = [option for option in options if option != null]
    if len(others) == 1 and len(options) == 2 and isinstance(others[0].get("type"), str):
        [only] = others
        if "enum" in only:
            only["enum"] = [*only["enum"], None]
        return {**only, "type": [only["type"], "null"]}
    return {"anyOf": options}


def kinds(schema: Json) -> set[str]:
    """The types of JSON that what fits the schema may have."""
    if "anyOf" in schema:
        return set().union(*map(kinds, schema["anyOf"]))
    if "type" in schema:
        return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
    if "enum" in schema:
        return set().union(*(kinds(_PLAIN.get(type(value), {})) for value in schema["enum"]))
    return {"string", "number", "boolean", "null", "array", "object"}


def decode(hint: Any, value: Any, path: str) -> Any:
    """A value of that type from JSON; `ValueError` with the place for what does not fit."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return decode(arguments[0], value, path)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _first_that_fits(arguments, value, path)
    if origin is Literal:
        # 2.0 is the integer 2 in JSON Schema; true is not the integer 1.
        for choice in arguments:
            if value == choice and isinstance(value, bool) == isinstance(choice, bool):
                return choice
        raise _wrong(path, f"one of {', '.join(map(repr, arguments))}")
    if origin is list or hint is list:
        if not isinstance(value, list):
            raise _wrong(path, "an array")
        item = arguments[0] if arguments else Any
        return [decode(item, each, f"{path}/{at}") for at, each in enumerate(value)]
    if origin is dict or hint is dict:
        if not isinstance(value, dict):
            raise _wrong(path, "an object")
        item = arguments[1] if arguments else Any
        return {key: decode(item, each, f"{path}/{key}") for key, each in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint(**decode_object(dataclass_fields(hint), value, path))
    return _decode_plain(hint, value, path)


def _decode_plain(hint: Any, value: Any, path: str) -> Any:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is float and is_number:
        return float(value)
    if hint is int and is_number and (isinstance(value, int) or value.is_integer()):
        return int(value)
    if hint in (str, bool, type(None)) and isinstance(value, hint):
        return value
    try:
        if hint is datetime.datetime and isinstance(value, str):
            return datetime.datetime.fromisoformat(value)
        if hint is datetime.date and isinstance(value, str):
            return datetime.date.fromisoformat(value)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return hint(value)
    except ValueError as error:
        raise _wrong(path, str(error)) from None
    raise _wrong(path, _NAMES.get(hint, getattr(hint, "__name__", repr(hint))))


_NAMES = {str: "a string", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


def decode_object(fields: Fields, value: Any, path: str) -> dict[str, Any]:
    """Keyword arguments from a JSON object. What is missing is left to its default."""
    if not isinstance(value, dict):
        raise _wrong(path, "an object")
    if unknown := value.keys() - fields.keys():
        raise ValueError(f"{path or '/'}: there is no {', '.join(sorted(unknown))}")
    for name, (_, default) in fields.items():
        if name not in value and default is dataclasses.MISSING:
            raise ValueError(f"{path or '/'}: {name} is missing")
    return {name: decode(fields[name][0], each, f"{path}/{name}") for name, each in value.items()}


def _first_that_fits(options: tuple[Any, ...], value: Any, path: str) -> Any:
    problems = []
    for option in options:
        try:
            return decode(option, value, path)
        except ValueError as problem:
            problems.append(str(problem))
    raise ValueError(problems[0] if len(problems) == 1 else f"{path or '/'}: fits none of: {'; '.join(problems)}")


def _wrong(path: str, wanted: str) -> ValueError:
    return ValueError(f"{path or '/'}: is not {wanted}")


def check_returns_once(what: str, function: Callable[..., Any]) -> None:
    """`TypeError` for a function with more than one result. What a coroutine needs is loaded, since nothing can be in a call."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{what}: write `return` in place of `yield`; a call has one result")
    if inspect.iscoroutinefunction(function):
        from . import _async as _  # It brings asyncio along, which most plugins do without.


def finished(value: Any) -> Any:
    """What a function returned, or what its coroutine does."""
    if not inspect.iscoroutine(value):
        return value
    try:
        from . import _async
    except ImportError:
        value.close()
        raise TypeError("a coroutine came from a function that is no `async def`: write `import asyncio` at the top of plugin.py") from None
    return _async.run(value)


def is_plausible(hint: Any, value: Any) -> bool:
    """Whether a function that says that it returns this may have returned that. Looks at the outermost type alone: what is in an
    object is checked by the host, against the output schema."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_plausible(arguments[0], value)
    if origin in (Union, types.UnionType):
        return any(is_plausible(argument, value) for argument in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if hint in (str, bool):
        return isinstance(value, hint)
    if hint is list or origin is list:
        return isinstance(value, (list, tuple, set, frozenset))
    if hint is dict or origin is dict or dataclasses.is_dataclass(hint):
        return isinstance(value, dict) or dataclasses.is_dataclass(value)
    return value is not None or hint is Any or None in arguments


def shown(hint: Any) -> str:
    """A type hint as it was written."""
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


def encode(value: Any) -> Any:
    """JSON of a value: dataclasses, enums and dates become what their schemas say."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return encode(value.value)
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): encode(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(each) for each in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
