"""What an all-reduce costs: bytes on the wire, alpha-beta times of ring, tree and hierarchical algorithms.

Units: sizes in bytes, bandwidths in GB/s (10^9 bytes per second), times in seconds unless a name says ``_us``.
``n`` ranks on ``k`` nodes with ``m`` NICs each. Formulas and constants: NCCL's own tuning model (src/graph/tuning.cc: base and
per-hop latencies by algorithm and protocol) and the definition of bus bandwidth in nccl-tests' doc/PERFORMANCE.md.
An alpha-beta model is good to 10 to 20 % for large messages and sizing, not for small messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Protocol = Literal["LL", "LL128", "Simple"]
Algorithm = Literal["ring", "tree", "nvls", "nvlstree"]
Collective = Literal["allreduce", "reducescatter", "allgather", "alltoall", "broadcast", "reduce"]

PROTOCOLS: tuple[Protocol, ...] = ("LL", "LL128", "Simple")
# Microseconds, in the order of PROTOCOLS (NCCL 2.30 tuning.cc).
BASE_US = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4), "nvls": (0.0, 0.0, 0.0), "nvlstree": (0.0, 0.0, 0.0)}
NVLINK_HOP_US = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0), "nvls": (25.0,) * 3, "nvlstree": (25.0,) * 3}
NETWORK_HOP_US = {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0), "nvls": (18.0,) * 3, "nvlstree": (20.9,) * 3}
# LL carries a flag with every data word, LL128 120 bytes of data in 128 (NCCL documentation).
PROTOCOL_EFFICIENCY = (0.5, 120 / 128, 1.0)
NETWORK_OVERHEAD_US = {"intel": 1.0, "amd": 2.0}


def bus_factor(collective: Collective, n: int) -> float:
    """busbw = algbw × this (nccl-tests): what every rank must move, as a share of the message."""
    if n < 1:
        raise ValueError(f"{n} ranks")
    if collective == "allreduce":
        return 2 * (n - 1) / n
    if collective in ("reducescatter", "allgather", "alltoall"):
        return (n - 1) / n
    return 1.0


def seconds_from_busbw(size: float, n: int, busbw: float, collective: Collective = "allreduce") -> float:
    """Time of one collective of ``size`` bytes at a measured bus bandwidth."""
    return size * bus_factor(collective, n) / (busbw * 1e9)


def wire_rate_per_nic(busbw: float, n: int, k: int) -> float:
    """GB/s that each NIC carries in a ring or hierarchical all-reduce with one NIC a GPU: busbw × (k-1)/(n-1)."""
    if k < 2 or n <= k:
        raise ValueError("needs at least two nodes with more than one GPU each")
    return busbw * (k - 1) / (n - 1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the model needs of a cluster. ``nvlink_gbs`` is the bus bandwidth inside a node, ``nic_gbs`` of one NIC."""

    nodes: int
    gpus_per_node: int
    nics_per_node: int
    nic_gbs: float
    nvlink_gbs: float
    cpu: Literal["intel", "amd"] = "intel"
    # Share of a NIC's rate that the uplinks used still give; measured congestion enters here (1 = none).
    uplink_share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("nodes", "gpus_per_node", "nics_per_node"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: at least 1")
        for name in ("nic_gbs", "nvlink_gbs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} = {getattr(self, name)}: above 0")
        if not 0 < self.uplink_share <= 1:
            raise ValueError(f"uplink_share = {self.uplink_share}: above 0, at most 1")

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def node_network_gbs(self) -> float:
        """What all NICs of a node give together on the congested path (a ring is as slow as its slowest hop)."""
        return self.nics_per_node * self.nic_gbs * self.uplink_share


@dataclass(frozen=True, slots=True)
class Estimate:
    """One algorithm's time, with its parts."""

    algorithm: Algorithm
    protocol: Protocol
    seconds: float
    latency_seconds: float
    transfer_seconds: float
    busbw_gbs: float


def estimate(cluster: Cluster, size: float, algorithm: Algorithm = "ring", protocol: Protocol = "Simple") -> Estimate:
    """Alpha-beta time of one all-reduce of ``size`` bytes. Raises ValueError for a size that is not positive."""
    if not size > 0:
        raise ValueError(f"size = {size}: above 0 bytes")
    n, k = cluster.ranks, cluster.nodes
    column = PROTOCOLS.index(protocol)
    intra = NVLINK_HOP_US[algorithm][column]
    inter = NETWORK_HOP_US[algorithm][column] + NETWORK_OVERHEAD_US[cluster.cpu]
    bandwidth = cluster.nvlink_gbs if k == 1 else min(cluster.nvlink_gbs, cluster.node_network_gbs)
    if algorithm == "ring":
        steps, network_steps = 2 * (n - 1), 2 * (k - 1)
        latency = (steps - network_steps) * intra + network_steps * inter
        transfer = size * 2 * (n - 1) / n / bandwidth
    elif algorithm == "tree":
        latency = 2 * ((n / k - 1) * intra + math.log2(k) * inter)
        transfer = size * 2 / bandwidth if n > 1 else 0.0
    else:
        latency = intra + 2 * math.log2(k) * inter
        transfer = size * 2 * (n - 1) / n / bandwidth
    latency_s = (BASE_US[algorithm][column] + latency) * 1e-6
    transfer_s = transfer * 1e-9 / PROTOCOL_EFFICIENCY[column]
    seconds = latency_s + transfer_s
    return Estimate(
        algorithm, protocol, seconds, latency_s, transfer_s, size * bus_factor("allreduce", n) / seconds / 1e9
    )


def best(cluster: Cluster, size: float) -> Estimate:
    """The fastest of ring and tree over the three protocols, as a tuner would choose."""
    algorithms: tuple[Algorithm, ...] = ("ring", "tree")
    found = [estimate(cluster, size, algorithm, protocol) for algorithm in algorithms for protocol in PROTOCOLS]
    return min(found, key=lambda one: one.seconds)


def hierarchical(cluster: Cluster, size: float) -> tuple[float, float]:
    """Bounds (seconds) of reduce-scatter in the node, all-reduce over the rails, all-gather in the node.

    Lower: both stages perfectly pipelined (the longer one counts); upper: one after the other.
    """
    g, k = cluster.gpus_per_node, cluster.nodes
    inside = 2 * (g - 1) / g * size / (cluster.nvlink_gbs * 1e9)
    across = 2 * (k - 1) / k * size / (cluster.node_network_gbs * 1e9)
    return max(inside, across), inside + across


def wire_bytes_per_nic(cluster: Cluster, size: float) -> float:
    """Bytes each NIC sends for one hierarchical all-reduce of ``size`` bytes: 2(k-1)/k × size / m."""
    return 2 * (cluster.nodes - 1) / cluster.nodes * size / cluster.nics_per_node


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """time = alpha + bytes moved / beta; ``rms_error`` is the relative error over the fitted points."""

    alpha_seconds: float
    beta_gbs: float
    rms_error: float

    def seconds(self, size: float, n: int) -> float:
        return self.alpha_seconds + size * bus_factor("allreduce", n) / (self.beta_gbs * 1e9)


def fit_alpha_beta(points: Sequence[tuple[float, float]], n: int) -> AlphaBeta:
    """Least squares in relative error over (size in bytes, seconds). Raises ValueError with fewer than two sizes.

    Minimises sum((alpha + x/beta - t)^2 / t^2): the 2×2 normal equations solved directly.
    """
    if len({size for size, _ in points}) < 2 or any(not t > 0 for _, t in points):
        raise ValueError("needs at least two sizes and positive times")
    moved = [size * bus_factor("allreduce", n) for size, _ in points]
    times = [t for _, t in points]
    weight = [1 / t**2 for t in times]
    s0 = sum(weight)
    s1 = sum(w * x for w, x in zip(weight, moved, strict=True))
    s2 = sum(w * x * x for w, x in zip(weight, moved, strict=True))
    r0 = sum(w * t for w, t in zip(weight, times, strict=True))
    r1 = sum(w * x * t for w, x, t in zip(weight, moved, times, strict=True))
    determinant = s0 * s2 - s1 * s1
    alpha, slope = (r0 * s2 - r1 * s1) / determinant, (s0 * r1 - s1 * r0) / determinant
    if slope <= 0:
        raise ValueError("time does not grow with size: no bandwidth can be fitted")
    errors = [(alpha + slope * x) / t - 1 for x, t in zip(moved, times, strict=True)]
    return AlphaBeta(alpha, 1e-9 / slope, math.sqrt(sum(e * e for e in errors) / len(errors)))
