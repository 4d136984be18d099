"""The live view from what the aggregator serves over HTTP: verdicts, doctor reports, uplink counters; the topology beside it.

A part that does not answer is left out, never guessed: no heat, no verdicts. Only a missing topology is an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fabricd.errors import FabricdError
from fabricd.model.ident import format_guid, parse_guid
from fabricd.model.topology import PortRef, Topology
from fabricd.model.verdict import Verdict
from fabricd.placement.check import Traffic
from fabricd.placement.fabric import Fabric
from fabricd.placement.heat import UplinkHeat, uplinks_by_leaf
from fabricd.placement.live import LiveView

SENT, RECEIVED = "port_transmit_data_bytes", "port_receive_data_bytes"
Get = Callable[[str], Any]  # path with query -> decoded JSON; raises FabricdError


@dataclass(slots=True)
class ApiSource:
    """``topology`` is asked on every view and may cache; ``get`` asks the aggregator. Safe to call from several threads."""

    get: Get
    topology: Callable[[], Topology]
    window_s: float = 120.0
    clock: Callable[[], float] = time.monotonic
    _heat: UplinkHeat | None = field(default=None)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> LiveView:
        """Raises FabricdError when no topology is known."""
        topology = self.topology()
        with self._lock:
            heat = self._heat.groups() if self._heat is not None else {}
        return LiveView(topology, heat, self._verdicts(), self._doctor())

    def sample(self) -> None:
        """Read the uplink counters once; call it every half window. Raises FabricdError when nothing answers."""
        topology = self.topology()
        sent: dict[PortRef, int | None] = {}
        for leaves in uplinks_by_leaf(topology).values():
            for leaf in leaves:
                sent.update(port_bytes(self.get, leaf, SENT))
        with self._lock:
            if self._heat is None:
                self._heat = UplinkHeat(topology, self.window_s)
            # Readings are kept by port, so they stay good when the fabric is looked at again.
            self._heat.topology = topology
            self._heat.add(self.clock(), sent)

    def _verdicts(self) -> list[Verdict]:
        try:
            document = self.get("/api/v1/verdicts")
            return msgspec.convert(document["verdicts"], list[Verdict])
        except (FabricdError, msgspec.ValidationError, KeyError, TypeError):
            return []

    def _doctor(self) -> list[dict[str, Any]]:
        try:
            reports = self.get("/api/v1/doctor")["reports"]
        except (FabricdError, KeyError, TypeError):
            return []
        return [{"reports": reports}] if isinstance(reports, list) else []


def port_bytes(get: Get, guid: int, name: str) -> dict[PortRef, int | None]:
    """A byte counter of every port of a switch. Raises FabricdError when nothing answers or the answer is no list of ports."""
    document = get(f"/api/v1/ports?guid={format_guid(guid)}&limit=1000")
    try:
        return {
            (parse_guid(port["guid"]), int(port["port"])): counter["value"]
            for port in document["ports"]
            for counter in port["counters"]
            if counter["name"] == name and counter["priority"] is None
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FabricdError(f"/api/v1/ports: not a list of ports: {type(error).__name__} {error}") from None


def measure_traffic(
    get: Get, fabric: Fabric, hosts: Iterable[str], pause: Callable[[], object]
) -> dict[PortRef, Traffic]:
    """Bytes of every leaf port of the hosts' rail groups between two readings, ``pause`` called between them.

    A port that was not read twice, or whose counter went down, is left out: not observed.
    """
    groups = {int(fabric.group[fabric.index[host]]) for host in hosts if host in fabric.index}
    leaves = sorted({leaf for group in groups for rail in fabric.groups[group].leaves for leaf in rail})

    def read(name: str) -> dict[PortRef, int | None]:
        return {ref: value for leaf in leaves for ref, value in port_bytes(get, leaf, name).items()}

    before = read(SENT), read(RECEIVED)
    pause()
    after = read(SENT), read(RECEIVED)
    out: dict[PortRef, Traffic] = {}
    for ref in before[0]:
        grown = [_grown(old.get(ref), new.get(ref)) for old, new in zip(before, after, strict=True)]
        if grown[0] is not None and grown[1] is not None:
            out[ref] = Traffic(grown[0], grown[1])
    return out


def _grown(before: int | None, after: int | None) -> int | None:
    return after - before if before is not None and after is not None and after >= before else None
