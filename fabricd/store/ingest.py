"""Messages in: check, record, acknowledge once on disk, and into the columns. One object, one event loop, no I/O but the recording's.

Order of things for a frame: it is checked (hostile bytes are counted), looked up in its node's ledger (duplicates are counted),
appended to the recording, and, if it is newer than what its stream has, taken into the columns. What comes late is recorded only.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from fabricd.errors import BAD_DOCUMENT
from fabricd.model import topics
from fabricd.model.frame import FrameError, Header, Schema, decode_schema, read_header
from fabricd.model.rejects import Rejects
from fabricd.store.node import Node
from fabricd.store.recording import Recording
from fabricd.store.records import Kind, Record
from fabricd.store.sequences import StoredNode
from fabricd.store.store import Store

log = logging.getLogger(__name__)

MAX_SCHEMAS = 100_000
MAX_WAITING = 4096  # newest frames of streams whose schema has not come yet
_ledger_decoder = msgspec.json.Decoder(list[StoredNode])


class Ingest:
    """``batch`` is for messages from a broker, ``replay`` for records at start. ``fabric`` is the only one accepted."""

    def __init__(self, store: Store, fabric: str) -> None:
        self.store = store
        self.fabric = fabric
        self.recording: Recording | None = None
        self.rejects = Rejects()
        self.counts: Counter[str] = Counter()
        self.disk_refuses = False  # whether the last batch could not be written
        self.unreported: set[Node] = set()  # nodes with frames stored since the last report
        self._schemas: dict[int, Schema] = {}
        self._topics: dict[bytes, tuple[str, str]] = {}
        self._checkpoint = -1  # the recording's segment that has a ledger
        self._waiting: dict[tuple[str, int], bytes] = {}

    def batch(self, messages: Iterable[tuple[bytes, memoryview, bool, int]]) -> list[int]:
        """Take (topic, payload, retained, packet id) messages; returns the packet ids to acknowledge after ``recording.sync``."""
        received, heard = time.time_ns(), time.monotonic_ns()
        mids: list[int] = []
        stored: list[tuple[Node, int, int]] = []
        for topic, payload, _, mid in messages:
            kind, name = self._topics.get(topic) or self._read_topic(topic)
            if kind == "frames" or kind == "backlog":
                self._frame(payload, name, kind == "backlog", received, heard, stored)
            elif kind == "schema":
                self._schema(bytes(payload), received)
            elif kind == "status":
                self._status(bytes(payload), name, received)
            else:
                self.rejects.add("topic", topic.decode(errors="replace"))
            if mid:
                mids.append(mid)
        self._commit(stored)
        return mids

    def _read_topic(self, topic: bytes) -> tuple[str, str]:
        parts = topics.split(topic.decode(errors="replace"))
        if parts is None or parts[0] != self.fabric:
            return ("", "")
        if len(self._topics) > MAX_SCHEMAS:
            self._topics.clear()
        self._topics[topic] = found = (parts[1], parts[2])
        return found

    def _frame(
        self,
        payload: memoryview,
        name: str,
        backlog: bool,
        received: int,
        heard: int,
        stored: list[tuple[Node, int, int]],
    ) -> None:
        try:
            header = read_header(payload)
        except FrameError as error:
            self.rejects.add(error.kind, error, name)
            return
        if header.node != name:
            self.rejects.add("frame_topic", f"frame of {header.node!r}", name)
            return
        node = self.store.node(name)
        if not node.ledger.add(header.boot, header.seq):
            node.counts["duplicate"] += 1
            return
        if self.recording is not None:
            self.recording.append(Kind.FRAME, payload, received, backlog=backlog)
        stored.append((node, header.boot, header.seq))
        if not backlog:
            node.skew.add(received, header.wall_ns)
        stream = node.streams.get(header.stream)
        if header.seq == node.seq + 1 and header.boot == node.boot and stream is not None and stream.expects(header):
            # The usual frame: the next of a stream we know.
            node.seq, node.wall_ns, node.heard_ns = header.seq, header.wall_ns, heard
            stream.take(payload, header, heard)
        else:
            self._take(node, header, payload, heard, backlog)

    def _take(self, node: Node, header: Header, payload: bytes | memoryview, heard: int, backlog: bool) -> None:
        newest = node.is_newest(header, backlog=backlog)
        if newest and header.seq > node.seq:
            if node.seq >= 0 and header.seq != node.seq + 1:
                node.counts["gap"] += 1
            node.seq, node.wall_ns = header.seq, header.wall_ns
        node.heard_ns = max(node.heard_ns, heard)
        stream = node.streams.get(header.stream)
        if not newest or (stream is not None and stream.boot == header.boot and header.seq < stream.seq):
            node.counts["late"] += 1
            return
        if stream is None or stream.schema_id != header.schema_id:
            schema = self._schemas.get(header.schema_id)
            if schema is None:
                if len(self._waiting) < MAX_WAITING:
                    self._waiting[node.name, header.stream] = bytes(payload)
                self.counts["schema_missing"] += 1
                return
            if not self._fits(schema, header):
                return
            stream = self.store.open_stream(node, schema, header.schema_id)
        elif header.rows != stream.count or header.columns != len(stream.schema.columns):
            self.rejects.add("frame_schema", f"{header.rows}x{header.columns}", node.name)
            return
        stream.take(payload, header, heard)

    def _fits(self, schema: Schema, header: Header) -> bool:
        if (len(schema.rows), len(schema.columns), schema.node, schema.stream) == (
            header.rows, header.columns, header.node, header.stream,
        ):  # fmt: skip
            return True
        self.rejects.add(
            "frame_schema", f"{header.rows}x{header.columns} of {schema.node}/{schema.stream}", header.node
        )
        return False

    def _schema(self, payload: bytes, received: int) -> None:
        try:
            schema = decode_schema(payload)
        except FrameError as error:
            self.rejects.add(error.kind, error)
            return
        if schema.fabric != self.fabric:
            self.rejects.add("schema_fabric", schema.fabric, schema.node)
            return
        schema_id = schema.id
        if schema_id in self._schemas:
            return
        if len(self._schemas) >= MAX_SCHEMAS:
            self._forget_schemas()
        self._schemas[schema_id] = schema
        if self.recording is not None:
            self.recording.append(Kind.SCHEMA, payload, received)
        waiting = self._waiting.get((schema.node, schema.stream))
        if waiting is not None:
            header = read_header(waiting)
            if header.schema_id == schema_id:
                del self._waiting[schema.node, schema.stream]
                self._take(self.store.node(schema.node), header, waiting, time.monotonic_ns(), False)

    def _forget_schemas(self) -> None:
        used = {stream.schema_id for node in self.store.nodes.values() for stream in node.streams.values()}
        self._schemas = {key: schema for key, schema in self._schemas.items() if key in used}

    def _status(self, payload: bytes, name: str, received: int) -> None:
        if not payload:
            return  # a retained status that someone cleared
        try:
            document = msgspec.json.decode(payload, type=dict)
        except BAD_DOCUMENT as error:
            self.rejects.add("status_syntax", error, name)
            return
        node = self.store.node(name)
        if document.get("state") == "dead" and node.boot not in (None, document.get("boot")):
            return  # the last will of a run that has a successor
        node.status = document
        if document.get("state") in ("dead", "stopped"):
            self.store.give_up_ports(node)
        if self.recording is not None:
            self.recording.append(Kind.STATUS, payload, received)

    def _commit(self, stored: list[tuple[Node, int, int]]) -> None:
        """Hand the batch to the kernel. What the disk refuses is not stored: its node is not told so and sends it again."""
        self.counts["frames"] += len(stored)
        if self.recording is None:
            self.unreported.update([node for node, _, _ in stored])
            return
        try:
            self.recording.flush()
            if self.recording.number != self._checkpoint:
                # Only now, because a ledger must not claim what comes after it.
                self._checkpoint = self.recording.number
                nodes = [
                    node.ledger.report(self.fabric, node.name)
                    for node in self.store.nodes.values()
                    if node.ledger.boots
                ]
                self.recording.append(Kind.LEDGER, msgspec.json.encode(nodes), time.time_ns())
                self.recording.flush()
        except OSError as error:
            if not self.disk_refuses:
                log.error("recording: %s", error.strerror)
            self.disk_refuses = True
            self.counts["disk_errors"] += 1
            for node, boot, seq in stored:
                node.ledger.remove(boot, seq)
            return
        self.disk_refuses = False
        self.counts["stored"] += len(stored)
        self.unreported.update(node for node, _, _ in stored)

    def preamble(self) -> Iterator[tuple[int, bytes]]:
        """What a recording's segment begins with: the schemas in use. The ledger follows its first batch."""
        used = {stream.schema_id for node in self.store.nodes.values() for stream in node.streams.values()}
        for schema_id, schema in self._schemas.items():
            if schema_id in used:
                yield Kind.SCHEMA, schema.encode()

    def replay(self, record: Record) -> None:
        """Take a record of our own recording, at start: what it says is stored already."""
        if record.kind == Kind.FRAME:
            header = read_header(record.payload)
            node = self.store.node(header.node)
            if node.ledger.add(header.boot, header.seq):
                self._take(node, header, record.payload, 0, record.backlog)
        elif record.kind == Kind.SCHEMA:
            self._schema(bytes(record.payload), record.received_ns)
        elif record.kind == Kind.LEDGER:
            for entry in _ledger_decoder.decode(record.payload):
                if entry.fabric == self.fabric:
                    self.store.node(entry.node).ledger.merge(entry.boots)
