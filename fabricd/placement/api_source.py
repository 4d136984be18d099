"""The live view from what the aggregator serves over HTTP: verdicts, doctor reports, uplink counters; the topology beside it.

A part that does not answer is left out, never guessed: no heat, no verdicts. Only a missing topology is an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fabricd.errors import FabricdError
from fabricd.model.ident import format_guid, parse_guid
from fabricd.model.topology import PortRef, Topology
from fabricd.model.verdict import Verdict
from fabricd.placement.heat import UplinkHeat, uplinks_by_leaf
from fabricd.placement.live import LiveView

SENT = "port_transmit_data_bytes"
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
                sent.update(_sent_bytes(self.get(f"/api/v1/ports?guid={format_guid(leaf)}&limit=1000")))
        with self._lock:
            if self._heat is None or self._heat.topology is not topology:
                self._heat = UplinkHeat(topology, self.window_s)
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


def _sent_bytes(document: Any) -> dict[PortRef, int | None]:
    """Bytes sent by the ports of one answer of /api/v1/ports. Raises FabricdError when it is none."""
    try:
        return {
            (parse_guid(port["guid"]), int(port["port"])): counter["value"]
            for port in document["ports"]
            for counter in port["counters"]
            if counter["name"] == SENT and counter["priority"] is None
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FabricdError(f"/api/v1/ports: not a list of ports: {type(error).__name__} {error}") from None
