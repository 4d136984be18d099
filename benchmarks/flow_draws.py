"""Random draws of the scenario library as trace directories, for scoring a detector on what it has never seen.

``python -m benchmarks.flow_draws OUT --count 200`` writes OUT/<scenario>-<seed>/ with counters, topology, truth and flows.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from fabricd.flow.faults import FAULTS, apply_fault
from fabricd.flow.headless import run
from fabricd.flow.scenarios import SCENARIOS
from fabricd.flow.staging import Draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=200, help="draws in all, spread evenly over the scenarios")
    parser.add_argument("--seed", type=int, default=1000, help="first seed")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only these (repeatable)")
    parser.add_argument("--kind", choices=["infiniband", "ethernet"])
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--windows", type=int, default=120)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="worsen the telemetry (repeatable)")
    parser.add_argument("--json", action="store_true", help="print one summary document")
    args = parser.parse_args()
    names = args.scenario or list(SCENARIOS)
    started, written = time.perf_counter(), []
    for n in range(args.count):
        name, seed = names[n % len(names)], args.seed + n // len(names)
        draw = Draw(seed=seed, hosts=args.hosts, kind=args.kind, window_s=args.window_s, windows=args.windows)
        trace = run(name, draw)
        for fault in args.fault or []:
            trace = apply_fault(trace, fault, seed)
        target = args.out / trace.name
        target.mkdir(parents=True, exist_ok=True)
        for file, content in trace.files().items():
            (target / file).write_bytes(content)
        written.append(
            {"trace": trace.name, "episodes": len(trace.label["episodes"]), "negative": trace.label["negative"]}
        )
        if not args.json:
            print(f"{trace.name}: {len(trace.label['episodes'])} episodes")
    if args.json:
        print(json.dumps({"traces": written, "seconds": round(time.perf_counter() - started, 1)}))


if __name__ == "__main__":
    main()
