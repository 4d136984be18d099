"""Reading a recording in order: every frame once, by node time, whatever the order in which frames reached the recording.

Two passes: the first indexes headers (an outage puts a node's backlog far behind its live frames), the second reads frame by frame, so
memory holds an index entry a frame and one segment at a time.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model.frame import FrameError, Schema, decode_schema, read_header
from fabricd.model.rejects import Rejects
from fabricd.store.decode import Frame, decode_frame
from fabricd.store.records import Kind, read_segment, segments
from fabricd.store.store import Store


class Played(NamedTuple):
    """A frame with its schema. ``received_ns`` is the recorder's wall clock; the arrays are read-only views."""

    frame: Frame
    schema: Schema
    received_ns: int
    payload: memoryview


class _Place(NamedTuple):
    order_ns: int
    node: str
    boot: int
    seq: int
    segment: int
    offset: int
    length: int
    received_ns: int
    schema_id: int
    rows: int
    columns: int


class Playback:
    """Raises FabricdError when the directory is no recording or cannot be read. Damage is counted in ``rejects``."""

    def __init__(self, directory: Path) -> None:
        self.rejects = Rejects()
        self.schemas: dict[int, Schema] = {}
        self.notes: list[dict[str, Any]] = []  # topology, verdicts, pushes: what a report adds
        try:
            self._paths = segments(directory)
            self._places = self._index()
        except OSError as error:
            raise FabricdError(f"recording {directory}: {error.strerror}") from None
        if not self._paths:
            raise FabricdError(f"recording {directory}: no segment (*.fbrec) there")

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Played]:
        """Frames by time; those of one node and boot by sequence. Frames without a schema were counted as ``schema_missing``."""
        opened: dict[int, mmap.mmap] = {}
        for place in self._places:
            data = opened.get(place.segment)
            if data is None:
                with self._paths[place.segment].open("rb") as file:
                    data = opened[place.segment] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            payload = memoryview(data)[place.offset : place.offset + place.length]
            yield Played(decode_frame(payload), self.schemas[place.schema_id], place.received_ns, payload)

    def intervals(self, length_ns: int) -> Iterator[tuple[int, Store]]:
        """Play into a store: its state at the end (node time, ns) of every interval of ``length_ns``, as detection sees it live.

        The same store is yielded each time. An interval in which nothing was recorded is yielded too, with older ages.
        """
        now = 0
        store = Store(next(iter(self.schemas.values())).fabric if self.schemas else "", lambda: now)
        for played in self:
            header = played.frame.header
            if now == 0:
                now = header.wall_ns // length_ns * length_ns + length_ns
            while header.wall_ns >= now:
                yield now, store
                now += length_ns
            node = store.node(header.node)
            node.is_newest(header, backlog=False)
            stream = node.streams.get(header.stream)
            if stream is None or stream.schema_id != header.schema_id:
                stream = store.open_stream(node, played.schema, header.schema_id)
            stream.take(played.payload, header, header.wall_ns)
            node.heard_ns = header.wall_ns
        if now:
            yield now, store

    def _index(self) -> list[_Place]:
        found: dict[tuple[str, int], dict[int, _Place]] = {}
        for number, path in enumerate(self._paths):
            for record in read_segment(path, self.rejects):
                if record.kind == Kind.FRAME:
                    header = read_header(record.payload)
                    by_seq = found.setdefault((header.node, header.boot), {})
                    by_seq.setdefault(
                        header.seq,
                        _Place(
                            header.wall_ns, header.node, header.boot, header.seq, number, record.offset, len(record.payload),
                            record.received_ns, header.schema_id, header.rows, header.columns,
                        ),
                    )  # fmt: skip
                elif record.kind == Kind.SCHEMA:
                    self._take_schema(record.payload)
                elif record.kind == Kind.NOTE:
                    self._take_note(record.payload, path)
        places: list[_Place] = []
        for by_seq in found.values():
            latest = 0
            for seq in sorted(by_seq):
                place = by_seq[seq]
                # A clock set back must not reorder a node's own frames.
                latest = max(latest, place.order_ns)
                schema = self.schemas.get(place.schema_id)
                if schema is None:
                    self.rejects.add("schema_missing", f"{place.schema_id:016x}", place.node)
                    continue
                if (len(schema.rows), len(schema.columns), schema.node) != (place.rows, place.columns, place.node):
                    self.rejects.add("frame_schema", f"{place.rows}x{place.columns}", place.node)
                    continue
                places.append(place._replace(order_ns=latest))
        places.sort()
        return places

    def _take_schema(self, payload: memoryview) -> None:
        try:
            schema = decode_schema(bytes(payload))
        except FrameError as error:
            self.rejects.add(error.kind, error)
            return
        self.schemas[schema.id] = schema

    def _take_note(self, payload: memoryview, path: Path) -> None:
        try:
            self.notes.append(msgspec.json.decode(payload, type=dict[str, Any]))
        except BAD_DOCUMENT as error:
            self.rejects.add("note_syntax", error, path.name)
