"""One worker process of the SNMP poller: its share of the switches, many agents at once, on one pysnmp engine.

pysnmp decodes about ten thousand rows a second on a core, so a fleet is spread over processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from pysnmp.hlapi.v3arch.asyncio import SnmpEngine

from fabricd.devices.base import DeviceError, DeviceUnreachable
from fabricd.devices.snmp.client import Value, Wire
from fabricd.devices.snmp.targets import Target

UPTIME, BOOTS = "1.3.6.1.2.1.1.3.0", "1.3.6.1.6.3.10.2.1.2.0"  # sysUpTime, snmpEngineBoots
CHASSIS, IF_NAME, IF_SPEED = "1.0.8802.1.1.2.1.3.2.0", "1.3.6.1.2.1.31.1.1.1.1", "1.3.6.1.2.1.31.1.1.1.15"
Rows = list[tuple[tuple[int, ...], Value]]


@dataclass(slots=True)
class Reading:
    """What one agent gave. ``columns``: rows by OID of the column; ``why``: kind and text of what went wrong, for the rejects.

    ``ifaces``: names and megabits by ifIndex, read once; ``when_ns``: monotonic time in the middle of the reading.
    """

    target: str
    uptime: int | None = None
    boots: int | None = None
    chassis: bytes = b""
    when_ns: int = 0
    columns: dict[str, Rows] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    megabits: dict[int, int] = field(default_factory=dict)
    why: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ask:
    """Read these targets; ``identify``: also names, speeds and chassis of those not yet known."""

    targets: tuple[str, ...]
    identify: frozenset[str]


def work(pipe: Connection, targets: Sequence[Target], at_once: int) -> None:
    """Until the pipe is closed."""
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        asyncio.run(_serve(pipe, targets, at_once))


async def _serve(pipe: Connection, targets: Sequence[Target], at_once: int) -> None:
    engine = SnmpEngine()
    wires = {target.name: Wire(engine, target) for target in targets}
    known = {target.name: target for target in targets}
    missing: dict[str, set[str]] = {target.name: set() for target in targets}
    gate = asyncio.Semaphore(at_once)
    while True:
        ask: Ask = await asyncio.to_thread(pipe.recv)

        async def one(name: str, ask: Ask = ask) -> Reading:
            async with gate:
                return await _read(known[name], wires[name], name in ask.identify, missing[name])

        pipe.send(await asyncio.gather(*(one(name) for name in ask.targets)))


async def _read(target: Target, wire: Wire, identify: bool, missing: set[str]) -> Reading:
    """One agent. ``missing``: columns it was found not to have; they are not walked again until it restarts."""
    out = Reading(target.name)
    start = time.monotonic_ns()
    try:
        uptime, boots, chassis = await wire.get([UPTIME, BOOTS, CHASSIS])
        out.boots = boots if isinstance(boots, int) else None
        out.uptime = uptime if isinstance(uptime, int) else None
        out.chassis = chassis if isinstance(chassis, bytes) else b""
        if identify:
            missing.clear()
            out.names = {
                index[-1]: name.decode("utf-8", "replace")
                for index, name in await wire.walk(IF_NAME)
                if isinstance(name, bytes)
            }
            out.megabits = {index[-1]: rate for index, rate in await wire.walk(IF_SPEED) if isinstance(rate, int)}
        for read in target.profile.read:
            if read.oid in missing:
                continue
            rows = await wire.walk(read.oid)
            if rows:
                out.columns[read.oid] = rows
            else:
                missing.add(read.oid)
                out.why.append(("snmp_no_object", read.object))
    except DeviceUnreachable as error:
        out.why.append(("snmp_silent", str(error)))
    except DeviceError as error:
        out.why.append(("snmp_error", str(error)))
    out.when_ns = (start + time.monotonic_ns()) // 2
    return out
