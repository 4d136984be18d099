"""The wire frame: a schema sent once and retained, then frames of packed little-endian u64 columns.

A *stream* is one dense matrix of ports (rows) × columns that a node publishes; a node may have several streams (one per
kind of device, or one per group of switches). The schema names rows and columns; a frame carries the values.

Frame layout, little-endian, every part 8-byte aligned so that the receiver needs one ``numpy.frombuffer(data, '<u8')``::

    0   4s   magic b"FBD1"          4  u8 version   5 u8 0   6 u16 header words (of 8 bytes)
    8   u64  schema id              16 u64 boot id           24 u64 sequence (per node and boot, over all its streams)
    32  u64  monotonic ns           40 u64 wall ns
    48  u32  rows                   52 u32 columns
    56  u16  stream                 58 u16 length of node id 60 u32 crc32 of the whole frame with this field zero
    64  node id, UTF-8, zero-padded to 8
    H   u64[rows*columns]           values, row-major; 0 where not valid
    ..  u8[rows*columns]            flags (model.sample.Flag), zero-padded to 8

No numpy here: the agent encodes with ``array`` and ``struct``; the decoder is ``store/decode.py``.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from fabricd.model.ident import printable

MAGIC = b"FBD1"
VERSION = 1
_FIXED = struct.Struct("<4sBBHQQQQQIIHHI")
HEADER_FIXED = _FIXED.size  # 64
_CRC_AT = 60
MAX_CELLS = 4_000_000
MAX_NODE_ID = 256

ColumnKind = Literal["counter", "gauge", "state", "time", "epoch", "sample"]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a stream. ``kind`` time: ns offset of the row's reading from the frame's time; epoch: rates never cross it;
    sample: an extra reading between the regular ones, for the analysis of job steps only.

    ``width`` is the bits of the counter at its source, ``sticky`` whether it stops at all-ones (else it wraps or is 64-bit).
    """

    name: str  # canonical name of the catalogue, or the raw name when unknown
    unit: str = ""  # bytes, packets, ns, ticks, events, …; "" = unknown
    width: int = 64
    sticky: bool = False
    kind: ColumnKind = "counter"
    priority: int | None = None  # PFC priority or VL/SL where the counter has one
    raw: str = ""
    source: str = ""  # sysfs, hw_counters, ethtool, dcb, pma:0x1d, …

    def __post_init__(self) -> None:
        if not self.raw.isascii():
            msgspec.structs.force_setattr(self, "raw", printable(self.raw))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a stream: identity (guid, port, plane) and the labels people know it by."""

    guid: int
    port: int
    plane: int = 0
    device: str = ""
    netdev: str = ""
    link_layer: str = ""
    driver: str = ""
    rate_gbps: float = 0.0
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        for field in ("device", "netdev", "driver"):
            if not (name := getattr(self, field)).isascii():
                msgspec.structs.force_setattr(self, field, printable(name))
        if not all(map(str.isascii, self.labels.values())):
            labels = {key: printable(value) for key, value in self.labels.items()}
            msgspec.structs.force_setattr(self, "labels", labels)


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream's frames mean. Retained on its topic; its id is in every frame."""

    node: str
    fabric: str
    stream: int
    boot: int
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    version: int = VERSION
    kind: Literal["node", "switch"] = "node"  # agent of a node, or sweep of switches

    def encode(self) -> bytes:
        return _schema_encoder.encode(self)

    @property
    def id(self) -> int:
        """A 64-bit digest of rows, columns, fabric, node and stream; the boot id is not part of it."""
        # By way of the decoder, so that a whole number in a float field gives the receiver's digest.
        body = _schema_encoder.encode(
            _schema_decoder.decode(_schema_encoder.encode(msgspec.structs.replace(self, boot=0)))
        )
        return zlib.crc32(body) << 32 | zlib.crc32(body[::-1])


_schema_encoder = msgspec.json.Encoder(order="deterministic")
_schema_decoder = msgspec.json.Decoder(Schema)


