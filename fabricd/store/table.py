"""The columns of all streams with one layout: arrays of shape (ports, columns) that grow; each stream owns a run of rows.

A frame is one contiguous block of its table, so taking it costs a handful of array operations whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fabricd.model.frame import Column, Header, Schema
from fabricd.model.sample import Flag
from fabricd.store.decode import Frame, view_frame
from fabricd.store.rates import Rules, State, step

_FIRST_ROWS = 64
Layout = tuple[Column, ...]
Scale = Callable[[Column], int]


class Table:
    """Cells are (rows, columns): ``value``, ``flags``, ``delta``. Rows know their port (store/ports.py; -1 = free) and their stream.

    Streams have ``heard`` (receiver's monotonic ns), ``wall`` (node's clock), ``span`` and ``since`` (see store/rates.py), because
    the usual frame has one time for all its cells. Where that is not so (``irregular``), ``cell_span`` and ``cell_since`` count;
    their memory is not touched before that.
    """

    def __init__(self, layout: Layout, scale: Scale = lambda column: 1) -> None:
        self.layout = layout
        self.rows = 0
        width = self.width = len(layout)
        self.value = np.zeros((0, width), np.uint64)
        self.flags = np.zeros((0, width), np.uint8)
        self.delta = np.zeros((0, width), np.uint64)
        self.cell_span = np.zeros((0, width), np.int64)
        self.cell_since = np.zeros((0, width), np.int64)
        self.port = np.zeros(0, np.int64)
        self.stream = np.zeros(0, np.int64)
        self.heard = np.zeros(0, np.int64)
        self.wall = np.zeros(0, np.int64)
        self.span = np.zeros(0, np.int64)
        self.since = np.zeros(0, np.int64)
        self.irregular = np.zeros(0, bool)
        self.rules = _rules(layout, scale)
        self.all_count = bool(self.rules.counts.all())
        self.epochs = [i for i, column in enumerate(layout) if column.kind == "epoch"]
        self.offset = next((i for i, column in enumerate(layout) if column.kind == "time"), None)
        self.generation = 0  # changes when the cells move
        self._scratch: dict[int, NDArray[np.bool_]] = {}
        self._plain: dict[int, bytes] = {}
        self._free: list[tuple[int, int]] = []  # (start, rows)
        self._free_streams: list[int] = []
        self._streams = 0

    def allocate(self, rows: int) -> tuple[int, int]:
        """The first of ``rows`` consecutive empty rows, and a stream number for them."""
        start = self._allocate_rows(rows)
        if self._free_streams:
            number = self._free_streams.pop()
        else:
            number = self._streams
            self._streams += 1
            if number == len(self.heard):
                for per_stream in ("heard", "wall", "span", "since", "irregular"):
                    setattr(self, per_stream, _longer(getattr(self, per_stream), max(_FIRST_ROWS, 2 * number)))
        self.stream[start : start + rows] = number
        return start, number

    def _allocate_rows(self, rows: int) -> int:
        for at, (start, size) in enumerate(self._free):
            if size >= rows:
                self._free[at : at + 1] = [(start + rows, size - rows)] if size > rows else []
                return start
        start = self.rows
        self.rows += rows
        if self.rows > len(self.port):
            capacity = max(self.rows, 2 * len(self.port), _FIRST_ROWS)
            for name in ("value", "flags", "delta", "cell_span", "cell_since", "port", "stream"):
                setattr(self, name, _longer(getattr(self, name), capacity))
            self.port[start:] = -1
            self.generation += 1
        return start

    def release(self, start: int, rows: int, number: int) -> None:
        block = slice(start, start + rows)
        cells: tuple[NDArray[Any], ...] = (self.value, self.flags, self.delta, self.cell_span, self.cell_since)
        for array in cells:
            array[block] = 0
        self.port[block] = -1
        per_stream: tuple[NDArray[Any], ...] = (self.heard, self.wall, self.span, self.since, self.irregular)
        for array in per_stream:
            array[number] = 0
        self._free.append((start, rows))
        self._free_streams.append(number)

    def scratch(self, rows: int) -> NDArray[np.bool_]:
        """Room for one comparison of ``rows`` rows, shared by all streams of that size because that keeps it in the cache."""
        found = self._scratch.get(rows)
        if found is None:
            found = self._scratch[rows] = np.zeros(rows * len(self.layout), bool)
        return found

    def plain(self, rows: int) -> bytes:
        """The flags of a frame in which every value is valid and nothing else is to say."""
        found = self._plain.get(rows)
        if found is None:
            found = self._plain[rows] = bytes([Flag.VALID]) * (rows * len(self.layout))
        return found

    def heard_rows(self, since_ns: int = 0) -> NDArray[np.int64]:
        """Rows in use whose stream was heard after ``since_ns`` on the receiver's monotonic clock."""
        port = self.port[: self.rows]
        return np.flatnonzero((port >= 0) & (self.heard[self.stream[: self.rows]] > since_ns))

    def spans(self, rows: NDArray[np.int64], column: int) -> NDArray[np.int64]:
        """The time over which each row's ``delta`` in a column was counted, 0 = unknown."""
        streams = self.stream[rows]
        return np.where(self.irregular[streams], self.cell_span[rows, column], self.span[streams])


def _longer(old: NDArray[Any], length: int) -> NDArray[Any]:
    new = np.zeros((length, *old.shape[1:]), old.dtype)
    new[: len(old)] = old
    return new


def _rules(layout: Layout, scale: Scale) -> Rules:
    wraps = [c.kind == "counter" and not c.sticky and c.width < 64 for c in layout]
    modulus = [(scale(c) << c.width) if w else 0 for c, w in zip(layout, wraps, strict=True)]
    return Rules(
        np.array([c.kind == "counter" for c in layout], bool), np.array([m & (2**64 - 1) for m in modulus], np.uint64)
    )


