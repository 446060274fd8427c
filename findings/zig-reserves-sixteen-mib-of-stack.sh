#!/usr/bin/env bash
# A program in C that does nothing asks for 16 MiB of memory when Zig compiles it for WASI.
#
# Surprising: the module's least memory is 257 pages of 64 KiB, of which 256 are the stack. It is the least that a host must give
# before the first instruction runs, so a host that allows 16 MiB refuses the module, whatever the program needs.
# The guess before the run: a stack of 64 KiB, which is the default of LLVM's wasm-ld, or of 1 MiB.
# Who meets it: authors of plugins in C whose compiler is Zig, on hosts with small limits of memory.
# What to do: give the linker `-z stack-size`, as below: 1 MiB is 17 pages. Bulkhead counts a call's memory as the module declares
# it; `call.memory_bytes` is its limit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export ZIG_GLOBAL_CACHE_DIR=$folder/cache ZIG_LOCAL_CACHE_DIR=$folder/cache

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check ziglang==0.17.1
printf 'int main(void) { return 0; }\n' >nothing.c
venv/bin/python -m ziglang cc --target=wasm32-wasi -O2 nothing.c -o default.wasm
venv/bin/python -m ziglang cc --target=wasm32-wasi -O2 -Wl,-z,stack-size=1048576 nothing.c -o chosen.wasm

cat >look.py <<'END'
import sys


def number(data, at):  # an unsigned LEB128 number, and where it ends
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def least_pages(path):
    data = open(path, "rb").read()
    at = 8
    while at < len(data):
        kind = data[at]
        length, at = number(data, at + 1)
        if kind == 5:  # the section of memories: how many there are, flags, least pages
            _, flags = number(data, at)
            return number(data, flags + 1)[0]
        at += length
    raise SystemExit(f"{path} has no memory of its own")


print(f"ziglang {sys.argv[1]}, target wasm32-wasi")
print("expected: LLVM, lld/test/wasm/alias.s: without -z stack-size the stack of wasm-ld has 65536 bytes, one page")
changed = 0
for path, what, stated in [("default.wasm", "as it is", 257), ("chosen.wasm", "with -z stack-size=1048576", 17)]:
    pages = least_pages(path)
    print(f"seen: {what}: at least {pages} pages, {pages / 16:.2f} MiB")
    if pages != stated:
        print(f"CHANGED: {stated} pages were stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py "$(venv/bin/python -m ziglang version)"
