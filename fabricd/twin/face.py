"""What a face needs from the model: a plan (who is cabled to whom), counters to show, and levers to pull.

Faces never see the model itself, so the model may run in this process, in another one, or be a table in a test.
Counters are cumulative since the start and never decrease; every width, stickiness and unit of a real interface is
the face's own business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SERVICE_LEVELS = 16
U64 = NDArray[np.uint64]
Technology = Literal["infiniband", "ethernet"]


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A switch, or one network adapter of a host. ``first_row`` is the counter row of its lowest port."""

    index: int
    kind: Literal["switch", "adapter"]
    name: str
    guid: int
    ports: int  # number of external ports, numbered from 1
    first_row: int
    host: str = ""  # adapters: the host they sit in
    nic: int = 0  # adapters: which one of the host
    tier: int = 0  # switches: 1 = leaf, 2 = spine, …


@dataclass(frozen=True)
class Plan:
    """The cabling. A *row* numbers every external port of every node; all counter arrays are indexed by it."""

    technology: Technology
    nodes: tuple[PlanNode, ...]
    row_node: NDArray[np.int32]  # row -> node index
    row_port: NDArray[np.int32]  # row -> port number (1…)
    row_peer: NDArray[np.int32]  # row -> row at the other end of the cable, -1 = no cable
    row_gbps: NDArray[np.float64]  # row -> nominal rate, Gb/s
    lanes: int  # priorities (Ethernet) or virtual lanes (InfiniBand) the model keeps apart
    fabric: str = "default"

    @property
    def rows(self) -> int:
        return len(self.row_node)

    @cached_property
    def switches(self) -> tuple[PlanNode, ...]:
        return tuple(node for node in self.nodes if node.kind == "switch")

    @cached_property
    def adapters(self) -> tuple[PlanNode, ...]:
        """Every adapter is a destination: routes are indexed by the position in this tuple."""
        return tuple(node for node in self.nodes if node.kind == "adapter")

    @cached_property
    def hosts(self) -> dict[str, list[PlanNode]]:
        """Host name -> its adapters by number."""
        found: dict[str, list[PlanNode]] = {}
        for node in self.adapters:
            found.setdefault(node.host, []).append(node)
        for adapters in found.values():
            adapters.sort(key=lambda node: node.nic)
        return found

    def row(self, node: PlanNode, port: int) -> int:
        """The row of a port. Raises IndexError when the node has no such external port."""
        if not 1 <= port <= node.ports:
            raise IndexError(f"{node.name} has no port {port}")
        return node.first_row + port - 1

    def node_of(self, row: int) -> PlanNode:
        return self.nodes[int(self.row_node[row])]


@dataclass(slots=True)
class Counters:
    """One published reading of the whole fabric; times are nanoseconds. ``tx`` is what leaves a port, ``rx`` what enters."""

    tick: int  # grows with every reading
    clock_ns: int  # time of the reading on the fabric's clock
    # [rows, lanes]: by priority (Ethernet) or virtual lane (InfiniBand)
    tx_bytes: U64
    rx_bytes: U64
    tx_packets: U64
    rx_packets: U64
    wait_ns: U64  # data to send on this lane, and no credit (or held by pause)
    pause_rx_frames: U64  # pause frames that arrived (this port was told to stop)
    pause_tx_frames: U64
    pause_rx_ns: U64  # how long this port was stopped
    pause_tx_ns: U64  # how long it held its peer stopped
    marked: U64  # packets marked ECN-CE or FECN when they left through this port
    drops: U64  # discarded here
    lane_congested_ns: U64  # this lane's egress queue above its marking threshold
    queue_bytes: U64  # gauge: the largest queue lately
    # [rows, 16]: by service level
    sl_tx_bytes: U64
    sl_rx_bytes: U64
    sl_fecn: U64  # packets that arrived marked
    sl_becn: U64  # congestion notifications that arrived
    # [rows]
    port_wait_ns: U64  # data to send on some lane, and nothing sent
    congested_ns: U64  # an egress queue above its marking threshold
    ce_rx: U64  # adapters: packets that arrived marked
    cnp_rx: U64  # adapters: congestion notifications (BECN) that arrived
    cnp_tx: U64
    hoq_discards: U64  # the part of the drops that waited too long at the head of a queue
    rcv_errors: U64
    symbol_errors: U64
    link_downed: U64
    link_recovered: U64
    up: NDArray[np.bool_]  # link trained
    gbps: NDArray[np.float64]  # present rate of the link

    @classmethod
    def zero(cls, plan: Plan) -> Counters:
        """A reading of a fabric that has just been switched on."""
        arrays: dict[str, U64] = {name: np.zeros((plan.rows, plan.lanes), np.uint64) for name in BY_LANE}
        arrays |= {name: np.zeros((plan.rows, SERVICE_LEVELS), np.uint64) for name in BY_LEVEL}
        arrays |= {name: np.zeros(plan.rows, np.uint64) for name in BY_PORT}
        return cls(tick=0, clock_ns=0, up=plan.row_peer >= 0, gbps=plan.row_gbps.copy(), **arrays)


