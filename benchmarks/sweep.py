"""The sweep against the tools people use: perfquery per switch, ibqueryerrors, ibnetdiscover, on 1.7k, 9k and 34k switch ports.

    python -m benchmarks.sweep [--fabrics A,B,C] [--repeats N] [--json]

All on one simulated fabric in one run, interleaved. Tools are timed as processes, ours from outside as (time of 1+N sweeps - time of
1) / N of ``fabricd sweep``, because it runs on: N = 10 on the largest fabric, more on the small ones. ``one`` asks
PortCountersExtended, as ``perfquery -l -x`` does; ``all`` what ``ibqueryerrors --counters --details`` is after: narrow errors too, and
the details of ports whose errors moved. Best of the repeats on both sides; CPU per MAD is the main thread's, median. ibsim answers at
once and bounds the rate: on hardware the tools wait a whole round trip for each datagram.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricd.ib.ibsim import SimTransport
from fabricd.topology.discovery import Discoverer, to_topology
from tests.ibsim import Fabric, Net, leaf_spine, three_tier

FABRICS: dict[str, Callable[[], Net]] = {
    "A": lambda: leaf_spine(32, 18, hosts=18, uplinks=18, ports=36),
    "B": lambda: three_tier(8, 16, 8, 64, hosts=14, ports=36, core_links=2),
    "C": lambda: three_tier(32, 18, 9, 81, hosts=9, ports=36),
}
FURTHER = {"A": 30, "B": 10, "C": 10}  # more where a sweep is short against the start of a process
ROOT = Path(__file__).parents[1]
# The command itself, and what its main thread used.
SWEEP = """
import sys, time
from fabricd.cli import main
status = main(["sweep", "--json", "--interval", "0", *sys.argv[1:]])
print(time.thread_time(), file=sys.stderr)
sys.exit(status)
"""


def run(fabric: Fabric, command: list[str], check: bool = True) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Wall seconds of a process on the fabric, and what it said."""
    started = time.perf_counter()
    done = subprocess.run(
        command,
        env={**fabric.env(fabric.hosts[5]), "PYTHONPATH": str(ROOT)},
        cwd=fabric.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=check,
    )
    return time.perf_counter() - started, done


class Ours:
    """``fabricd sweep`` with some options, timed at one sweep and at ``1 + further``."""

    def __init__(self, fabric: Fabric, ports: int, further: int, *options: str) -> None:
        self._fabric, self._ports, self._further, self._options = fabric, ports, further, options
        self._walls: dict[int, list[float]] = {1: [], 1 + further: []}
        self._cpus: dict[int, list[float]] = {1: [], 1 + further: []}

    def measure(self) -> None:
        for count in self._walls:
            wall, done = run(self._fabric, [sys.executable, "-c", SWEEP, "--count", str(count), *self._options])
            document = json.loads(done.stdout)
            answered = [sweep["answered"] for sweep in document["sweeps"]]
            assert document["ports"] == self._ports and answered == [self._ports] * count, (
                document["rejects"],
                answered,
            )
            self._walls[count].append(wall)
            self._cpus[count].append(float(done.stderr.split()[-1]))

    @property
    def wall(self) -> float:
        """Seconds of a further sweep."""
        return (min(self._walls[1 + self._further]) - min(self._walls[1])) / self._further

    @property
    def cpu(self) -> float:
        """CPU seconds of the main thread in a further sweep."""
        return (statistics.median(self._cpus[1 + self._further]) - statistics.median(self._cpus[1])) / self._further


def perfquery(fabric: Fabric, switches: dict[int, int]) -> float:
    total = 0.0
    for lid, ports in switches.items():
        wall, done = run(fabric, ["perfquery", "-l", "-x", str(lid), ",".join(map(str, range(1, ports + 1)))])
        assert done.stdout.count("PortSelect") == ports
        total += wall
    return total


def measure(name: str, repeats: int) -> dict[str, Any]:
    net, further = FABRICS[name](), FURTHER[name]
    with Fabric(net, timeout=300) as fabric:
        transport = SimTransport(fabric.socket_name, fabric.hosts[5])
        nodes = to_topology(Discoverer(transport).discover()).nodes.values()
        transport.close()
        switches = {node.lids[0]: node.num_ports for node in nodes if node.type == "switch"}
        ports = sum(switches.values())
        assert ports == net.switch_ports
        socket = ("--mad-socket", fabric.socket_name, "--mad-host", fabric.hosts[5])
        one = Ours(fabric, ports, further, "--no-errors")
        everything = Ours(fabric, ports, further)
        direct = Ours(fabric, ports, further, "--no-errors", *socket)
        theirs: dict[str, list[float]] = {"perfquery_s": [], "ibqueryerrors_s": [], "ibnetdiscover_s": []}
        for _ in range(repeats):
            theirs["perfquery_s"].append(perfquery(fabric, switches))
            one.measure()
            # It exits 1 when there are errors: that is its finding, not a failure.
            errors = ["ibqueryerrors", "--counters", "--details", "--switch"]
            theirs["ibqueryerrors_s"].append(run(fabric, errors, check=False)[0])
            everything.measure()
            theirs["ibnetdiscover_s"].append(run(fabric, ["ibnetdiscover"])[0])
            direct.measure()
    best = {key: min(values) for key, values in theirs.items()}
    figures = {
        **best,
        "one_s": one.wall,
        "one_us_per_mad": one.cpu / ports * 1e6,
        "one_socket_s": direct.wall,
        "one_socket_us_per_mad": direct.cpu / ports * 1e6,
        "all_s": everything.wall,
        "all_us_per_mad": everything.cpu / (2 * ports) * 1e6,
        "perfquery_over_one": best["perfquery_s"] / one.wall,
        "ibqueryerrors_over_all": best["ibqueryerrors_s"] / everything.wall,
    }
    return {
        "fabric": name,
        "switches": len(net.switches),
        "switch_ports": ports,
        "repeats": repeats,
        **{key: round(value, 4) for key, value in figures.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fabrics", default="A,B,C", help="which of A, B, C")
    parser.add_argument("--repeats", type=int, default=3, help="times everything is measured; the best is shown")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(name, args.repeats) for name in args.fabrics.split(",")]
    if args.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['fabric']}: {row['switches']} switches, {row['switch_ports']} ports")
        print(f"  perfquery -l -x per switch                    {row['perfquery_s']:8.3f} s")
        print(
            f"  fabricd sweep, one attribute                  {row['one_s']:8.3f} s  {row['perfquery_over_one']:5.1f} times faster,"
            f" {row['one_us_per_mad']:.1f} us CPU per MAD"
        )
        print(
            f"  the same over the simulator's socket          {row['one_socket_s']:8.3f} s  "
            f"{row['one_socket_us_per_mad']:.1f} us CPU per MAD"
        )
        print(f"  ibqueryerrors --counters --details --switch   {row['ibqueryerrors_s']:8.3f} s")
        print(
            f"  fabricd sweep, all                            {row['all_s']:8.3f} s  "
            f"{row['ibqueryerrors_over_all']:5.1f} times faster, {row['all_us_per_mad']:.1f} us CPU per MAD"
        )
        print(f"  ibnetdiscover (for comparison)                {row['ibnetdiscover_s']:8.3f} s")


if __name__ == "__main__":
    main()
