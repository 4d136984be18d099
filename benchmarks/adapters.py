"""Own share of push and read-back through each adapter, device time apart: real opensm on the twin, the UFM stand-in, real snmpd.

    python -m benchmarks.adapters [--rounds N] [--json]

A round is a push and its read-back, then the undo and its read-back. Own = the whole less what opensm took for its sweep, UFM for the
write and its job, and Gets and requests of the read-back. Reads for the comparison before a write count as ours; for SNMP, where
pysnmp's work cannot be told from the agent's, everything does. So the figures are upper bounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricd.control.adapters.base import Adapter
from fabricd.model.action import Change, Lever

TARGET_MS = 300.0


@dataclass(slots=True)
class Times:
    """Milliseconds of each push with its read-back."""

    own: list[float] = field(default_factory=list)
    device: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        return {
            "pushes": len(self.own),
            "own_p50_ms": round(statistics.median(self.own), 2),
            "own_p99_ms": round(quantile(self.own, 0.99), 2),
            "device_p50_ms": round(statistics.median(self.device), 2),
            "device_p99_ms": round(quantile(self.device, 0.99), 2),
        }


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


class Waits:
    """Time spent waiting for a device inside a call, summed by wrapping the function that waits."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.seconds = function, 0.0

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        start = time.monotonic()
        try:
            return self._function(*arguments, **more)
        finally:
            self.seconds += time.monotonic() - start


def one(adapter: Adapter, change: Change, waits: Waits | None, times: Times) -> None:
    """Push and read back. Raises AssertionError when the device plane does not have it."""
    start = time.monotonic()
    ack = adapter.push(change)
    pushed = time.monotonic()
    outside = waits.seconds if waits else 0.0
    seen = adapter.read_back(change.lever)
    end = time.monotonic()
    assert seen == change.new, f"{change.lever.name}: {seen!r}, not {change.new!r}"
    if waits is None:
        times.own.append(1000 * (end - start))
        times.device.append(1000 * ack.device_seconds)
        return
    waited = waits.seconds - outside
    times.own.append(1000 * (pushed - start - ack.device_seconds + end - pushed - waited))
    times.device.append(1000 * (ack.device_seconds + waited))


def there_and_back(adapter: Adapter, lever: Lever, new: Any, rounds: int, waits: Waits | None, times: Times) -> None:
    old = adapter.read(lever)
    for _ in range(rounds):
        one(adapter, Change(lever=lever, old=old, new=new), waits, times)
        one(adapter, Change(lever=lever, old=new, new=old), waits, times)


def opensm(rounds: int, hosts: int) -> Iterator[tuple[str, Times]]:
    from tests.integration.opensm_bench import opensm_bench

    for extra, names in (
        ("", ("hop_weight", "option", "qos_policy", "partition")),
        ("routing_engine file,minhop\n", ("routes",)),
    ):
        with tempfile.TemporaryDirectory() as name, opensm_bench(Path(name), extra=extra, hosts=hosts) as bench:
            plane = bench.adapter._desk.plane
            assert plane is not None
            waits = Waits(plane._get)
            plane._get = waits
            leaf = next(guid for guid in plane.switches() if len(plane.active_ports(guid, 8)) > 4)
            table = plane.table(leaf)
            port = max(table.values())
            lid = next(lid for lid, egress in table.items() if egress == port)
            guids = [f"0x{guid:016x}" for guid in plane.adapters()]
            wanted: dict[str, tuple[str, str, Any]] = {
                "hop_weight": ("sm", f"0x{leaf:016x} {port}", 4),
                "option": ("sm", "qos_swe_vlarb_low", "0:10,1:20"),
                "qos_policy": ("sm", "fabricd-1", {"sl": 3, "source": guids[:2], "destination": []}),
                "partition": ("sm", "0x8005", "gpu=0x8005, ipoib, sl=1 : ALL=full"),
                "routes": (f"0x{leaf:016x}", str(lid), {str(lid): port - 1}),
            }
            for lever in names:
                device, key, new = wanted[lever]
                times = Times()
                there_and_back(
                    bench.adapter,
                    Lever(adapter="opensm", device=device, name=lever, key=key),
                    new,
                    rounds,
                    waits,
                    times,
                )
                yield f"opensm {lever}", times


def ufm(rounds: int) -> Iterator[tuple[str, Times]]:
    from fabricd.control.adapters.ufm import UfmAdapter
    from fabricd.devices.ufm.client import UfmClient
    from fabricd.devices.ufm.login import Login
    from tests.integration.test_adapter_ufm import adapter_guid, port_of_a_switch
    from tests.integration.ufm_bench import stand_in

    with tempfile.TemporaryDirectory() as name, stand_in() as running:
        secret = Path(name) / "password"
        secret.write_text("123456")
        secret.chmod(0o600)
        client = UfmClient(running.url, Login("/ufmRest", user="admin", password_file=str(secret)))
        adapter, waits = UfmAdapter(client), Waits(client._http.request)
        client._http.request = waits  # type: ignore[method-assign]
        for lever, key, new in (
            ("unhealthy_port", port_of_a_switch(running), True),
            ("sl_rate", adapter_guid(running), {"0": 100000}),
            ("port_admin", port_of_a_switch(running), "down"),
        ):
            times = Times()
            there_and_back(adapter, Lever(adapter="ufm", device="ufm", name=lever, key=key), new, rounds, waits, times)
            yield f"ufm {lever}", times
        adapter.close()


def snmp(rounds: int) -> Iterator[tuple[str, Times]]:
    from tests.integration.snmp_bench import snmpd
    from tests.integration.test_adapter_snmp import make, pfc

    with tempfile.TemporaryDirectory() as name, snmpd(Path(name)) as agent:
        adapter = make(agent, Path(name))
        for device, lever, key, new in (
            ("dcbx", "pfc", "1", pfc()),
            ("dcbx", "ets", "1", [20, 0, 0, 80, 0, 0, 0, 0]),
            ("dell", "ecn", "1 3", {"kmin": 5, "kmax": 20, "pmax": 0}),
        ):
            times = Times()
            there_and_back(adapter, Lever(adapter="snmp", device=device, name=lever, key=key), new, rounds, None, times)
            yield f"snmp {lever}", times


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=25, help="rounds for each lever (default 25: 50 pushes)")
    parser.add_argument("--hosts", type=int, default=16, help="hosts of the twin's InfiniBand fabric")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    rows: dict[str, dict[str, float]] = {}
    every = Times()
    for source in (opensm(args.rounds, args.hosts), ufm(args.rounds), snmp(args.rounds)):
        for name, times in source:
            row = rows[name] = times.row()
            every.own += times.own
            every.device += times.device
            if not args.json:
                own, device = (
                    f"p50 {row[f'{who}_p50_ms']:7.1f} p99 {row[f'{who}_p99_ms']:7.1f} ms" for who in ("own", "device")
                )
                print(f"{name:22} own {own}   device {device}", flush=True)
    document = {"rows": rows, "all": every.row(), "target_own_p99_ms": TARGET_MS}
    if args.json:
        print(json.dumps(document))
    else:
        print(f"all: own p99 {every.row()['own_p99_ms']} ms, target {TARGET_MS:g} ms")
    return 0 if quantile(every.own, 0.99) <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