BY_LANE = (
    "tx_bytes", "rx_bytes", "tx_packets", "rx_packets", "wait_ns", "pause_rx_frames", "pause_tx_frames", "pause_rx_ns",
    "pause_tx_ns", "marked", "drops", "lane_congested_ns", "queue_bytes",
)  # fmt: skip
BY_LEVEL = ("sl_tx_bytes", "sl_rx_bytes", "sl_fecn", "sl_becn")
BY_PORT = (
    "port_wait_ns", "congested_ns", "ce_rx", "cnp_rx", "cnp_tx", "hoq_discards", "rcv_errors", "symbol_errors",
    "link_downed", "link_recovered",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Marking:
    """When an Ethernet queue marks (ECN): from ``kmin`` bytes with growing probability up to ``pmax`` at ``kmax`` bytes."""

    enabled: bool
    kmin: int = 0
    kmax: int = 0
    pmax: float = 1.0


@dataclass(frozen=True, slots=True)
class SourceControl:
    """How a source answers marks: each mark climbs ``increase`` entries of ``table``, each timer goes one back.

    ``table`` holds inter-packet delays in packet times, used up to ``limit`` and not below ``minimum``.
    """

    enabled: bool
    increase: int = 1
    timer_us: float = 0.0
    limit: int = 127
    minimum: int = 0
    table: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Arbitration:
    """InfiniBand VL arbitration: (VL, weight in 64-byte units) lists, and the high table's limit (x 4 KiB)."""

    high: tuple[tuple[int, int], ...] = ()
    low: tuple[tuple[int, int], ...] = field(default=())
    high_limit: int = 0


class Levers(Protocol):
    """What the outside may change. Each takes effect in the model's next step."""

    def set_routes(self, switch: int, egress: NDArray[np.int16]) -> None:
        """``egress[d]``: port number towards ``plan.adapters[d]``, 0 or less = no route (the traffic stops there)."""

    def set_sl_to_vl(self, row: int, ingress: int, mapping: tuple[int, ...]) -> None:
        """Lane of each of 16 service levels of traffic from port ``ingress`` that leaves through ``row``; 15 = dropped.

        Adapters have only ingress 0: what they send themselves.
        """

    def set_arbitration(self, row: int, arbitration: Arbitration) -> None: ...

    def set_threshold(self, switch: int, threshold: int, marking_rate: int) -> None:
        """InfiniBand marking of a switch: 0 = off, 15 = the earliest; packets between two marked ones."""

    def set_marking(self, row: int, priority: int, marking: Marking) -> None: ...

    def set_source_control(self, row: int, priority: int, control: SourceControl) -> None: ...

    def set_enabled(self, row: int, enabled: bool) -> None:
        """Administrative state of a port; a link is up only when both ends are enabled and it is not broken."""

    def set_gbps(self, row: int, gbps: float) -> None: ...

    def set_pfc(self, row: int, priority: int, on: bool) -> None: ...

    def set_shares(self, row: int, shares: tuple[int, ...]) -> None:
        """ETS bandwidth shares of the priorities, percent; they add up to 100."""

    def set_isolated(self, row: int, isolated: bool) -> None:
        """Keep a link out of the routes while it stays up."""

    def set_service_level(self, rows: list[int], level: int) -> None:
        """Traffic between these adapters' ports goes on this service level from now on."""

    def set_rate_limit(self, row: int, level: int | None, gbps: float | None) -> None:
        """Shape what an adapter sends on one service level (None: all of them); None Gb/s = no limit."""


class Fabric(Levers, Protocol):
    """The model as the faces see it."""

    @property
    def plan(self) -> Plan: ...

    def read(self) -> Counters:
        """The newest reading (arrays are not to be written)."""

    @property
    def managed(self) -> bool:
        """Whether somebody outside programs the forwarding tables (then routes no longer follow links by themselves)."""

    @property
    def buffer_bytes(self) -> int:
        """Packet memory of a switch, which percentages of queue thresholds refer to."""

    def pfc(self, row: int, priority: int) -> bool:
        """Whether flow control of a priority is on at a port."""

    def shares(self, row: int) -> tuple[int, ...]:
        """ETS shares of the eight priorities, percent."""

    def marking(self, row: int, priority: int) -> Marking: ...

    def routes(self) -> NDArray[np.int16]:
        """``[switches, adapters]``: the egress port number of each as things are."""
