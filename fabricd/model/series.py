"""History of counters as others kept it: series of raw readings by port, the cabling they tell of, and what they cannot tell."""

from __future__ import annotations

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


class Collected:
    """Builds series from single readings, whatever their order; the last reading of an instant counts."""

    def __init__(self) -> None:
        self._readings: dict[tuple[Owner, str, int | None], dict[int, float]] = {}

    def add(self, owner: Owner, counter: str, prio: int | None, t_ns: int, value: float) -> None:
        self._readings.setdefault((owner, counter, prio), {})[t_ns] = value

    def series(self) -> list[Series]:
        out: list[Series] = []
        for (owner, counter, prio), readings in self._readings.items():
            times = sorted(readings)
            out.append(Series(owner, counter, prio, array("q", times), array("d", [readings[t] for t in times])))
        return out
