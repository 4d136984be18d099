"""The result of a sweep as arrays: which ports, what each column is, values in canonical units, one flag byte per value."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fabricd.ib.mad import Pma, Reply
from fabricd.model.catalogue import U64_MAX, CounterDef
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.pma_device import EXTENDED, QP1_DROPPED, XMIT_WAIT, Capability, Width
from fabricd.sources.pma_layout import LAYOUT, PORT_SELECT_AT, U8, U64, decode, definitions
from fabricd.sources.pma_targets import Target

Rows = npt.NDArray[np.intp]

# The main columns are those of PortCountersExtended: 4 of traffic, 4 by cast, 14 errors and waits.
COLUMNS = tuple(counter.raw for counter in LAYOUT[Pma.PORT_COUNTERS_EXTENDED])
_TRAFFIC = slice(0, 4)
_CAST = slice(4, 8)
_ERRORS = slice(8, 22)
WAIT_COLUMN = COLUMNS.index("PortXmitWait")
QP1_COLUMN = COLUMNS.index("QP1Dropped")
# Every error, but neither waiting nor dropped management datagrams.
ERROR_COLUMNS = [i for i in range(8, 22) if i not in (WAIT_COLUMN, QP1_COLUMN)]
_NARROW = [counter.raw for counter in LAYOUT[Pma.PORT_COUNTERS]]
_FROM_NARROW = [_NARROW.index(raw) if raw in _NARROW else -1 for raw in COLUMNS]


@dataclass(frozen=True, slots=True)
class _Scaling:
    scale: U64
    limit: U64  # raw values from here on are full
    most: U64  # and the largest whose canonical value fits its cell


@lru_cache(maxsize=64)
def _scaling(found: tuple[CounterDef, ...]) -> _Scaling:
    scale = np.array([d.scale for d in found], np.uint64)
    return _Scaling(scale, np.array([d.limit for d in found], np.uint64), np.uint64(U64_MAX) // scale)


def cells(attribute: int, raw: U64) -> tuple[U64, U8]:
    """(values in canonical units, flags) of raw counters as ``decode`` gives them: full sticky counters are ``saturated``."""
    scaling = _scaling(definitions(attribute))
    full = raw >= scaling.limit
    values = np.minimum(raw, scaling.most) * scaling.scale
    flags = np.full(raw.shape, int(Flag.VALID), np.uint8)
    flags[full] |= int(Flag.SATURATED)
    return values, flags


@dataclass(slots=True)
class PortTable:
    """The ports of a sweep, in an order that does not change between sweeps: ports read alike lie together.

    ``target``: index into ``targets``. ``wide_row``, ``narrow_row``: which answer of the batch holds the port's
    PortCountersExtended and PortCounters, -1 where not asked.
    """

    targets: list[Target]
    guid: U64
    port: npt.NDArray[np.uint16]
    target: Rows
    width: U8
    wide_row: Rows
    narrow_row: Rows
    hidden: npt.NDArray[np.bool_]  # (n, columns): what the device cannot show

    def __len__(self) -> int:
        return len(self.guid)

    @classmethod
    def empty(cls) -> PortTable:
        rows = np.zeros(0, np.intp)
        hidden = np.zeros((0, len(COLUMNS)), np.bool_)
        return cls([], np.zeros(0, np.uint64), np.zeros(0, np.uint16), rows, np.zeros(0, np.uint8), rows, rows, hidden)

    def definitions(self, row: int) -> tuple[CounterDef, ...]:
        """What each main column of a port means, and whence it is."""
        return column_definitions(Width(int(self.width[row])))


@lru_cache(maxsize=8)
def column_definitions(width: Width) -> tuple[CounterDef, ...]:
    """The main columns as read from a device of this width."""
    wide, narrow = definitions(Pma.PORT_COUNTERS_EXTENDED), definitions(Pma.PORT_COUNTERS)
    from_narrow = {Width.WIDE: range(0), Width.MIXED: range(8, 22), Width.NARROW: (*range(4), *range(8, 22))}[width]
    return tuple(narrow[_FROM_NARROW[i]] if i in from_narrow else wide[i] for i in range(len(COLUMNS)))


@dataclass(slots=True)
class SideReading:
    """Further attributes of some ports. ``rows`` index the port table; ``values``, ``flags``: (rows, columns)."""

    attributes: tuple[int, ...]
    rows: Rows
    values: U64
    flags: U8

    @property
    def definitions(self) -> list[CounterDef]:
        return [definition for attribute in self.attributes for definition in definitions(attribute)]


@dataclass(slots=True)
class Sweep:
    """One pass over the fabric. ``when_ns``: per port, ns after ``mono_ns``. ``reply``: per port what its reading came to."""

    number: int
    table: PortTable
    mono_ns: int
    wall_ns: int
    seconds: float
    values: U64
    flags: U8
    when_ns: U64
    reply: U8
    details: SideReading | None = None
    slow: list[SideReading] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rejects: Rejects = field(default_factory=Rejects)
    qp1_dropped: int = 0  # growth over all swept ports since the last sweep
    epoch: U64 = field(
        default_factory=lambda: np.zeros(0, np.uint64)
    )  # per port: changes when its device was restarted

    @property
    def answered(self) -> int:
        """Ports with every attribute read that was asked of them."""
        return int((self.reply == Reply.OK).sum())


def hidden_columns(capability: Capability) -> npt.NDArray[np.bool_]:
    """Which columns a device's capability bits declare absent: zeros it may send there are no measurements."""
    hidden = np.zeros(len(COLUMNS), np.bool_)
    width = capability.width
    hidden[_CAST] = width is Width.NARROW or not capability.mask & EXTENDED
    if width is not Width.WIDE:
        hidden[WAIT_COLUMN] = not capability.mask & XMIT_WAIT
        hidden[QP1_COLUMN] = not capability.mask & QP1_DROPPED
    return hidden


