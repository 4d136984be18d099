"""``make bench``: every benchmark in turn, each in a process of its own; a line each on stderr, one JSON document on stdout.

python -m benchmarks [NAME ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

ALL = ("agent", "ingest", "sweep", "discovery", "rails", "placement", "detect", "flow", "twin")


def run(name: str) -> dict[str, Any]:
    """One benchmark's document, or what kept it from giving one."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = time.monotonic() - began
    try:
        result = json.loads(done.stdout)
    except ValueError:
        result = None
    ok = done.returncode == 0 and result is not None
    print(f"{name}: {'done' if ok else f'failed with status {done.returncode}'} in {seconds:.0f} s", file=sys.stderr)
    return {"ok": ok, "seconds": round(seconds, 1), "result": result}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"benchmarks: unknown: {', '.join(unknown)}; known: {', '.join(ALL)}", file=sys.stderr)
        return 2
    results = {name: run(name) for name in names or ALL}
    json.dump(results, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if all(result["ok"] for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
