"""History of counters as others kept it: series of raw readings by port, the cabling they tell of, and what they cannot tell."""

from __future__ import annotations

import itertools
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from fabricd.model.rejects import Rejects

LINK_RATE = "link_rate"  # pseudo counter: the speed a port reports, bits/s


class Owner(NamedTuple):
    """A port as its source names it: by ``guid`` (of node or port), or by ``host`` and ``device`` where no GUID is told."""

    guid: int | None
    port: int
    host: str = ""
    device: str = ""
    adapter: bool = False


class Series(NamedTuple):
    """Readings of one counter of one port, by time.

    ``counter`` is a name of the catalogue, in its unit; ``prio`` None = whole port.
    """

    owner: Owner
    counter: str
    prio: int | None
    t_ns: array[int]  # typecode q, wall clock
    values: array[float]  # typecode d


class Wire(NamedTuple):
    """One end's view of a cable. Types are those of model.topology; ``rate_bps`` 0 = not told."""

    near: tuple[int, int]
    near_type: str
    near_name: str
    far: tuple[int, int]
    far_type: str
    far_name: str
    rate_bps: float = 0.0


@dataclass(slots=True)
class History:
    """``notes``: what this kind of source cannot show, in words for people."""

    series: list[Series] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    rejects: Rejects = field(default_factory=Rejects)
    notes: list[str] = field(default_factory=list)


class Readings:
    """Readings of one counter as they come in, packed; whole days of a fabric fit into memory."""

    def __init__(self) -> None:
        self._t = array("q")
        self._values = array("d")

    def add(self, t_ns: int, value: float) -> None:
        """Raises OverflowError for an instant beyond 64 bits."""
        self._t.append(t_ns)
        self._values.append(value)

    def ordered(self) -> tuple[array[int], array[float]]:
        """By time. Of several readings of one instant the last that came counts."""
        if all(before < after for before, after in itertools.pairwise(self._t)):
            return self._t, self._values
        last = dict(zip(self._t, self._values, strict=True))
        times = sorted(last)
        return array("q", times), array("d", [last[t] for t in times])


class Collected:
    """Builds series from single readings, whatever their order."""

    def __init__(self) -> None:
        self._readings: dict[tuple[Owner, str, int | None], Readings] = {}

    def of(self, owner: Owner, counter: str, prio: int | None) -> Readings:
        """Where the readings of one counter of one port go."""
        key = owner, counter, prio
        found = self._readings.get(key)
        if found is None:
            found = self._readings[key] = Readings()
        return found

    def add(self, owner: Owner, counter: str, prio: int | None, t_ns: int, value: float) -> None:
        self.of(owner, counter, prio).add(t_ns, value)

    def series(self) -> list[Series]:
        """Those with any reading."""
        ordered = ((key, *readings.ordered()) for key, readings in self._readings.items())
        return [Series(*key, t, values) for key, t, values in ordered if t]