def decode_main(
    table: PortTable, mads: U8, reply: U8, when: npt.NDArray[np.float64], start: float
) -> tuple[U64, U8, U8, U64]:
    """(values, flags, reply, ns after ``start``) of all ports from the answers of the main batch."""
    count = len(table)
    values = np.zeros((count, len(COLUMNS)), np.uint64)
    flags = np.zeros((count, len(COLUMNS)), np.uint8)
    worst = np.zeros(count, np.uint8)
    moment = np.zeros(count, np.float64)
    for row_of, wide in ((table.wide_row, True), (table.narrow_row, False)):
        asked = np.flatnonzero(row_of >= 0)
        if not len(asked):
            continue
        rows = row_of[asked]
        status = reply[rows].copy()
        status[(status == Reply.OK) & (mads[rows, PORT_SELECT_AT] != table.port[asked])] = Reply.OTHER
        worst[asked] = np.where(worst[asked] == Reply.OK, status, worst[asked])
        good = status == Reply.OK
        ports, rows = asked[good], rows[good]
        if not len(ports):
            continue
        moment[ports] = np.where(moment[ports] == 0, when[rows], moment[ports])
        (_fill_wide if wide else _fill_narrow)(table, ports, mads[rows], values, flags)
    shown = flags != 0
    values[table.hidden] = 0
    flags[table.hidden] = 0
    flags[table.hidden & shown.any(axis=1, keepdims=True)] = int(Flag.NOT_OBSERVABLE)
    offset = np.maximum((moment - start) * 1e9, 0)
    return values, flags, worst, offset.astype(np.uint64)


def _fill_wide(table: PortTable, ports: Rows, mads: U8, values: U64, flags: U8) -> None:
    got, flag = cells(Pma.PORT_COUNTERS_EXTENDED, decode(Pma.PORT_COUNTERS_EXTENDED, mads))
    values[ports, :8], flags[ports, :8] = got[:, :8], flag[:, :8]
    wide = table.width[ports] == Width.WIDE
    if wide.any():
        values[ports[wide], _ERRORS], flags[ports[wide], _ERRORS] = got[wide, _ERRORS], flag[wide, _ERRORS]


def _fill_narrow(table: PortTable, ports: Rows, mads: U8, values: U64, flags: U8) -> None:
    got, flag = cells(Pma.PORT_COUNTERS, decode(Pma.PORT_COUNTERS, mads))
    order = _FROM_NARROW[_ERRORS]
    values[ports, _ERRORS], flags[ports, _ERRORS] = got[:, order], flag[:, order]
    alone = table.width[ports] == Width.NARROW
    if alone.any():
        order = _FROM_NARROW[_TRAFFIC]
        values[ports[alone], _TRAFFIC], flags[ports[alone], _TRAFFIC] = got[alone][:, order], flag[alone][:, order]
