"""Faults of telemetry: the fabric is well, but what shows it is not. Seeded; the truth knows nothing of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fabricd.errors import UsageError
from fabricd.twin.face import Plan, PlanNode

NAMES = ("loss", "blind", "resets", "mixed-cadence")
RESET_EVERY_S = 20.0
PACES_S = (1.0, 2.0, 5.0)


@dataclass
class TelemetryFaults:
    """What goes wrong with whom. Raises UsageError for an unknown name.

    loss: every node's performance agent leaves 5 to 20 % of the requests unanswered. blind: one to a fifth of the switches
    never answer them. resets: somebody clears all counters of one node every 20 s. mixed-cadence: hosts' files are
    renewed every 1, 2 or 5 s.
    """

    plan: Plan
    name: str
    seed: int
    lost_share: float = 0.0
    blind: frozenset[int] = frozenset()  # node indices
    _rng: np.random.Generator = field(init=False)
    _next_reset_s: float = field(default=RESET_EVERY_S, init=False)

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise UsageError(f"unknown telemetry fault {self.name!r}; there are: {' '.join(NAMES)}")
        self._rng = np.random.default_rng((self.seed, 77))
        if self.name == "loss":
            self.lost_share = float(self._rng.uniform(0.05, 0.2))
        if self.name == "blind":
            switches = [node.index for node in self.plan.switches]
            count = max(1, round(len(switches) * float(self._rng.uniform(0.05, 0.2))))
            self.blind = frozenset(self._rng.choice(switches, count, replace=False).tolist())

    def unanswered(self, node: PlanNode) -> bool:
        """Whether a request to this node's performance agent gets no answer."""
        return node.index in self.blind or (self.lost_share > 0 and float(self._rng.random()) < self.lost_share)

    def cleared(self, clock_s: float) -> PlanNode | None:
        """A node whose counters somebody cleared since the last call."""
        if self.name != "resets" or clock_s < self._next_reset_s:
            return None
        self._next_reset_s += RESET_EVERY_S
        return self.plan.nodes[int(self._rng.integers(len(self.plan.nodes)))]

    def pace_s(self, host: str) -> float | None:
        """How often a host's files are renewed; None = as fast as all others."""
        if self.name != "mixed-cadence":
            return None
        place = list(self.plan.hosts).index(host)
        return PACES_S[int(np.random.default_rng((self.seed, 78, place)).integers(len(PACES_S)))]
