"""Sweeps as frames: the same schemas, columns and frames as the node agents', of kind ``switch``.

Ports lie in chunks of one stream each, so that a frame stays well below a broker's payload limit. Error details have a stream per
port and optional attributes one per switch: both are read now and then, and their frames hold only what was read just now.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricd.model.catalogue import CounterDef
from fabricd.model.frame import Column, Row, Schema, encode_frame
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.pma_device import Width
from fabricd.sources.pma_layout import U8, U64
from fabricd.sources.pma_reading import PortTable, SideReading, Sweep, column_definitions

READ_OFFSET = Column(name="read_offset", unit="ns", kind="time", source="collector")
EPOCH = Column(name="epoch", kind="epoch", source="collector")
MAX_STREAMS = 0xFFFF
_LEADING = 2


def _column(definition: CounterDef) -> Column:
    return Column(
        name=definition.name, unit=definition.unit, width=definition.width, sticky=definition.sticky,
        kind=definition.kind, priority=definition.priority, raw=definition.raw, source=definition.interface,
    )  # fmt: skip


@dataclass(slots=True)
class _Stream:
    schema: Schema
    id: int
    rows: npt.NDArray[np.intp]  # of the port table


class FrameMaker:
    """Turns sweeps into schemas and frames of one publishing node and boot.

    ``ticks``: bytes of link time per tick of PortXmitWait by (GUID, port), a label of the row; set it before ``schemas``.
    ``sequence`` continues over all streams.
    """

    def __init__(self, node: str, fabric: str, boot: int, *, rows_per_frame: int = 1024) -> None:
        self._node, self._fabric, self._boot = node, fabric, boot
        self._rows_per_frame = rows_per_frame
        self.ticks: dict[tuple[int, int], int] = {}
        self._table: PortTable | None = None
        self._chunks: list[_Stream] = []
        self._sides: dict[tuple[object, ...], _Stream] = {}
        self._numbers: dict[tuple[object, ...], int] = {}
        self.sequence = 0
        self.rejects = Rejects()

    def schemas(self, table: PortTable) -> list[Schema]:
        """What must be published before the frames of a sweep over ``table``; empty when nothing changed."""
        if table is self._table:
            return []
        self._table = table
        self._sides.clear()
        chunks: list[_Stream | None] = []
        for width in Width:
            alike = np.flatnonzero(table.width == width)
            for first in range(0, len(alike), self._rows_per_frame):
                rows = alike[first : first + self._rows_per_frame]
                chunks.append(self._stream(("ports", len(chunks)), rows, column_definitions(width)))
        old = {stream.id for stream in self._chunks}
        self._chunks = [chunk for chunk in chunks if chunk is not None]
        return [stream.schema for stream in self._chunks if stream.id not in old]

    def _stream(
        self,
        key: tuple[object, ...],
        rows: npt.NDArray[np.intp],
        definitions: tuple[CounterDef, ...] | list[CounterDef],
    ) -> _Stream | None:
        number = self._numbers.setdefault(key, len(self._numbers))
        if number > MAX_STREAMS:
            self.rejects.add("streams_full", f"more than {MAX_STREAMS} streams", str(key))
            return None
        schema = Schema(
            node=self._node,
            fabric=self._fabric,
            stream=number,
            boot=self._boot,
            rows=tuple(self._row(int(row)) for row in rows),
            columns=(READ_OFFSET, EPOCH, *map(_column, definitions)),
            kind="switch",
        )
        return _Stream(schema, schema.id, rows)

    def _row(self, row: int) -> Row:
        table = self._table
        assert table is not None
        target, port = table.targets[table.target[row]], int(table.port[row])
        labels = {key: value for key, value in target.labels.get(port, {}).items() if value}
        labels["lid"] = str(target.lid)
        tick = self.ticks.get((target.guid, port))
        if tick is not None:
            labels["wait_tick_bytes"] = str(tick)
        return Row(
            guid=target.guid,
            port=port,
            plane=target.plane,
            device=target.name,
            link_layer="InfiniBand",
            rate_gbps=target.rates.get(port, 0.0),
            labels=labels,
        )

    def frames(self, sweep: Sweep) -> Iterator[tuple[Schema | None, int, bytes]]:
        """(schema to publish first or None, sequence, frame) of everything a sweep read. Call ``schemas`` with its table before."""
        for stream in self._chunks:
            rows = stream.rows
            yield None, *self._encode(stream, sweep, rows, sweep.values[rows], sweep.flags[rows])
        if sweep.details is not None:
            yield from self._details(sweep, sweep.details)
        for side in sweep.slow:
            yield from self._slow(sweep, side)

    def _details(self, sweep: Sweep, side: SideReading) -> Iterator[tuple[Schema | None, int, bytes]]:
        for at, row in enumerate(side.rows.tolist()):
            key = ("details", int(sweep.table.guid[row]), int(sweep.table.port[row]))
            yield from self._side(key, sweep, side, np.array([at]))

    def _slow(self, sweep: Sweep, side: SideReading) -> Iterator[tuple[Schema | None, int, bytes]]:
        owners = sweep.table.target[side.rows]
        for owner in np.unique(owners).tolist():
            key = ("optional", sweep.table.targets[owner].key, side.attributes)
            yield from self._side(key, sweep, side, np.flatnonzero(owners == owner))

    def _side(
        self, key: tuple[object, ...], sweep: Sweep, side: SideReading, at: npt.NDArray[np.intp]
    ) -> Iterator[tuple[Schema | None, int, bytes]]:
        if not (side.flags[at] & int(Flag.VALID)).any():
            return
        rows = side.rows[at]
        stream, fresh = self._sides.get(key), False
        if stream is None or not np.array_equal(stream.rows, rows):
            stream, fresh = self._stream(key, rows, side.definitions), True
            if stream is None:
                return
            self._sides[key] = stream
        yield (stream.schema if fresh else None), *self._encode(stream, sweep, rows, side.values[at], side.flags[at])

    def _encode(
        self, stream: _Stream, sweep: Sweep, rows: npt.NDArray[np.intp], values: U64, flags: U8
    ) -> tuple[int, bytes]:
        cells = np.zeros((len(rows), values.shape[1] + _LEADING), np.uint64)
        marks = np.zeros(cells.shape, np.uint8)
        cells[:, 0], cells[:, 1], cells[:, _LEADING:] = sweep.when_ns[rows], sweep.epoch[rows], values
        marks[:, _LEADING:] = flags
        # A port without an answer has no reading time: its row is missing as a whole.
        marks[:, :_LEADING] = np.where(flags.any(axis=1, keepdims=True), int(Flag.VALID), 0)
        packed = array("Q")
        packed.frombytes(cells.tobytes())
        self.sequence += 1
        frame = encode_frame(
            stream.schema, stream.id, self.sequence, sweep.mono_ns, sweep.wall_ns, packed, marks.tobytes()
        )
        return self.sequence, frame
