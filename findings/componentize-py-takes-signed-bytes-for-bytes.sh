#!/usr/bin/env bash
# A list<s8> arrives in a component of componentize-py as bytes, so that -1 is 255; in every other place an s8 keeps its sign.
#
# Surprising: the type decides, and only in a list. An s8 by itself, in a record or an option is -1, and so is each number of a
# list<s16>. A function that gives back what it got shows nothing, because 255 goes out as -1 again: the code inside has
# calculated with other numbers all along.
# The guess before the run: list<u8> is bytes in Python, and every other list is a list.
# Who meets it: authors of components in Python whose typed exports take samples, offsets or quantised weights.
# What to do: take list<s16>, or read the bytes by array("b", value). Bulkhead passes on what the component is handed; `plugin
# check` names such functions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check componentize-py==0.25.1 wasmtime==50.0.1

cat >world.wit <<'END'
package finding:signed;

world signed {
  record box-s8 { value: s8, more: s8 }
  export s8-text: func(x: s8) -> string;
  export s8-option-text: func(x: option<s8>) -> string;
  export s8-record-text: func(x: box-s8) -> string;
  export s8-list-text: func(x: list<s8>) -> string;
  export s8-list-back: func(x: list<s8>) -> list<s8>;
  export s8-list-sum: func(x: list<s8>) -> s64;
  export s16-list-text: func(x: list<s16>) -> string;
}
END
cat >app.py <<'END'
class WitWorld:
    def s8_text(self, x) -> str:
        return f"{x!r}"

    def s8_option_text(self, x) -> str:
        return f"{x!r}"

    def s8_record_text(self, x) -> str:
        return f"{x.value!r}"

    def s8_list_text(self, x) -> str:
        return f"{type(x).__name__} {list(x)!r}"

    def s8_list_back(self, x):
        return x

    def s8_list_sum(self, x) -> int:
        return sum(x)

    def s16_list_text(self, x) -> str:
        return f"{type(x).__name__} {list(x)!r}"
END
venv/bin/componentize-py --wit-path world.wit --world signed componentize app -o signed.wasm >/dev/null

cat >look.py <<'END'
import sys
from importlib.metadata import version

from wasmtime import Config, Engine, Store, WasiConfig
from wasmtime.component import Component, Linker, Record

print(f"componentize-py {version('componentize-py')}, run by wasmtime {version('wasmtime')}")
print("expected: Component Model, Canonical ABI, lift and lower: a number within its type's bounds stays itself, in every place")

config = Config()
config.cranelift_opt_level = "none"
engine = Engine(config)
component = Component.from_file(engine, "signed.wasm")
linker = Linker(engine)
linker.add_wasip2()
box = Record()
box.value = -1
box.more = 1

CASES = [
    # export, argument, what is right, what is seen
    ("s8-text", -1, "-1", "-1"),
    ("s8-option-text", -1, "-1", "-1"),
    ("s8-record-text", box, "-1", "-1"),
    ("s16-list-text", [-1, 1], "list [-1, 1]", "list [-1, 1]"),
    ("s8-list-text", [-1, 1], "list [-1, 1]", "bytes [255, 1]"),
    ("s8-list-sum", [-1, 1], 0, 256),
    ("s8-list-back", [-1, 1], [-1, 1], [-1, 1]),
]
changed = 0
for name, argument, right, stated in CASES:
    store = Store(engine)
    store.set_wasi(WasiConfig())
    seen = linker.instantiate(store, component).get_func(store, name)(store, argument)
    seen = list(seen) if isinstance(seen, (list, bytes)) else seen
    print(f"seen: {name}: {seen}" + ("" if seen == right else f", where {right} is right"))
    if seen != stated:
        print(f"CHANGED: {stated} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
