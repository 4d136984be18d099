"""Discovery against ``ibnetdiscover`` on simulated fabrics of 1.7k, 9k and 34k switch ports, in one run.

    python -m benchmarks.discovery [--fabrics A,B,C] [--rounds N] [--round-trip-us N] [--json]

ibnetdiscover is timed as a process; ours as one more look of a running process, (time of 1+R looks - time of 1 look) / R from
outside, because that is how the collector uses it: through the same umad interface of ibsim (libumad2sim), and through ibsim's own
socket. ``first look`` is our whole process, start of Python and numpy included. A simulator answers at once; a switch takes some
0.2 ms, and then what counts is how many requests are in flight (64 here, 2 in ibnetdiscover): ``--round-trip-us 200`` puts a relay
with that delay in front of ibsim.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.relay import Relay
from tests.ibsim import Fabric, Net, leaf_spine, three_tier

FABRICS: dict[str, Callable[[], Net]] = {
    "A": lambda: leaf_spine(32, 18, hosts=18, uplinks=18, ports=36),
    "B": lambda: three_tier(8, 16, 8, 64, hosts=14, ports=36, core_links=2),
    "C": lambda: three_tier(32, 18, 9, 81, hosts=9, ports=36),
}
ROOT = Path(__file__).parents[1]
LOOK = """
import sys
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.umad import UmadTransport
from fabricd.topology.discovery import Discoverer, to_topology
transport = SimTransport(sys.argv[2], sys.argv[3]) if len(sys.argv) > 2 else UmadTransport()
for _ in range(int(sys.argv[1])):
    topology = to_topology(Discoverer(transport).discover())
print(len(topology.nodes), len(topology.links))
"""


def timed(fabric: Fabric, name: str, command: list[str]) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds of the process, and its output. ``name``: the socket name it finds the fabric by."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        command,
        env={**fabric.env(fabric.hosts[5]), "IBSIM_SOCKNAME": name, "PYTHONPATH": str(ROOT)},
        cwd=fabric.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def _looks(fabric: Fabric, name: str, rounds: int, at: list[str]) -> tuple[float, float, float, str]:
    """Wall and CPU seconds of one more look, wall seconds of a process with one look, what it printed."""
    one = timed(fabric, name, [sys.executable, "-c", LOOK, "1", *at])
    many = timed(fabric, name, [sys.executable, "-c", LOOK, str(1 + rounds), *at])
    return (many[0] - one[0]) / rounds, (many[1] - one[1]) / rounds, one[0], one[2]


def measure(key: str, rounds: int, round_trip_us: int) -> dict[str, Any]:
    net = FABRICS[key]()
    with ExitStack() as stack:
        fabric = stack.enter_context(Fabric(net, timeout=300))
        name = fabric.socket_name
        if round_trip_us:
            name = stack.enter_context(Relay(name, round_trip_us / 1e6)).name
        theirs: list[tuple[float, float]] = []
        first: list[float] = []
        more: list[tuple[float, float]] = []
        socket: list[tuple[float, float]] = []
        at = [name, fabric.hosts[5]]
        for _ in range(3):  # interleaved, so that a busy moment of the machine hits all
            theirs.append(timed(fabric, name, ["ibnetdiscover"])[:2])
            wall, cpu, once, text = _looks(fabric, name, rounds, [])
            first.append(once)
            more.append((wall, cpu))
            theirs.append(timed(fabric, name, ["ibnetdiscover"])[:2])
            socket.append(_looks(fabric, name, rounds, at)[:2])
        nodes, links = (int(word) for word in text.split())
    assert (nodes, links) == (len(net.switches) + len(net.hosts), len(net.links) // 2)
    wall, cpu = (statistics.median(pair[i] for pair in more) for i in range(2))
    socket_wall, socket_cpu = (statistics.median(pair[i] for pair in socket) for i in range(2))
    their_wall, their_cpu = (statistics.median(pair[i] for pair in theirs) for i in range(2))
    return {
        "fabric": key,
        "round_trip_us": round_trip_us,
        "switches": len(net.switches),
        "hosts": len(net.hosts),
        "switch_ports": net.switch_ports,
        "ibnetdiscover_s": round(their_wall, 4),
        "ibnetdiscover_cpu_s": round(their_cpu, 4),
        "look_s": round(wall, 4),
        "look_cpu_s": round(cpu, 4),
        "socket_look_s": round(socket_wall, 4),
        "socket_look_cpu_s": round(socket_cpu, 4),
        "first_look_s": round(statistics.median(first), 4),
        "times_faster": round(their_wall / wall, 2),
        "times_faster_socket": round(their_wall / socket_wall, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fabrics", default="A,B,C", help="which of A, B, C")
    parser.add_argument("--rounds", type=int, default=5, help="looks timed in one process")
    parser.add_argument("--round-trip-us", type=int, default=0, help="time each answer takes at least (0: at once)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(key, args.rounds, args.round_trip_us) for key in args.fabrics.split(",")]
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'fabric':7}{'ports':>8}{'ibnetdiscover':>15}{'umad look':>12}{'socket look':>13}{'first look':>12}")
    for row in rows:
        print(
            f"{row['fabric']:7}{row['switch_ports']:>8}{row['ibnetdiscover_s']:>13.3f} s{row['look_s']:>10.3f} s"
            f"{row['socket_look_s']:>11.3f} s{row['first_look_s']:>10.2f} s"
        )


if __name__ == "__main__":
    main()
