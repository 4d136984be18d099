"""A running job: which hosts it has, and what is known of its groups. Pure data."""

from __future__ import annotations

from itertools import permutations
from typing import Literal

import msgspec

Source = Literal["slurm", "kubernetes", "static"]


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """``groups`` are the sets of hosts that exchange traffic (tensor-parallel groups or rings) where they are known."""

    id: str
    name: str = ""
    source: Source = "static"
    nodes: tuple[str, ...] = ()
    gpus_per_node: int | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    started_ns: int | None = None

    def pairs(self) -> set[tuple[str, str]]:
        """Who may talk to whom: ordered pairs of hosts. Without groups every pair of the job's hosts (a superset)."""
        return {pair for group in (self.groups or (self.nodes,)) for pair in permutations(group, 2)}


def jobs_by_host(jobs: list[Job]) -> dict[str, list[Job]]:
    """Which jobs sit on each host (several where nodes are shared)."""
    out: dict[str, list[Job]] = {}
    for job in jobs:
        for node in job.nodes:
            out.setdefault(node, []).append(job)
    return out
