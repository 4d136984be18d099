"""A regular rail-optimised fabric from three numbers, for simulations and sizing questions."""

from __future__ import annotations

import numpy as np

from fabricd.placement.fabric import Fabric, Group


def synthetic_fabric(groups: int, group_size: int, groups_per_pod: int, domain_size: int = 0) -> Fabric:
    """``groups`` rail groups of ``group_size`` hosts; ``domain_size`` > 0 puts that many neighbours into one NVLink domain."""
    count = groups * group_size
    width = len(str(count))
    domain = np.full(count, -1, dtype=np.int64)
    if domain_size:
        per_group = -(-group_size // domain_size)
        index = np.arange(count)
        domain = index // group_size * per_group + index % group_size // domain_size
    return Fabric(
        name="synthetic",
        source="synthetic",
        digest=f"{groups}x{group_size}/{groups_per_pod}/{domain_size}",
        hosts=[f"gpu{i + 1:0{width}d}" for i in range(count)],
        group=np.repeat(np.arange(groups, dtype=np.int64), group_size),
        domain=domain,
        groups=[Group(f"su{g + 1}", g // groups_per_pod, 0, ()) for g in range(groups)],
        pods=[f"pod{p + 1}" for p in range(-(-groups // groups_per_pod))],
        roots=1,
        domains=[f"nvl{d + 1}" for d in range(int(domain.max()) + 1)],
    )
