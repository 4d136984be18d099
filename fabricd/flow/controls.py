"""What a control plane can write: lanes, arbitration, pause, marking, links, hosts. Arrays with checked setters.

The forwarding engine reads these arrays on every step, so a setter acts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabricd.errors import UsageError
from fabricd.flow.graph import BoolArray, FloatArray, Graph, IntArray
from fabricd.flow.settings import DROP_LANE, SL_COUNT, CcSettings, EcnSettings, FabricSettings


@dataclass(slots=True)
class Controls:
    """The writable state. P ports, V lanes, I ports of a node."""

    lane_of: (
        IntArray  # [P, I + 1, 16] egress port, local ingress (I = injected by an adapter), SL -> lane, 15 = discard
    )
    high_weight: FloatArray  # [P, V] VL arbitration, high-priority table (0 = not in it)
    low_weight: FloatArray  # [P, V]
    high_limit: FloatArray  # [P] bytes the high table may send while the low one waits (inf = unlimited)
    pfc_on: BoolArray  # [P, V]
    ecn_kmin: FloatArray  # [P, V] bytes
    ecn_kmax: FloatArray  # [P, V]
    ecn_pmax: FloatArray  # [P, V] (0 = no marking)
    adaptive: BoolArray  # [16] service levels whose traffic picks the emptiest member of its route set
    rate: FloatArray  # [P] bytes per second now
    link_up: BoolArray  # [P]
    isolated: BoolArray  # [P] kept out of routes, link still up
    reported: BoolArray  # [P] whether the device shows its present rate (False: a degradation it hides)
    drain: FloatArray  # [H] bytes per second an endpoint takes from its receive buffer (inf = at once)
    storm: BoolArray  # [H] endpoint asserts pause all the time
    rate_limit: FloatArray  # [H, 16] bytes per second an endpoint may inject per service level (inf = none)
    symbol_rate: FloatArray  # [P] symbol errors per second received
    cc: CcSettings

    def set_sl2vl(self, port: int, table: Sequence[int], ingress_local: int | None = None) -> None:
        """SL to VL for traffic leaving ``port`` (from every ingress, or one). Raises UsageError on a bad table."""
        if len(table) != SL_COUNT:
            raise UsageError(f"SL2VL table has {len(table)} entries, not {SL_COUNT}")
        lanes = self.pfc_on.shape[1]
        bad = [vl for vl in table if vl != DROP_LANE and not 0 <= vl < lanes]
        if bad:
            raise UsageError(f"SL2VL entry {bad[0]} is not a modelled VL (0..{lanes - 1}) nor {DROP_LANE}")
        rows = slice(None) if ingress_local is None else ingress_local
        self.lane_of[port, rows] = np.asarray(table, dtype=np.int64)

    def set_vlarb(
        self,
        port: int,
        low: Sequence[tuple[int, int]],
        high: Sequence[tuple[int, int]] = (),
        high_limit: int = 0,
    ) -> None:
        """VL arbitration of one egress: (VL, weight 0..255) lists; entries of one VL add up.

        ``high_limit`` as in PortInfo.VLHighLimit: units of 4 KiB, 0 = one packet, 255 = unlimited.
        """
        for target, entries in ((self.low_weight, low), (self.high_weight, high)):
            row = np.zeros(target.shape[1])
            for vl, weight in entries:
                if not 0 <= weight <= 255:
                    raise UsageError(f"VL arbitration weight {weight} is not 0..255")
                if 0 <= vl < len(row):
                    row[vl] += weight
            target[port] = row
        self.high_limit[port] = np.inf if high_limit == 255 else max(1.0, 4096.0 * high_limit)

    def set_ets(self, port: int, shares: Sequence[int], strict: Sequence[int] = ()) -> None:
        """ETS of one egress: percent per priority (sum 100 over those not strict), strict ones first."""
        lanes = self.low_weight.shape[1]
        if len(shares) != lanes or any(share < 0 for share in shares):
            raise UsageError(f"ETS needs {lanes} shares of 0..100, got {list(shares)}")
        if sum(shares) != 100:
            raise UsageError(f"ETS shares sum to {sum(shares)}, not 100")
        self.low_weight[port] = shares
        self.high_weight[port] = 0
        for lane in strict:
            self.high_weight[port, lane] = 1
            self.low_weight[port, lane] = 0
        self.high_limit[port] = np.inf

    def set_pfc(self, port: int, lane: int, on: bool) -> None:
        """Pause on one priority of one port: as receiver it asks for pause, as sender it honours it."""
        self.pfc_on[port, lane] = on

    def set_ecn(self, ports: int | slice, lane: int | slice, kmin: float, kmax: float, pmax: float) -> None:
        """Marking thresholds in bytes and the probability at ``kmax`` (0 switches marking off)."""
        if not 0 <= kmin <= kmax or not 0 <= pmax <= 1:
            raise UsageError(f"ECN needs 0 <= kmin <= kmax and 0 <= pmax <= 1, got {kmin}, {kmax}, {pmax}")
        self.ecn_kmin[ports, lane], self.ecn_kmax[ports, lane], self.ecn_pmax[ports, lane] = kmin, kmax, pmax


def default_controls(graph: Graph, settings: FabricSettings) -> Controls:
    """Factory settings: SL n on lane n (modulo lanes), equal weights, pause on the lossless priorities, no adaptive SL."""
    p, v, h = len(graph.ports), settings.lanes, len(graph.endpoints)
    pfc_on = np.zeros((p, v), dtype=bool)
    pfc_on[:, list(range(v)) if settings.lossless is None else [n for n in settings.lossless if n < v]] = True
    controls = Controls(
        lane_of=np.broadcast_to(np.arange(SL_COUNT) % v, (p, graph.width + 1, SL_COUNT)).copy(),
        high_weight=np.zeros((p, v)),
        low_weight=np.ones((p, v)),
        high_limit=np.full(p, np.inf),
        pfc_on=pfc_on,
        ecn_kmin=np.zeros((p, v)),
        ecn_kmax=np.zeros((p, v)),
        ecn_pmax=np.zeros((p, v)),
        adaptive=np.zeros(SL_COUNT, dtype=bool),
        rate=graph.rate.copy(),
        link_up=np.ones(p, dtype=bool),
        isolated=np.zeros(p, dtype=bool),
        reported=np.ones(p, dtype=bool),
        drain=np.full(h, np.inf),
        storm=np.zeros(h, dtype=bool),
        rate_limit=np.full((h, SL_COUNT), np.inf),
        symbol_rate=np.zeros(p),
        cc=settings.cc,
    )
    apply_ecn(controls, graph, settings.ecn, settings.slowdown)
    return controls


def apply_ecn(controls: Controls, graph: Graph, ecn: EcnSettings, slowdown: float) -> None:
    """Set every port's marking from one profile scaled by its rate (hosts do not mark)."""
    scale = graph.rate / (ecn.ref_gbps * 1.25e8) * slowdown
    switch = graph.is_switch[graph.node_of]
    controls.ecn_kmin[:] = (ecn.kmin_bytes * scale)[:, None]
    controls.ecn_kmax[:] = (ecn.kmax_bytes * scale)[:, None]
    controls.ecn_pmax[:] = np.where(switch & ecn.enabled, ecn.pmax, 0.0)[:, None]
