"""What a modelled fabric is made of: kinds, buffers, flow control, marking, source control. Plain frozen values.

Every size is in bytes at the nominal link rate. ``slowdown`` stretches the fabric's own time scale: quanta, buffers,
thresholds and link delays grow by that factor while rates and counters stay nominal. A fabric of 400 Gb/s links with
``slowdown=1000`` therefore moves 400 Gb/s in its counters, but its pause loop turns in milliseconds instead of
microseconds. That is exactly the behaviour of the same fabric with 0.4 Gb/s links and the counters multiplied by 1000.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["infiniband", "ethernet"]
Arbiter = Literal["fifo", "round_robin"]
CcKind = Literal["none", "dcqcn", "ib_cc"]
SL_COUNT = 16
DROP_LANE = 15  # the SL2VL value that means "discard"


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """Switch packet memory.

    Ethernet: one shared pool per switch, accounted at the ingress; the XOFF threshold of an ingress is
    ``free shared bytes >> alpha_shift``, or ``xoff_bytes`` when that is given. Headroom is apart from the pool.
    InfiniBand: ``vl_bytes`` per ingress and VL, advertised upstream as credits.
    """

    pool_bytes: int = 16 << 20
    alpha_shift: int = 3
    reserve_bytes: int = 4096
    resume_offset_bytes: int = 12288
    xoff_bytes: int | None = None
    headroom_bytes: int | None = None  # None: two link delays at line rate + four quanta
    vl_bytes: int | None = None  # None: ten quanta
    host_bytes: int | None = None  # receive buffer of a host that drains slowly; None: as one switch ingress


@dataclass(frozen=True, slots=True)
class EcnSettings:
    """RED-style marking on the egress queue (per priority). Thresholds are for ``ref_gbps`` and scale with the rate."""

    kmin_bytes: int = 100_000
    kmax_bytes: int = 400_000
    pmax: float = 0.2
    ref_gbps: float = 25.0
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class CcSettings:
    """Source rate control. ``dcqcn`` follows the published rules; ``ib_cc`` is the table-driven control of IBTA annex A10.

    Times are in seconds of the unstretched fabric (they grow with ``slowdown``), rates are shares of the line rate.
    """

    kind: CcKind = "none"
    cnp_interval_s: float = 50e-6
    alpha_timer_s: float = 55e-6
    increase_timer_s: float = 300e-6
    gain: float = 1.0 / 256.0
    fast_recovery: int = 5
    additive: float = 0.002
    hyper: float = 0.02
    min_rate: float = 0.004
    # ib_cc: switch threshold (0 = off, 15 = earliest) and the table walked by BECNs
    threshold: int = 8
    marking_rate: int = 0  # packets between two marked ones
    ccti_increase: int = 1
    ccti_limit: int = 127
    ccti_min: int = 0
    ccti_timer_s: float = 150e-6
    cct: tuple[float, ...] = ()  # delay factors: rate share = 1 / (1 + cct[i]); empty: i / 8


@dataclass(frozen=True, slots=True)
class FabricSettings:
    """One fabric. ``lanes`` is the number of VLs or priorities modelled (0 … lanes-1)."""

    kind: Kind = "infiniband"
    lanes: int = 4
    quantum_bytes: int = 16384
    mtu_bytes: int = 4096
    slowdown: float = 1.0
    link_delay_s: float = 1e-6
    arbiter: Arbiter | None = None  # None: fifo for ethernet, round_robin for infiniband
    buffers: BufferSettings = field(default_factory=BufferSettings)
    ecn: EcnSettings = field(default_factory=EcnSettings)
    cc: CcSettings = field(default_factory=CcSettings)
    lossless: tuple[int, ...] | None = None  # priorities with PFC on; None: all (ethernet), ignored on infiniband
    pause_refresh: bool = True  # count the pause frames a sender repeats while it holds XOFF
    reroute_delay_s: float = 0.02  # of model time: how long routes keep pointing at a link that went down
    head_of_queue_life_s: float | None = (
        None  # infiniband: discard what a switch could not send for so long (stretched)
    )
    retry_timeout_s: float = 2e-4  # how long a flow waits after a loss before it sends again (stretched)

    def __post_init__(self) -> None:
        if self.kind not in ("infiniband", "ethernet"):
            raise ValueError(f"fabric kind {self.kind!r} is neither infiniband nor ethernet")
        if not 1 <= self.lanes <= DROP_LANE:
            raise ValueError(f"lanes {self.lanes} is not 1..{DROP_LANE}")
        if self.quantum_bytes < self.mtu_bytes or self.mtu_bytes < 64:
            raise ValueError(f"quantum_bytes {self.quantum_bytes} must be at least mtu_bytes {self.mtu_bytes} (>= 64)")
        if self.slowdown < 1:
            raise ValueError(f"slowdown {self.slowdown} is below 1")
