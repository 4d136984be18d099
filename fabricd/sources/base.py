"""What a source gives: a group of counters of one port that are read together into the cells of a frame."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from fabricd.model.catalogue import CounterDef


class SourceGone(Exception):
    """The device or interface went away while it was read: the port must be looked for again."""


class LayoutChanged(Exception):
    """The set of counters is not what it was: the columns must be laid out again."""


class CounterGroup(Protocol):
    """Counters of one port from one interface. ``columns`` stay the same for the group's life."""

    columns: Sequence[CounterDef]

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        """Write one cell per column from index ``at`` on; ``flags`` as model.sample.Flag. ``tick`` counts intervals.

        What cannot be read leaves its cell without VALID. Raises SourceGone, LayoutChanged.
        """

    def close(self) -> None: ...


def clear(values: array[int], flags: bytearray, at: int, count: int, flag: int = 0) -> None:
    """Make cells missing: no value from before may be repeated."""
    for cell in range(at, at + count):
        values[cell] = 0
        flags[cell] = flag
