"""Placement: time of the solver, gap to CP-SAT, switch hops against other policies, at 1k, 4k and 16k nodes.

``python -m benchmarks.placement [--json] [--limit SECONDS]``. A cluster of rail groups of 32 nodes (16 groups a pod) is filled to
50, 70 or 85 % by busy nodes scattered at random (the hard case), every rail group has a random uplink heat, and one job of 1/32 of
the cluster with tensor-parallel groups of two nodes is placed. ``--limit`` bounds CP-SAT, which starts from our own answer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import msgspec
import numpy as np

from fabricd.config.placement import PlacementConfig
from fabricd.placement import cpsat
from fabricd.placement.greedy import greedy
from fabricd.placement.metrics import measure
from fabricd.placement.plan import make_plan
from fabricd.placement.policies import POLICIES
from fabricd.placement.request import parse_request
from fabricd.placement.search import improve
from fabricd.placement.solve import Solution, build_problem, solve
from fabricd.placement.synthetic import synthetic_fabric

GROUP, PER_POD = 32, 16
SIZES = (1024, 4096, 16384)
OCCUPANCY = (0.5, 0.7, 0.85)
RUNS = 5
SEEDS = 3


def one(nodes: int, occupancy: float, limit: float) -> dict[str, Any]:
    fabric = synthetic_fabric(nodes // GROUP, GROUP, PER_POD)
    rng = np.random.default_rng(nodes + int(occupancy * 100))
    usable = rng.random(nodes) >= occupancy
    heat = {group.name: round(float(rng.random()), 3) for group in fabric.groups}
    request = parse_request({"nodes": nodes // 32, "tp": 16, "alternatives": 0})
    request = msgspec.structs.replace(request, heat=heat)
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        found = solve(fabric, request, usable)
        times.append((time.perf_counter() - began) * 1e3)
    free = [fabric.hosts[i] for i in np.flatnonzero(usable)]
    began = time.perf_counter()
    make_plan(fabric, msgspec.structs.replace(request, free_nodes=free), config=PlacementConfig(refine_seconds=0))
    whole_ms = (time.perf_counter() - began) * 1e3
    assert isinstance(found, Solution)
    problem = build_problem(fabric, request, usable, 0)
    start = greedy(problem)
    assert start is not None
    local, _ = improve(problem, start)
    began = time.perf_counter()
    refined = cpsat.refine(problem, local, limit)
    refine_s = time.perf_counter() - began
    costs = [problem.cost(x) for x in (start, local, refined.x)]
    return {
        "nodes": nodes,
        "occupancy": occupancy,
        "job_nodes": request.nodes,
        "free_nodes": int(usable.sum()),
        "greedy_local_ms": round(statistics.median(times), 2),
        "whole_plan_ms": round(whole_ms, 1),
        "cpsat_s": round(refine_s, 2),
        "cpsat_proved": refined.proved,
        "rail_groups": {"greedy": costs[0].groups, "local": costs[1].groups, "cpsat": costs[2].groups},
        "heat_above_cpsat": {
            "greedy": round(costs[0].heat / costs[2].heat - 1, 4) if costs[2].heat else None,
            "local": round(costs[1].heat / costs[2].heat - 1, 4) if costs[2].heat else None,
        },
        "hops": hops(fabric, request, occupancy),
    }


def hops(fabric: Any, request: Any, occupancy: float) -> dict[str, dict[str, float | None]]:
    """Mean switch hops of tensor-parallel pairs and of ring neighbours by policy, over SEEDS fillings."""
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in ("random", "reorder", "scheduler", "fabricd")}
    for seed in range(SEEDS):
        usable = np.random.default_rng(seed).random(len(fabric.hosts)) >= occupancy
        for name, values in rows.items():
            order = POLICIES[name](fabric, request, usable, np.random.default_rng(seed))
            if order is not None:
                metrics = measure(fabric, order, request.unit)
                values.append((metrics.mean_switch_hops_tp, metrics.mean_switch_hops_ring))
    return {
        name: {
            "tp": round(statistics.mean(tp for tp, _ in values), 3) if values else None,
            "ring": round(statistics.mean(ring for _, ring in values), 3) if values else None,
        }
        for name, values in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for CP-SAT (default 10)")
    args = parser.parse_args()
    rows = [one(nodes, occupancy, args.limit) for nodes in SIZES for occupancy in OCCUPANCY]
    worst = max(row["greedy_local_ms"] for row in rows if row["nodes"] == SIZES[-1])
    document = {"benchmark": "placement", "rows": rows, "budget_ms_16k": 100, "worst_ms_16k": worst}
    if args.json:
        print(json.dumps(document))
        return
    heads = (
        "nodes", "busy", "job", "greedy+local ms (whole plan)", "CP-SAT s (stages proved)", "groups g/l/c",
        "heat above CP-SAT g/l", "TP hops r/o/s/f", "ring hops r/o/s/f",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |")
    print("|---" * len(heads) + "|")
    for row in rows:
        groups, gap, hop = row["rail_groups"], row["heat_above_cpsat"], row["hops"]
        both = ["/".join(str(hop[name][kind]) for name in hop) for kind in ("tp", "ring")]
        print(
            f"| {row['nodes']} | {row['occupancy']:.0%} | {row['job_nodes']} | {row['greedy_local_ms']} ({row['whole_plan_ms']}) "
            f"| {row['cpsat_s']} ({row['cpsat_proved']}/3) | {groups['greedy']}/{groups['local']}/{groups['cpsat']} "
            f"| {_percent(gap['greedy'])}/{_percent(gap['local'])} | {both[0]} | {both[1]} |"
        )
    print(f"\n16k nodes: at most {worst} ms for greedy + local search (budget 100 ms)")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"


if __name__ == "__main__":
    main()