class FrameError(ValueError):
    """Bytes that are not a frame or schema. ``kind`` is a stable slug to count by."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


def decode_schema(data: bytes) -> Schema:
    """Raises FrameError (``schema_syntax``, ``schema_version``, ``schema_size``)."""
    try:
        schema = _schema_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError("schema_syntax", str(error)[:160]) from None
    if schema.version != VERSION:
        raise FrameError("schema_version", f"{schema.version}, known {VERSION}")
    if len(schema.rows) * len(schema.columns) > MAX_CELLS:
        raise FrameError("schema_size", f"{len(schema.rows)} rows x {len(schema.columns)} columns")
    return schema


class Header(NamedTuple):
    """The checked header of a frame; ``values_at`` and ``flags_at`` are byte offsets."""

    schema_id: int
    boot: int
    seq: int
    mono_ns: int
    wall_ns: int
    rows: int
    columns: int
    stream: int
    node: str
    values_at: int
    flags_at: int


def _pad8(n: int) -> int:
    return (n + 7) & ~7


def encode_frame(
    schema: Schema,
    schema_id: int,
    seq: int,
    mono_ns: int,
    wall_ns: int,
    values: Sequence[int] | array[int],
    flags: bytes | bytearray,
) -> bytes:
    """Pack one frame. ``values`` and ``flags`` hold rows*columns cells, row-major. Raises ValueError on a wrong size."""
    cells = len(schema.rows) * len(schema.columns)
    if len(values) != cells or len(flags) != cells:
        raise ValueError(f"{len(values)} values, {len(flags)} flags for {cells} cells")
    packed = values if isinstance(values, array) and values.typecode == "Q" else array("Q", values)
    if sys.byteorder == "big":
        packed = array("Q", packed)
        packed.byteswap()
    node = schema.node.encode()
    if len(node) > MAX_NODE_ID:
        raise ValueError(f"node id longer than {MAX_NODE_ID} bytes")
    head = HEADER_FIXED + _pad8(len(node))
    frame = bytearray(head)
    _FIXED.pack_into(
        frame, 0, MAGIC, VERSION, 0, head // 8, schema_id, schema.boot, seq, mono_ns, wall_ns,
        len(schema.rows), len(schema.columns), schema.stream, len(node), 0,
    )  # fmt: skip
    frame[HEADER_FIXED : HEADER_FIXED + len(node)] = node
    frame += packed.tobytes()
    frame += flags
    frame += bytes(_pad8(cells) - cells)
    struct.pack_into("<I", frame, _CRC_AT, zlib.crc32(frame))
    return bytes(frame)


def read_header(data: bytes | bytearray | memoryview) -> Header:
    """Check a frame completely (size, magic, version, crc) and return its header.

    Raises FrameError with kind ``frame_short``, ``frame_magic``, ``frame_version``, ``frame_size``, ``frame_crc``, ``frame_node``.
    """
    if len(data) < HEADER_FIXED:
        raise FrameError("frame_short", f"{len(data)} bytes")
    (magic, version, _, words, schema_id, boot, seq, mono, wall, rows, columns, stream, node_len, crc) = (
        _FIXED.unpack_from(data, 0)
    )
    if magic != MAGIC:
        raise FrameError("frame_magic", repr(bytes(magic)))
    if version != VERSION:
        raise FrameError("frame_version", f"{version}, known {VERSION}")
    cells = rows * columns
    head = HEADER_FIXED + ((node_len + 7) & ~7)
    size = head + cells * 8 + ((cells + 7) & ~7)
    if cells > MAX_CELLS or node_len > MAX_NODE_ID or words * 8 != head or len(data) != size:
        raise FrameError("frame_size", f"{len(data)} bytes for {rows} rows x {columns} columns")
    view = memoryview(data)
    first = bytearray(view[:HEADER_FIXED])
    first[_CRC_AT:HEADER_FIXED] = b"\0\0\0\0"
    actual = zlib.crc32(view[HEADER_FIXED:], zlib.crc32(first))
    if actual != crc:
        raise FrameError("frame_crc", f"{actual:08x}, frame says {crc:08x}")
    try:
        node = bytes(view[HEADER_FIXED : HEADER_FIXED + node_len]).decode()
    except UnicodeDecodeError:
        raise FrameError("frame_node", "node id is not UTF-8") from None
    return Header(schema_id, boot, seq, mono, wall, rows, columns, stream, node, head, head + cells * 8)
