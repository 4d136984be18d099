"""How fast the flow model runs: CPU seconds per polled second, by fabric size, and headless scenario draws.

``python -m benchmarks.flow [--json]``. Links run at 400 Gb/s in the counters; ``link_slowdown`` says by how much the modelled links
are slowed at a quantum of 64 KB (see docs/flow-model.md). Real time on one core needs ``cpu_per_polled_second`` below 1.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from fabricd.flow.headless import run
from fabricd.flow.scenarios import build
from fabricd.flow.settings import Kind
from fabricd.flow.staging import Draw

POLLS = 5


def polled(hosts: int, kind: Kind, slots: int, scenario: str = "incast") -> dict[str, Any]:
    """CPU time per polled second in the middle of the trouble."""
    scene = build(scenario, Draw(seed=3, hosts=hosts, kind=kind, slots=slots, begin_s=1.0, length_s=1e6))
    model = scene.model
    model.step(3.0)
    slots_before, started = model.engine.slot, time.process_time()
    for _ in range(POLLS):
        model.step(1.0)
    spent = time.process_time() - started
    return {
        "hosts": hosts,
        "kind": kind,
        "ports": len(model.graph.ports),
        "flows": model.engine.flows.n,
        "link_slowdown": round(model.settings.slowdown),
        "slots_per_second": slots,
        "us_per_slot": round(spent / (model.engine.slot - slots_before) * 1e6, 1),
        "cpu_per_polled_second": round(spent / POLLS, 3),
    }


def draws(count: int) -> dict[str, Any]:
    """Whole scenario draws with truth: 120 windows each."""
    started = time.process_time()
    for seed in range(count):
        run("incast", Draw(seed=seed))
    spent = time.process_time() - started
    return {"draws": count, "windows_each": 120, "cpu_seconds_each": round(spent / count, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cases: list[tuple[int, Kind, int]] = [
        (128, "infiniband", 2050),
        (128, "ethernet", 2050),
        (128, "infiniband", 200),
        (128, "ethernet", 200),
        (512, "infiniband", 200),
    ]
    result = {"polled": [polled(*case) for case in cases], "headless": draws(5)}
    if args.json:
        print(json.dumps(result, indent=1))
        return
    for row in result["polled"]:
        print(row)
    print(result["headless"])


if __name__ == "__main__":
    main()
