"""The objects of one switch, sorted, with what reads and what writes them."""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable
from dataclasses import dataclass

from fabricd.twin.face import Counters
from fabricd.twin.snmp.agentx import Error, Oid, Type, Value, encode_oid, encode_value

Read = Callable[[Counters], Value]
Check = Callable[[Value], Error]


@dataclass(frozen=True, slots=True)
class Writable:
    """How an object is written. Objects of one ``group`` in one request are written together: ``write`` gets them all.

    ``check`` judges one value; ``settle`` (once per group, all values by object) the whole, before anything is written.
    """

    group: tuple[str, int]
    key: tuple[int, ...]  # what ``write`` calls this object within its group
    check: Check
    settle: Callable[[dict[tuple[int, ...], int]], Error]
    write: Callable[[dict[tuple[int, ...], int]], None]
    current: Callable[[], dict[tuple[int, ...], int]]  # the group's values now, for undoing


@dataclass(frozen=True, slots=True)
class Cell:
    oid: Oid
    kind: Type
    read: Read
    head: bytes  # type and name, as they go into a binding
    writable: Writable | None = None


class Table:
    """All cells in lexical order."""

    def __init__(self) -> None:
        self._cells: dict[Oid, Cell] = {}
        self._oids: list[Oid] = []
        self._sorted: list[Cell] = []

    def add(self, oid: Oid, kind: Type, read: Read, writable: Writable | None = None) -> None:
        head = struct.pack(">Hxx", kind) + encode_oid(oid)
        self._cells[oid] = Cell(oid, kind, read, head, writable)

    def constant(self, oid: Oid, kind: Type, value: Value) -> None:
        self.add(oid, kind, lambda counters: value)

    def freeze(self) -> None:
        """Call when every cell is there."""
        self._oids = sorted(self._cells)
        self._sorted = [self._cells[oid] for oid in self._oids]

    def __len__(self) -> int:
        return len(self._cells)

    def get(self, oid: Oid) -> Cell | None:
        return self._cells.get(oid)

    def knows(self, oid: Oid) -> bool:
        """Whether any cell lies below ``oid``'s column."""
        place = bisect.bisect_left(self._oids, oid[:-1])
        return place < len(self._oids) and self._oids[place][: len(oid) - 1] == oid[:-1]

    def next(self, start: Oid, include: bool, end: Oid) -> Cell | None:
        """The first cell after (or at) ``start`` and before ``end`` (empty: no bound)."""
        place = bisect.bisect_left(self._oids, start) if include else bisect.bisect_right(self._oids, start)
        if place == len(self._oids) or (end and self._oids[place] >= end):
            return None
        return self._sorted[place]


def bind(cell: Cell, counters: Counters) -> bytes:
    return cell.head + encode_value(cell.kind, cell.read(counters))


def nothing(oid: Oid, kind: Type) -> bytes:
    """A binding that says there is no value."""
    return struct.pack(">Hxx", kind) + encode_oid(oid)
