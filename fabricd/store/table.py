"""The columns of all streams with one layout: arrays of shape (ports, columns) that grow; each stream owns a run of rows.

A frame is one contiguous block of its table, so taking it costs a handful of array operations whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fabricd.model.frame import Column, Header, Schema
from fabricd.model.sample import Flag
from fabricd.store.decode import Frame
from fabricd.store.rates import Rules, State, step

_FIRST_ROWS = 64
Layout = tuple[Column, ...]
Scale = Callable[[Column], int]


class Table:
    """``port`` (rows,) is the port number of store/ports.py, -1 = free; ``heard`` (rows,) is the receiver's monotonic ns."""

    def __init__(self, layout: Layout, scale: Scale = lambda column: 1) -> None:
        self.layout = layout
        self.rows = 0
        width = len(layout)
        self.value = np.zeros((0, width), np.uint64)
        self.flags = np.zeros((0, width), np.uint8)
        self.delta = np.zeros((0, width), np.uint64)
        self.span = np.zeros((0, width), np.int64)
        self.since = np.zeros((0, width), np.int64)
        self.port = np.zeros(0, np.int64)
        self.heard = np.zeros(0, np.int64)
        self.wall = np.zeros(0, np.int64)
        self.rules = _rules(layout, scale)
        self.all_count = bool(self.rules.counts.all())
        self.epochs = [i for i, column in enumerate(layout) if column.kind == "epoch"]
        self.offset = next((i for i, column in enumerate(layout) if column.kind == "time"), None)
        self.generation = 0  # changes when the arrays move
        self._free: list[tuple[int, int]] = []  # (start, rows)

    def allocate(self, rows: int) -> int:
        """The first of ``rows`` consecutive empty rows."""
        for at, (start, size) in enumerate(self._free):
            if size >= rows:
                self._free[at : at + 1] = [(start + rows, size - rows)] if size > rows else []
                return start
        start = self.rows
        self.rows += rows
        if self.rows > len(self.port):
            self._grow(max(self.rows, 2 * len(self.port), _FIRST_ROWS))
        return start

    def release(self, start: int, rows: int) -> None:
        block = slice(start, start + rows)
        for array in (self.value, self.flags, self.delta, self.span, self.since, self.heard, self.wall):
            array[block] = 0
        self.port[block] = -1
        self._free.append((start, rows))

    def state(self, start: int, rows: int) -> State:
        block = slice(start, start + rows)
        return State(self.value[block], self.flags[block], self.delta[block], self.span[block], self.since[block])

    def _grow(self, capacity: int) -> None:
        for name in ("value", "flags", "delta", "span", "since", "heard", "wall", "port"):
            old = getattr(self, name)
            new = np.zeros((capacity, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self.port[self.rows :] = -1
        self.generation += 1


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
        self.start = table.allocate(self.count)
        self.boot = -1
        self.seq = -1
        self.mono_ns = 0
        self.wall_ns = 0
        self.heard_ns = 0
        self.resets = 0
        self._clean = False  # the last frame was whole and plain, so that the short path may take the next
        self._plain = bytes([Flag.VALID]) * (self.count * len(schema.columns))
        table.port[self.start : self.start + self.count] = ports
        self._bind()

    def _bind(self) -> None:
        table = self.table
        self._generation = table.generation
        self.state = table.state(self.start, self.count)
        state = self.state
        self._flat = State(
            state.value.reshape(-1), state.flags.reshape(-1), state.delta.reshape(-1), state.span.reshape(-1), state.since.reshape(-1)
        )  # fmt: skip
        block = slice(self.start, self.start + self.count)
        self._heard: NDArray[np.int64] = table.heard[block]
        self._wall: NDArray[np.int64] = table.wall[block]
        self._less = np.zeros(self._flat.value.shape, bool)
        self._counts = np.broadcast_to(table.rules.counts, self.state.value.shape).reshape(-1)

    def release(self) -> None:
        self.table.release(self.start, self.count)

    def take(self, frame: Frame, heard_ns: int) -> None:
        """Take a frame newer than the last: cells, movements, times. A new boot begins without movements."""
        header = frame.header
        if self._generation != self.table.generation:
            self._bind()
        if header.boot != self.boot:
            self.state.since[:] = 0
            self._clean = False
        plain = frame.flags.tobytes() == self._plain
        if not (plain and self._clean and self._take_short(frame.values.reshape(-1), header)):
            self._take_long(frame, header)
            self._clean = plain and self.table.offset is None
        self.boot, self.seq, self.mono_ns, self.wall_ns, self.heard_ns = (
            header.boot, header.seq, header.mono_ns, header.wall_ns, heard_ns,
        )  # fmt: skip
        self._heard.fill(heard_ns)
        self._wall.fill(header.wall_ns)

    def _take_short(self, value: NDArray[np.uint64], header: Header) -> bool:
        """The usual frame: everything valid, as in the last one, and nothing went down. False: it is not that frame."""
        flat = self._flat
        np.less(value, flat.value, out=self._less)
        if not self.table.all_count:
            self._less &= self._counts
        if b"\1" in self._less.tobytes():
            return False
        if self.table.epochs and self._epoch_rows(value.reshape(self.state.value.shape)).any():
            return False
        if header.mono_ns <= self.mono_ns:
            return False
        np.subtract(value, flat.value, out=flat.delta)
        np.copyto(flat.value, value)
        flat.span.fill(header.mono_ns - self.mono_ns)
        flat.since.fill(header.mono_ns)
        return True

    def _take_long(self, frame: Frame, header: Header) -> None:
        table, value = self.table, frame.values
        read_at = np.full((self.count, 1), header.mono_ns, np.int64)
        if table.offset is not None:
            read_at[:, 0] += value[:, table.offset].view(np.int64)
        if table.epochs:
            self.state.since[self._epoch_rows(value)] = 0
        self.resets += step(self.state, value, frame.flags, read_at, table.rules)

    def _epoch_rows(self, value: NDArray[np.uint64]) -> NDArray[np.bool_]:
        columns = self.table.epochs
        changed: NDArray[np.bool_] = (value[:, columns] != self.state.value[:, columns]).any(axis=1)
        return changed

    def inherit(self, old: Stream) -> None:
        """Take over the cells of an earlier schema of the stream: same port, same column. So a device that comes or goes, or a counter
        that appears, does not interrupt the others.
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
        to = np.ix_([r for r, _ in rows], [c for c, _ in pairs])
        source = np.ix_([r for _, r in rows], [c for _, c in pairs])
        before = old.table.state(old.start, old.count)
        self.state.value[to] = before.value[source]
        self.state.flags[to] = before.flags[source]
        self.state.since[to] = before.since[source]
        self.boot, self.seq, self.mono_ns, self.wall_ns = old.boot, old.seq, old.mono_ns, old.wall_ns