class Stream:
    """One stream of one node: its schema and its block of a table."""

    def __init__(self, schema: Schema, schema_id: int, table: Table, ports: list[int]) -> None:
        self.schema = schema
        self.schema_id = schema_id
        self.table = table
        self.count = len(schema.rows)
        self.start, self.number = table.allocate(self.count)
        self.boot = -1
        self.seq = -1
        self.mono_ns = 0
        self.resets = 0
        self._clean = False  # the last frame was whole and plain, so that the short path may take the next
        table.port[self.start : self.start + self.count] = ports
        self._bind()

    @property
    def heard_ns(self) -> int:
        """When the last frame came, on the receiver's monotonic clock; 0 = none since the start."""
        return int(self.table.heard[self.number])

    def _bind(self) -> None:
        """The views of our block; again whenever the table's arrays moved."""
        table, block = self.table, slice(self.start, self.start + self.count)
        self._generation = table.generation
        self.state = State(
            table.value[block], table.flags[block], table.delta[block], table.cell_span[block], table.cell_since[block]
        )
        self._value, self._delta = self.state.value.reshape(-1), self.state.delta.reshape(-1)
        self._less = table.scratch(self.count)

    def expects(self, header: Header) -> bool:
        """Whether a frame is of our schema, of the run of the last one, and has the size the schema says."""
        return (
            header.schema_id == self.schema_id
            and header.boot == self.boot
            and header.rows == self.count
            and header.columns == self.table.width
        )

    def release(self) -> None:
        self.table.release(self.start, self.count, self.number)

    def take(self, payload: bytes | memoryview, header: Header, heard_ns: int) -> None:
        """Take a frame newer than the last: cells, movements, times. A new boot begins without movements."""
        table, number = self.table, self.number
        if self._generation != table.generation:
            self._bind()
        cells = self._value.size
        plain = bytes(payload[header.flags_at : header.flags_at + cells]) == table.plain(self.count)
        if not (
            plain
            and self._clean
            and header.boot == self.boot
            and self._take_short(np.frombuffer(payload, np.uint64, cells, header.values_at), header)
        ):
            self._take_long(view_frame(payload, header))
            self._clean = plain and table.offset is None
        self.boot, self.seq, self.mono_ns = header.boot, header.seq, header.mono_ns
        table.heard[number] = heard_ns
        table.wall[number] = header.wall_ns

    def _take_short(self, value: NDArray[np.uint64], header: Header) -> bool:
        """The usual frame: everything valid, as in the last one, and nothing went down. False: it is not that frame."""
        table = self.table
        span = header.mono_ns - self.mono_ns
        less = self._less
        np.less(value, self._value, out=less)
        if not table.all_count:
            less.reshape(self.state.value.shape)[:, ~table.rules.counts] = False
        if span <= 0 or b"\1" in less.tobytes():
            return False
        if table.epochs and self._epoch_rows(value.reshape(self.state.value.shape)).any():
            return False
        np.subtract(value, self._value, out=self._delta)
        np.copyto(self._value, value)
        table.span[self.number] = span
        table.since[self.number] = header.mono_ns
        table.irregular[self.number] = False
        if self._flagged:
            self.state.flags.fill(Flag.VALID)
            self._flagged = False
        return True

    _flagged = True  # whether cells may hold other flags than VALID

    def _take_long(self, frame: Frame) -> None:
        table, number, header, state = self.table, self.number, frame.header, self.state
        if not table.irregular[number]:
            state.since.fill(table.since[number])
            table.irregular[number] = True
        if header.boot != self.boot:
            state.since.fill(0)
        if table.epochs:
            state.since[self._epoch_rows(frame.values)] = 0
        read_at = np.full((self.count, 1), header.mono_ns, np.int64)
        if table.offset is not None:
            read_at[:, 0] += frame.values[:, table.offset].view(np.int64)
        self.resets += step(state, frame.values, frame.flags, read_at, table.rules)
        self._flagged = True

    def _epoch_rows(self, value: NDArray[np.uint64]) -> NDArray[np.bool_]:
        columns = self.table.epochs
        changed: NDArray[np.bool_] = (value[:, columns] != self.state.value[:, columns]).any(axis=1)
        return changed

    def inherit(self, old: Stream) -> None:
        """Take over the cells of an earlier schema of the stream: same port, same column. So a device that comes or goes, or a
        counter that appears, does not interrupt the others.
        """
        column_at = {column: i for i, column in enumerate(old.schema.columns)}
        pairs = [(new, column_at[c]) for new, c in enumerate(self.schema.columns) if c in column_at]
        row_at = {(r.plane, r.guid, r.port): i for i, r in enumerate(old.schema.rows)}
        rows = [
            (new, row_at[r.plane, r.guid, r.port])
            for new, r in enumerate(self.schema.rows)
            if (r.plane, r.guid, r.port) in row_at
        ]
        if not pairs or not rows:
            return
        if old._generation != old.table.generation:
            old._bind()
        to = np.ix_([r for r, _ in rows], [c for c, _ in pairs])
        source = np.ix_([r for _, r in rows], [c for _, c in pairs])
        before, theirs = old.state, old.table
        self.state.value[to] = before.value[source]
        self.state.flags[to] = before.flags[source]
        regular = not theirs.irregular[old.number]
        self.state.since[to] = theirs.since[old.number] if regular else before.since[source]
        self.table.irregular[self.number] = True
        self.boot, self.seq, self.mono_ns = old.boot, old.seq, old.mono_ns
