"""The record format of recordings: the aggregator writes it, ``fabricd record`` makes it, ``fabricd replay`` reads it.

A recording is a directory of segments ``NNNNNNNN.fbrec``, each readable alone. A segment is ``FBREC1\\0\\0`` and records; a record
is a header of 24 bytes, little-endian, then the payload, zero-padded to a multiple of 8::

    0  u32 payload length     4  u32 crc32     8  u64 wall-clock ns when it was received
    16 u8  kind              17  u8  1 = came as backlog     18  6 bytes zero

The crc covers the header (its own field zero) and, for every kind but a frame, the payload; a frame carries its own crc.
Zeros after the last record are room that was reserved. A segment begins with the schemas in use; a ledger of everything stored
so far follows its first batch.
"""

from __future__ import annotations

import enum
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fabricd.model.frame import FrameError, read_header
from fabricd.model.rejects import Rejects

SEGMENT_MAGIC = b"FBREC1\0\0"
SUFFIX = ".fbrec"
HEAD = struct.Struct("<IIQBB6x")
MAX_PAYLOAD = 256 << 20


class Kind(enum.IntEnum):
    FRAME = 1  # model/frame.py
    SCHEMA = 2  # JSON of model.frame.Schema
    STATUS = 3  # JSON of a node's status
    LEDGER = 4  # JSON list of store.sequences.StoredNode
    NOTE = 5  # JSON object with "note": topology, verdict, push, … for reports


class Record(NamedTuple):
    kind: int
    backlog: bool
    received_ns: int
    payload: memoryview
    offset: int  # of the payload in its segment


def encode_head(kind: int, payload: bytes | memoryview, received_ns: int, backlog: bool) -> bytes:
    head = HEAD.pack(len(payload), 0, received_ns, kind, backlog)
    crc = zlib.crc32(head)
    if kind != Kind.FRAME:
        crc = zlib.crc32(payload, crc)
    return HEAD.pack(len(payload), crc, received_ns, kind, backlog)


def padding(length: int) -> bytes:
    return b"\0" * (-length % 8)


def read_segment(path: Path, rejects: Rejects) -> Iterator[Record]:
    """The sound records of one segment. A torn tail ends it; a damaged record costs only itself; both are counted.

    Raises OSError when the file cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            rejects.add("segment_torn", "empty", path.name)
            return
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if bytes(data[:8]) != SEGMENT_MAGIC:
        rejects.add("segment_magic", bytes(data[:8]), path.name)
        return
    at = 8
    while at < len(data):
        if at + HEAD.size > len(data):
            if _only_zeros(data[at:]):
                return
            rejects.add("segment_torn", f"{len(data) - at} bytes", f"{path.name}@{at}")
            return
        length, crc, received, kind, backlog = HEAD.unpack_from(data, at)
        if crc == 0 and _only_zeros(data[at:]):
            return  # room that was reserved and not used
        start, end = at + HEAD.size, at + HEAD.size + length
        bare = zlib.crc32(HEAD.pack(length, 0, received, kind, backlog))
        if length > MAX_PAYLOAD or (kind == Kind.FRAME and crc != bare):
            # Without a sound header the next record cannot be found.
            rejects.add("segment_torn", "header damaged", f"{path.name}@{at}")
            return
        if end > len(data):
            rejects.add("segment_torn", f"{end - len(data)} bytes missing", f"{path.name}@{at}")
            return
        payload = data[start:end]
        if _sound(kind, payload, crc, bare):
            yield Record(kind, bool(backlog), received, payload, start)
        else:
            rejects.add("record_crc", f"kind {kind}, {length} bytes", f"{path.name}@{at}")
        at = end + (-length % 8)


def _only_zeros(data: memoryview) -> bool:
    step = 1 << 20
    return not any(data[at : at + step].tobytes().strip(b"\0") for at in range(0, len(data), step))


def _sound(kind: int, payload: memoryview, crc: int, bare: int) -> bool:
    if kind != Kind.FRAME:
        return zlib.crc32(payload, bare) == crc
    try:
        read_header(payload)
    except FrameError:
        return False
    return True


def segments(directory: Path) -> list[Path]:
    """The segments of a recording, oldest first. Raises OSError."""
    return sorted(path for path in directory.iterdir() if path.suffix == SUFFIX and path.stem.isdigit())
