"""How much communication a placement leaves exposed: an interval per tensor-parallel group, from the all-reduce model.

Lower bound: the stages inside a node and over the rails overlap perfectly; upper: one after the other, nothing overlaps
with compute. A group that leaves its rail group shares the uplinks with their present load, so its adapters count with
the part of the rate that the hottest uplink leaves. Not a measurement: the plan says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fabricd.jobs.allreduce import Cluster, hierarchical
from fabricd.jobs.transformer import Transformer
from fabricd.placement.request import Request

GIB = 1 << 30
LEAST_SHARE = 0.05  # an uplink that is full still gives a new flow its part


@dataclass(frozen=True, slots=True)
class Exposed:
    """Milliseconds (lower, upper) per microbatch when the model is given, else per GiB all-reduced."""

    low_ms: float
    high_ms: float
    per: str

    def to_json(self) -> dict[str, Any]:
        return {"low_ms": round(self.low_ms, 3), "high_ms": round(self.high_ms, 3), "per": self.per}


def exposed(request: Request, nodes: int, crosses: bool, in_domain: bool, heat: float) -> Exposed:
    """One tensor-parallel group on ``nodes`` nodes. ``heat``: load (0..1) of the hottest uplink it would use."""
    job, hardware = request.job, request.hardware
    gpus = min(job.tp, job.gpus_per_node)
    share = max(LEAST_SHARE, 1.0 - heat) if crosses else 1.0
    if job.tp == 1:
        return Exposed(0.0, 0.0, "microbatch" if request.model else "GiB")
    cluster = Cluster(
        nodes=1 if in_domain else nodes,
        # Inside an NVLink domain all GPUs of the group are one set behind NVLink: no adapter takes part.
        gpus_per_node=gpus * nodes if in_domain else gpus,
        nics_per_node=hardware.nics_per_node or gpus,
        nic_gbs=hardware.nic_gbs,
        nvlink_gbs=hardware.nvlink_gbs,
        uplink_share=share,
    )
    if request.model is None:
        low, high = hierarchical(cluster, GIB)
        return Exposed(low * 1e3, high * 1e3, "GiB")
    model = request.model
    shape = Transformer(model.layers, model.hidden, model.sequence, model.microbatch, model.full_recompute)
    low, high = hierarchical(cluster, shape.message_bytes)
    count = shape.allreduces / job.pp  # a pipeline stage holds its part of the layers
    return Exposed(low * count * 1e3, high * count * 1e3, "microbatch")
