"""Which hosts of a group: whole NVLink domains first, best fit, then name order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabricd.placement.fabric import Fabric
from fabricd.placement.problem import Ints, Problem


def pick_units(fabric: Fabric, usable: NDArray[np.bool_], group: int, units: int, unit: int, inside: int) -> Ints:
    """``units`` × ``unit`` usable hosts of a group, consecutive ones a unit; ``inside`` units can stay in a domain."""
    hosts = np.flatnonzero(usable & (fabric.group == group))
    if unit == 1 or not (fabric.domain[hosts] >= 0).any():
        return hosts[: units * unit]
    cells: dict[int, list[int]] = {}
    for host in hosts.tolist():
        cells.setdefault(int(fabric.domain[host]), []).append(host)
    taken: list[int] = []
    left = min(units, inside)
    while left:
        # The smallest domain that holds all that is left, else the largest.
        able = [c for c in cells.values() if len(c) // unit >= left]
        cell = min(able, key=len) if able else max(cells.values(), key=lambda c: len(c) // unit)
        take = min(left, len(cell) // unit)
        if take == 0:
            break  # domains are to be ignored: what is left may mix them
        taken += cell[: take * unit]
        del cell[: take * unit]
        left -= take
    rest = [host for cell in cells.values() for host in cell]
    taken += rest[: units * unit - len(taken)]
    return np.array(taken, dtype=np.int64)


def pick_crossing(fabric: Fabric, usable: NDArray[np.bool_], problem: Problem, x: Ints, crossings: int) -> Ints:
    """All whole units of every group, then ``crossings`` units from leftover hosts, neighbours in the same pod first."""
    order: list[int] = []
    rest: list[int] = []
    by_group = {int(g): np.flatnonzero(usable & (fabric.group == g)) for g in problem.origin}
    for canonical in np.lexsort((np.arange(problem.groups), problem.pod)).tolist():
        group = int(problem.origin[canonical])
        count = int(x[canonical]) * problem.unit
        if count:
            chosen = pick_units(
                fabric,
                usable,
                group,
                int(x[canonical]),
                problem.unit,
                int(min(problem.inside[canonical], x[canonical])),
            )
            order += chosen.tolist()
        taken = set(order[len(order) - count :])
        rest += [host for host in by_group[group].tolist() if host not in taken]
    return np.array(order + rest[: crossings * problem.unit], dtype=np.int64)
