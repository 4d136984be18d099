"""What tensor parallelism asks of the fabric: all-reduces of a Megatron-style transformer, and the share of time they take.

Each layer does two all-reduces forward and two backward per microbatch, each of 2·b·s·h bytes in bf16 (two more with full
recomputation); sequence parallelism replaces one by a reduce-scatter and an all-gather of the same sum. In inference it is
two per layer and token. Source: the Megatron-LM papers (1909.08053, 2104.04473, 2205.05198).
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES_BF16 = 2


@dataclass(frozen=True, slots=True)
class Transformer:
    """``layers`` × ``hidden``, sequences of ``sequence`` tokens, ``microbatch`` of them at once."""

    layers: int
    hidden: int
    sequence: int
    microbatch: int = 1
    full_recompute: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "sequence", "microbatch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: at least 1")

    @property
    def message_bytes(self) -> int:
        """Size of one tensor-parallel all-reduce in training."""
        return BYTES_BF16 * self.microbatch * self.sequence * self.hidden

    @property
    def allreduces(self) -> int:
        """All-reduces per microbatch, forward and backward."""
        return self.layers * (6 if self.full_recompute else 4)

    @property
    def decode_message_bytes(self) -> int:
        """Size of one all-reduce when a single token is decoded."""
        return BYTES_BF16 * self.microbatch * self.hidden

    @property
    def training_flops(self) -> float:
        """Forward and backward of one microbatch: 6 × parameters × tokens plus attention's 12·L·h·s² per sequence."""
        parameters = 12 * self.layers * self.hidden**2
        tokens = self.microbatch * self.sequence
        attention = 12 * self.layers * self.hidden * self.sequence**2 * self.microbatch
        flops = 6 * parameters * tokens + attention
        return flops * (4 / 3 if self.full_recompute else 1)


@dataclass(frozen=True, slots=True)
class StepShare:
    """Time of one microbatch when nothing overlaps: an upper bound of exposed communication."""

    compute_seconds: float
    communication_seconds: float

    @property
    def compute_share(self) -> float:
        return self.compute_seconds / (self.compute_seconds + self.communication_seconds)


def step_share(model: Transformer, ranks: int, flops_per_gpu: float, efficiency: float, busbw_gbs: float) -> StepShare:
    """Compute and tensor-parallel communication of one microbatch on ``ranks`` GPUs at a bus bandwidth for that message size."""
    if ranks < 1 or not flops_per_gpu > 0 or not 0 < efficiency <= 1 or not busbw_gbs > 0:
        raise ValueError("ranks >= 1, flops and bandwidth above 0, efficiency above 0 and at most 1")
    compute = model.training_flops / (ranks * flops_per_gpu * efficiency)
    factor = 2 * (ranks - 1) / ranks
    return StepShare(compute, model.allreduces * model.message_bytes * factor / (busbw_gbs * 1e9))
