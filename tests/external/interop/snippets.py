"""Runs the program in Python that host/docs/clients.md shows, as it stands there but for the host's address.

usage: snippets.py URL
"""

import pathlib
import subprocess
import sys

SERVED_AT = "http://127.0.0.1:8808/mcp"
PAGE = pathlib.Path(__file__).parents[3] / "host/docs/clients.md"
# What the program prints: the revision that it agreed on, a tool of the host, and what became of the questions of `book_trip`.
EXPECTED = ["2026-07-28", "'book_trip'", "Lisbon"]


def main(url: str) -> int:
    blocks = [rest.split("```")[0] for rest in PAGE.read_text().split("```python\n")[1:]]
    if not blocks:
        print(f"not ok {PAGE.name} shows no program in Python")
    for number, block in enumerate(blocks, 1):
        if SERVED_AT not in block:
            print(f"not ok program {number} of {PAGE.name} does not name {SERVED_AT}")
            continue
        program = [sys.executable, "-c", block.replace(SERVED_AT, url)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60)
        missing = [text for text in EXPECTED if text not in done.stdout]
        good = done.returncode == 0 and not missing
        print(f"{'ok' if good else 'not ok'} program {number} of {PAGE.name} runs as it stands")
        if not good:
            print(f"exit code {done.returncode}, missing {missing}\n{done.stdout}\n{done.stderr}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
