"""A bounded on-disk queue of messages that are not yet known to be stored at the far end.

Append-only segment files of records: ``<IIQQ>`` (length, crc32 over the rest, boot, seq) and the payload. Records survive the death
of the process (they are in the page cache when ``append`` returns), not necessarily a power cut, after which a new boot begins anyway.
The index is in memory and rebuilt by a scan at start; a torn tail costs the torn record. When the limit is reached the oldest
segment goes, and what it held is counted as dropped.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fabricd.errors import FabricdError

_HEAD = struct.Struct("<IIQQ")
_IDENTITY = struct.Struct("<QQ")
_SUFFIX = ".spool"
SEGMENTS = 16  # the limit is divided into about so many files: what one drop costs at most

Key = tuple[int, int]  # (boot, seq)


class _Segment:
    __slots__ = ("fd", "live", "number", "path", "size")

    def __init__(self, path: Path, number: int, fd: int) -> None:
        self.path, self.number, self.fd = path, number, fd
        self.size = 0
        self.live: set[Key] = set()


class _Entry(NamedTuple):
    segment: _Segment
    offset: int
    length: int


class Spool:
    """Keyed by (boot, seq), in order of arrival. Not thread-safe."""

    def __init__(self, directory: Path, limit: int) -> None:
        """``limit`` in bytes. Raises FabricdError when the directory cannot be used or another process uses it."""
        self.directory = directory
        self.limit = limit
        self.segment_bytes = max(4096, limit // SEGMENTS)
        self.bytes = 0
        self.dropped = 0
        self.torn = 0
        self.errors = 0
        self._entries: dict[Key, _Entry] = {}
        self._segments: list[_Segment] = []
        self._open: _Segment | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FabricdError(f"spool {directory}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise FabricdError(f"spool {directory}: another process uses it") from None
        try:
            self._load()
        except OSError as error:
            raise FabricdError(f"spool {directory}: {error.strerror}") from None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def append(self, boot: int, seq: int, payload: bytes) -> bool:
        """Write one record. False when the disk refused (counted in ``errors``) or the record alone passes the limit."""
        size = _HEAD.size + len(payload)
        if size > self.limit:
            self.dropped += 1
            return False
        while self.bytes + size > self.limit:
            self._drop_oldest()
        identity = _IDENTITY.pack(boot, seq)
        head = _HEAD.pack(len(payload), zlib.crc32(payload, zlib.crc32(identity)), boot, seq)
        try:
            segment = self._current(size)
            written = os.writev(segment.fd, (head, payload))
            if written != size:
                os.ftruncate(segment.fd, segment.size)
                raise OSError("short write")
        except OSError:
            self.errors += 1
            return False
        self._index((boot, seq), _Entry(segment, segment.size + _HEAD.size, len(payload)))
        segment.size += size
        self.bytes += size
        return True

    def read(self, key: Key) -> bytes | None:
        """The payload, or None when it was freed, dropped or cannot be read."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        try:
            data = os.pread(entry.segment.fd, entry.length, entry.offset)
        except OSError:
            data = b""
        if len(data) == entry.length:
            return data
        self.errors += 1
        return None

    def free(self, boot: int, ranges: Sequence[Sequence[int]]) -> int:
        """Forget what is stored: the sequences of ``boot`` within the inclusive (low, high) ``ranges``. Returns how many."""
        done = [key for key in self._entries if key[0] == boot and any(low <= key[1] <= high for low, high in ranges)]
        for key in done:
            self._entries.pop(key).segment.live.discard(key)
        for segment in [s for s in self._segments if not s.live and s is not self._open]:
            self._remove(segment)
        return len(done)

    def close(self) -> None:
        for segment in self._segments:
            os.close(segment.fd)
        os.close(self._lock)
        self._segments.clear()
        self._entries.clear()

    def _index(self, key: Key, entry: _Entry) -> None:
        older = self._entries.pop(key, None)
        if older is not None:
            older.segment.live.discard(key)
        self._entries[key] = entry
        entry.segment.live.add(key)

    def _current(self, size: int) -> _Segment:
        """The segment being written. A start begins a new one, so that what earlier runs left goes away as it is freed."""
        last = self._open
        if last is not None and (not last.size or last.size + size <= self.segment_bytes):
            return last
        number = self._segments[-1].number + 1 if self._segments else 0
        path = self.directory / f"{number:08d}{_SUFFIX}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._open = _Segment(path, number, fd)
        self._segments.append(self._open)
        if last is not None and not last.live:
            self._remove(last)
        return self._open

    def _drop_oldest(self) -> None:
        segment = self._segments[0]
        self.dropped += len(segment.live)
        for key in segment.live:
            del self._entries[key]
        self._remove(segment)

    def _remove(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        if segment is self._open:
            self._open = None
        self.bytes -= segment.size
        os.close(segment.fd)
        segment.path.unlink(missing_ok=True)

    def _load(self) -> None:
        paths = sorted(p for p in self.directory.glob(f"*{_SUFFIX}") if p.stem.isdigit())
        for path in paths:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            segment = _Segment(path, int(path.stem), fd)
            data = path.read_bytes()
            at = 0
            while at + _HEAD.size <= len(data):
                length, crc, boot, seq = _HEAD.unpack_from(data, at)
                start, end = at + _HEAD.size, at + _HEAD.size + length
                if end > len(data) or zlib.crc32(data[start:end], zlib.crc32(_IDENTITY.pack(boot, seq))) != crc:
                    break
                self._index((boot, seq), _Entry(segment, start, length))
                at = end
            if at < len(data):
                self.torn += 1
                os.ftruncate(fd, at)
            segment.size = at
            self.bytes += at
            self._segments.append(segment)
        while self.bytes > self.limit and self._segments:
            self._drop_oldest()
