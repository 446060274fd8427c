#!/usr/bin/env bash
# A `random.Random()` at the top of a module gives the same numbers in every instance of a component of componentize-py.
#
# Surprising: the functions of `random` itself differ from instance to instance, so a test with random.random() looks fine: the
# runtime seeds that generator anew. A generator that the module made for itself is part of the frozen memory, as is every value
# that was computed when the module was loaded, and the seed of hash(). Under a host that starts an instance for each call, every
# call draws the same "random" numbers.
# The guess before the run: either everything of `random` is frozen, or nothing is.
# Who meets it: authors with a generator of their own, in their module or in a library that makes one when it is imported: back-off
# with jitter, sampling.
# What to do: make the generator inside the function, or call `random`, `secrets` or `uuid.uuid4` directly. Bulkhead starts each
# call in a fresh instance.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check componentize-py==0.25.1 wasmtime==50.0.1

cat >world.wit <<'END'
package finding:draws;

world draws {
  export draw: func() -> string;
}
END
cat >app.py <<'END'
import json
import random
import time
import uuid

OWN = random.Random()
LOADED = time.time()


class WitWorld:
    def draw(self) -> str:
        return json.dumps({
            "random.Random() at the top": [OWN.random() for _ in range(3)],
            "random.Random() in the function": random.Random().random(),
            "random.random()": random.random(),
            "uuid.uuid4()": str(uuid.uuid4()),
            "hash of a text": hash("finding"),
            "time.time() at the top": LOADED,
            "time.time()": time.time(),
        })
END
venv/bin/componentize-py --wit-path world.wit --world draws componentize app -o draws.wasm >/dev/null

cat >look.py <<'END'
import json
import sys
from importlib.metadata import version

from wasmtime import Config, Engine, Store, WasiConfig
from wasmtime.component import Component, Linker

print(f"componentize-py {version('componentize-py')}, run by wasmtime {version('wasmtime')}")
print("expected: Python's documentation of random.seed(): \"If randomness sources are provided by the operating system, they are used\"")

config = Config()
config.cranelift_opt_level = "none"
engine = Engine(config)
component = Component.from_file(engine, "draws.wasm")
linker = Linker(engine)
linker.add_wasip2()
draws = []
for _ in range(3):
    store = Store(engine)
    store.set_wasi(WasiConfig())
    draws.append(json.loads(linker.instantiate(store, component).get_func(store, "draw")(store)))

FROZEN = {"random.Random() at the top", "hash of a text", "time.time() at the top"}
changed = 0
for what in draws[0]:
    values = {json.dumps(draw[what]) for draw in draws}
    is_frozen = len(values) == 1
    print(f"seen: {what}: {'the same in three instances' if is_frozen else 'another in each of three instances'}")
    if is_frozen != (what in FROZEN) or len(values) not in (1, 3):
        print(f"CHANGED: {'the same' if what in FROZEN else 'another in each'} was stated")
        changed = 1
sys.exit(changed)
END
venv/bin/python look.py
