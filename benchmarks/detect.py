"""One detection cycle over 10,000, 100,000 and 400,000 ports with 1 %, 20 % and 100 % of them stalled: time and memory.

    python -m benchmarks.detect [--json] [--ports 10000,100000] [--cycles 3]

A two-level fat tree of 64-port switches, every link 400 Gb/s, one priority. The route table and the fabric's arrays are built once and
reported apart. Stalled ports are drawn by switch, so that 1 % is a few incasts and 100 % is everything. Times are
CPU time of the process (set OPENBLAS_NUM_THREADS=1 for one core).
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from typing import Any

import numpy as np

from fabricd.detect.detector import Detector
from fabricd.detect.fabric import Fabric
from fabricd.detect.window import Window
from fabricd.model.topology import CA, SWITCH, Link, Node, Topology
from fabricd.topology.minhop import assumed_routes

RADIX = 64
RATE = 400e9


def fat_tree(ports: int) -> Topology:
    """Leaves of 32 hosts and 32 uplinks; spines take one uplink of each leaf, in groups of 64 leaves joined by nothing above.

    ``ports`` counts egress ports, hosts included: a leaf with its hosts and its half of the spines' ports makes 160.
    """
    half = RADIX // 2
    topology = Topology(fabric="bench")
    guid = 1
    for _ in range(max(1, round(ports / (4 * half * RADIX)))):
        spines = list(range(guid, guid + half))
        guid += half
        for spine in spines:
            topology.nodes[spine] = Node(spine, SWITCH, f"spine{spine}")
        for at in range(RADIX):
            leaf = guid
            guid += 1
            topology.nodes[leaf] = Node(leaf, SWITCH, f"leaf{leaf}")
            for number, spine in enumerate(spines):
                topology.links.append(Link((leaf, half + number + 1), (spine, at + 1), RATE / 1e9))
            for number in range(half):
                topology.nodes[guid] = Node(guid, CA, f"host{guid}")
                topology.links.append(Link((guid, 1), (leaf, number + 1), RATE / 1e9))
                guid += 1
    return topology


def window(fabric: Fabric, number: int, stalled: float, rng: np.random.Generator) -> Window:
    """Random traffic; the ports that feed a ``stalled`` share of the switches wait."""
    size = fabric.size
    tx = RATE / 8 * rng.uniform(0.3, 0.95, size)
    switches = np.unique(fabric.node[~fabric.is_host])
    chosen = rng.choice(switches, max(1, round(stalled * len(switches))), replace=False)
    hit = np.isin(fabric.node[fabric.peer], chosen)
    wait = np.where(hit, rng.uniform(0.1, 0.7, size), 0.0)
    rates = {"tx_bytes": tx[:, None], "rx_bytes": tx[fabric.peer][:, None], "xmit_wait_ns": wait[:, None]}
    return Window(number * 10**9, 1e9, rates, np.zeros((size, 1)), np.full(size, np.nan))


def measure(ports: int, cycles: int) -> dict[str, Any]:
    began = time.perf_counter()
    topology = fat_tree(ports)
    routes = assumed_routes(topology)
    routes_s = time.perf_counter() - began
    began = time.perf_counter()
    fabric = Fabric(topology, routes)
    _ = fabric.reach_class
    out: dict[str, Any] = {
        "ports": fabric.size,
        "hosts": int(fabric.is_host.sum()),
        "routes_s": round(routes_s, 2),
        "fabric_s": round(time.perf_counter() - began, 2),
        "cycle_ms": {},
    }
    for stalled in (0.01, 0.2, 1.0):
        rng = np.random.default_rng(1)
        detector = Detector(fabric, [None])
        windows = [window(fabric, n, stalled, np.random.default_rng(7)) for n in range(cycles + 2)]
        for w in windows:
            w.rates["tx_bytes"] = w.rates["tx_bytes"] * rng.uniform(0.9, 1.0, (fabric.size, 1))
        took = []
        for n, w in enumerate(windows):
            began = time.process_time()
            detector.step(w)
            if n >= 2:
                took.append(time.process_time() - began)
        out["cycle_ms"][f"{stalled:.0%}"] = round(1000 * sorted(took)[len(took) // 2], 1)
    out["max_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", default="10000,100000,400000")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = []
    for ports in args.ports.split(","):
        results.append(measure(int(ports), args.cycles))
        if not args.json:
            print(results[-1], flush=True)
    if args.json:
        print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
