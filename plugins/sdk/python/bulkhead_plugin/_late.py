"""What a plugin imports while a call runs.

A component has the modules that were loaded while it was built, and no files. So the build loads what functions are going to
import, and says what it could not load. Functions are found as objects, and their imports in their code: that of the plugin, of the
packages beside it, and of the parts of the standard library that these use by name. Following all of it would load half of the
standard library into every plugin.
"""

import ast
import dis
import gc
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

#: The folders as the build sees them (`traceback.rs` knows them as well).
PROJECT = "/1/"
_NOT_OWN = ("/python", "/world", "/0/", "/2/", "/bundled")

#: Parts of the standard library that have no use in a component, and would bring much along.
_USELESS = frozenset(
    "_pyrepl antigravity concurrent ctypes curses doctest ensurepip idlelib multiprocessing pdb pydoc readline rlcompleter test this "
    "tkinter turtle unittest venv webbrowser".split()
)

#: What C code imports late, where nobody can see it.
_UNSEEN = (
    "_strptime",
    "encodings.idna",
    "encodings.punycode",
    "encodings.ascii",
    "encodings.base64_codec",
    "encodings.charmap",
    "encodings.hex_codec",
    "encodings.latin_1",
    "encodings.raw_unicode_escape",
    "encodings.unicode_escape",
    "encodings.utf_8_sig",
    *(f"encodings.utf_{bits}{order}" for bits in (16, 32) for order in ("", "_le", "_be")),
    *(f"encodings.cp{page}" for page in (437, 850, *range(1250, 1259))),
    *(f"encodings.iso8859_{part}" for part in range(1, 17)),
    *(f"encodings.{name}" for name in ("koi8_r", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr")),
)


#: How code comes by a function that it is going to call.
_BY_NAME = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF")


@dataclass(frozen=True)
class Late:
    """An import in a function: a module (none if only a call knows its name), and names that are taken from it and may be modules
    as well."""

    module: str | None
    names: tuple[str, ...]
    file: str
    line: int


def include(report: str) -> None:
    """Loads what functions import, and writes what is missing into a file, as JSON."""
    for name in _UNSEEN:
        _load(name)
    missing: list[dict[str, str | int | None]] = []
    tried = set[tuple[str, tuple[str, ...]]]()
    used = set[str]()
    seen = set[CodeType]()
    while found := _found(seen, used):
        for late in found:
            if late.module is None:
                if is_own(late.file):
                    missing.append({"module": None, "file": shown(late.file), "line": late.line, "problem": ""})
                continue
            key, package = (late.module, late.names), late.module.partition(".")[0]
            if key in tried or package in _USELESS:
                continue
            tried.add(key)
            used.add(package)
            problem = _load(late.module) or next(filter(None, (_load_name(late.module, name) for name in late.names)), None)
            if problem and is_own(late.file) and not _is_optional(late):
                missing.append({"module": late.module, "file": shown(late.file), "line": late.line, "problem": problem})
    with open(report, "w", encoding="utf-8") as file:
        json.dump(missing, file)


def _load(name: str) -> str | None:
    """Loads a module; why that did not work."""
    try:
        importlib.import_module(name)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def _load_name(module: str, name: str) -> str | None:
    if name == "*" or hasattr(sys.modules.get(module), name):
        return None
    return _load(f"{module}.{name}")


def is_own(file: str) -> bool:
    return not file.startswith(_NOT_OWN) and not file.startswith("<")


def shown(file: str) -> str:
    """Without the folder, which exists while it is built alone."""
    return file.split("/", 2)[-1]


def _found(seen: set[CodeType], used: set[str]) -> list[Late]:
    """The imports of functions that were not looked at yet. `used` are packages that count as used by name."""
    used |= {name.partition(".")[0] for name in _named_by_own()}
    found = []
    for function in gc.get_objects():
        if type(function) is not FunctionType or function.__code__ in seen:
            continue
        code, of = function.__code__, function.__globals__
        if is_own(code.co_filename) or (code.co_filename.startswith("/python") and str(of.get("__name__")).partition(".")[0] in used):
            seen.add(code)
            package = of.get("__package__") or ""
            found += [late for part in _nested(code) for late in _imports(part, package)]
    return found


def _named_by_own() -> set[str]:
    """The modules that the plugin and the packages beside it use by name."""
    named = set()
    for module in list(sys.modules.values()):
        if type(module) is not ModuleType or not is_own(str(vars(module).get("__file__") or "<")):
            continue
        for value in list(vars(module).values()):
            # By their type alone: an object of a package may do anything when it is asked for more.
            if type(value) is ModuleType:
                named.add(value.__name__)
            elif issubclass(type(value), (FunctionType, BuiltinFunctionType, type)):
                named.add(str(value.__module__))
    return named


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _imports(code: CodeType, package: str) -> Iterator[Late]:
    """What one piece of code imports, by statement or by name."""
    by_statement = dis.opmap["IMPORT_NAME"] in code.co_code[::2]
    by_name = "import_module" in code.co_names or "__import__" in code.co_names
    if not by_statement and not by_name:
        return
    before: list[dis.Instruction] = []
    at: int | None = None
    for step in dis.get_instructions(code):
        line = step.positions.lineno if step.positions and step.positions.lineno else code.co_firstlineno
        if step.opname == "IMPORT_NAME":
            level, names = before[-2].argval, before[-1].argval
            if module := _absolute("." * level + step.argval, package):
                yield Late(module, tuple(names or ()), code.co_filename, line)
        elif step.opname in _BY_NAME and step.argval in ("import_module", "__import__"):
            at = line
        elif step.opname.startswith("CALL") and at is not None:
            # Right behind the function's name and one constant; anything else is computed.
            is_named = before[-1].opname == "LOAD_CONST" and isinstance(before[-1].argval, str) and step.arg == 1
            yield Late(before[-1].argval if is_named else None, (), code.co_filename, at)
            at = None
        if step.opname not in ("CACHE", "EXTENDED_ARG", "PRECALL"):
            before = [*before[-4:], step]


def _absolute(name: str, package: str) -> str | None:
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:
        return None


def _is_optional(late: Late) -> bool:
    """Whether the program goes on without it."""
    try:
        with open(late.file, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False
    tries = (node for node in ast.walk(tree) if isinstance(node, ast.Try | ast.TryStar) and node.handlers)
    return any(
        node.body[0].lineno <= late.line <= (node.body[-1].end_lineno or 0) and any(map(_catches, node.handlers)) for node in tries
    )


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds: list[Any] = [handler.type]
    if isinstance(handler.type, ast.Tuple):
        kinds = list(handler.type.elts)
    caught = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
    return any(kind is None or getattr(kind, "id", None) in caught for kind in kinds)
