#!/usr/bin/env bash
# Integers of components that componentize-js makes are wrong in some places and right in others, without any error.
#
# Surprising: it is the place that decides. A function of JavaScript that returns its u32 argument returns 3221225472 for 3000000000,
# and 0 for 2147483648, when the result is a bare u32 or a record of that one field; in a record of two fields, an option or a list
# the same number is right. A negative s64 arrives as 2^64 too much when it is a parameter, or an option or a field of one, and is
# right in a list: what is handed over through memory is right. A negative s64 as a bare result stops the component, so it is not
# tried here.
# The guess before the run: a number type works everywhere or nowhere, and what does not fit is an error.
# Who meets it: authors of components in JavaScript with typed exports: ids, sizes in bytes, times in seconds or nanoseconds.
# What to do: return such a u32 as u64, or in a record of two fields; take an s64 that may be negative as s32 or text. Bulkhead
# passes on the number that the component returned; the world of its own JavaScript SDK has no such function.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

printf '{"private": true, "type": "module"}\n' >package.json
npm install --no-audit --no-fund --loglevel=error @bytecodealliance/componentize-js@0.23.0 @bytecodealliance/preview2-shim@0.25.0
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check wasmtime==50.0.1

cat >world.wit <<'END'
package finding:numbers;

world numbers {
  record box-u32 { value: u32 }
  record two-u32 { value: u32, more: u32 }
  record box-s64 { value: s64 }
  export u32-bare: func(x: u32) -> u32;
  export u32-option: func(x: u32) -> option<u32>;
  export u32-record: func(x: u32) -> box-u32;
  export u32-two: func(x: u32) -> two-u32;
  export u32-list: func(x: u32) -> list<u32>;
  export u32-text: func(x: u32) -> string;
  export u64-bare: func(x: u64) -> u64;
  export s32-bare: func(x: s32) -> s32;
  export s64-text: func(x: s64) -> string;
  export s64-option-text: func(x: option<s64>) -> string;
  export s64-record-text: func(x: box-s64) -> string;
  export s64-list-text: func(x: list<s64>) -> string;
}
END
cat >make.mjs <<'END'
import { writeFileSync } from "node:fs";
import { componentize } from "@bytecodealliance/componentize-js";
const source = `
  export const u32Bare = (x) => x;
  export const u32Option = (x) => x;
  export const u32Record = (x) => ({ value: x });
  export const u32Two = (x) => ({ value: x, more: x });
  export const u32List = (x) => [x];
  export const u32Text = (x) => String(x);
  export const u64Bare = (x) => x;
  export const s32Bare = (x) => x;
  export const s64Text = (x) => String(x);
  export const s64OptionText = (x) => String(x);
  export const s64RecordText = (x) => String(x.value);
  export const s64ListText = (x) => String(x[0]);
`;
const options = { witPath: "world.wit", worldName: "numbers", disableFeatures: ["random", "stdio", "clocks", "http", "fetch-event"] };
const { component } = await componentize(source, options);
writeFileSync("numbers.wasm", component);
END
node make.mjs

cat >look.py <<'END'
import json
import sys
from importlib.metadata import version

from wasmtime import Config, Engine, Store, WasiConfig
from wasmtime.component import Component, Linker, Record

made_by = json.load(open("node_modules/@bytecodealliance/componentize-js/package.json"))["version"]
print(f"@bytecodealliance/componentize-js {made_by}, run by wasmtime {version('wasmtime')}")
print("expected: Component Model, Canonical ABI, lift and lower: a number within its type's bounds stays itself, in every place")

config = Config()
config.cranelift_opt_level = "none"
engine = Engine(config)
component = Component.from_file(engine, "numbers.wasm")
linker = Linker(engine)
linker.add_wasip2()


def call(name, argument):
    store = Store(engine)
    store.set_wasi(WasiConfig())
    result = linker.instantiate(store, component).get_func(store, name)(store, argument)
    result = result.value if isinstance(result, Record) else result
    return int(result[0] if isinstance(result, list) else result)


def box(value):
    record = Record()
    record.value = value
    return record


same = {}
U32 = ["u32-bare", "u32-record", "u32-two", "u32-option", "u32-list", "u32-text"]
S64 = ["s64-text", "s64-option-text", "s64-record-text", "s64-list-text"]
CASES = [
    # number, {export: the number that is seen; the others give the same number}, all exports
    (1, same, U32),
    (2147483647, same, U32),
    (2147483648, {"u32-bare": 0, "u32-record": 0}, U32),
    (3000000000, {"u32-bare": 3221225472, "u32-record": 3221225472}, U32),
    (18446744073709551615, same, ["u64-bare"]),
    (-2147483648, same, ["s32-bare"]),
    (5, same, S64),
    (-1, {name: 18446744073709551615 for name in S64 if "list" not in name}, S64),
]
changed = 0
for number, wrong, names in CASES:
    for name in names:
        argument = box(number) if name == "s64-record-text" else [number] if name == "s64-list-text" else number
        seen = call(name, argument)
        stated = wrong.get(name, number)
        print(f"seen: {name}: {number} is {seen if seen != number else 'itself'}")
        if seen != stated:
            print(f"CHANGED: {stated} was stated")
            changed = 1
sys.exit(changed)
END
venv/bin/python look.py
