"""Writing a recording: bounded, segmented, append-only. ``flush`` hands the bytes to the kernel, ``sync`` to the disk.

The format is in store/records.py. Old segments are never changed, only removed as a whole when the limit is reached; every start
begins a new segment, so a tail torn by a crash stays where it is and costs one record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fabricd.errors import FabricdError
from fabricd.store.records import HEAD, SEGMENT_MAGIC, SUFFIX, Kind, encode_head, padding, segments

_IOV_MAX = os.sysconf("SC_IOV_MAX")
Preamble = Callable[[], Iterator[tuple[int, bytes]]]  # (kind, payload) of what a segment begins with


class Recording:
    """Not thread-safe, except that ``sync`` may run in another thread than ``append`` and ``flush``.

    ``limit`` in bytes over all segments; ``preamble`` gives the schemas in use at the time of the call;
    ``number`` is the segment's.
    Raises FabricdError when the directory cannot be used; OSError from ``flush`` and ``sync`` when the disk refuses.
    """

    def __init__(self, directory: Path, limit: int, preamble: Preamble, segment_bytes: int | None = None) -> None:
        self.directory = directory
        self.limit = limit
        self.segment_bytes = segment_bytes or max(1 << 20, limit // 16)
        self._preamble = preamble
        self._pending: list[bytes | memoryview] = []
        self._pending_bytes = 0
        self._last_same: tuple[int, int, int, bool] | None = None
        self._last_head = b""
        self._fd = -1
        self._retired = -1  # the segment before: open a while longer, because a sync may still run on it
        self._size = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._old = [(path, path.stat().st_size) for path in segments(directory)]
        except OSError as error:
            raise FabricdError(f"recording {directory}: {error.strerror}") from None
        self.number = int(self._old[-1][0].stem) + 1 if self._old else 0
        self.bytes = sum(size for _, size in self._old)
        self.trimmed = 0  # segments removed to keep the limit

    def append(self, kind: int, payload: bytes | memoryview, received_ns: int, *, backlog: bool = False) -> None:
        """Take one record into the batch. The payload must stay unchanged until :meth:`flush`."""
        # The head of a frame does not depend on its content: one serves all frames of a size that came together.
        same = (kind, len(payload), received_ns, backlog)
        if same != self._last_same or kind != Kind.FRAME:
            self._last_same, self._last_head = same, encode_head(kind, payload, received_ns, backlog)
        self._pending += (self._last_head, payload)
        size = HEAD.size + len(payload)
        if size & 7:
            self._pending.append(padding(size))
            size += -size % 8
        self._pending_bytes += size

    def flush(self) -> None:
        """Write the batch. Raises OSError; then nothing of the batch is in the recording."""
        if not self._pending:
            return
        batch, size = self._pending, self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        if self._fd < 0 or self._size + size > self.segment_bytes:
            self._begin_segment()
        self._write(batch, size)

    def sync(self) -> None:
        """Everything flushed so far is on disk when this returns."""
        fd = self._fd
        if fd >= 0:
            os.fdatasync(fd)

    def discard(self) -> None:
        """Forget the batch."""
        self._pending, self._pending_bytes = [], 0

    def close(self) -> None:
        self._close_retired()
        if self._fd >= 0:
            os.ftruncate(self._fd, self._size)
            os.close(self._fd)
            self._old.append((self._path(self.number), self._size))
            self._fd = -1
            self.number += 1

    def _write(self, batch: list[bytes | memoryview], size: int) -> None:
        written = 0
        try:
            for at in range(0, len(batch), _IOV_MAX):
                part = batch[at : at + _IOV_MAX]
                count = os.pwritev(self._fd, part, self._size + written)
                written += count
                if count != sum(map(len, part)):
                    raise OSError(28, "short write", str(self.directory))
        except OSError:
            os.ftruncate(self._fd, self._size)  # what follows the last whole record is zeros or nothing
            raise
        self._size += size
        self.bytes += size

    def _begin_segment(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, self._size)
            os.fdatasync(self._fd)
            self._old.append((self._path(self.number), self._size))
            self._close_retired()
            self._retired, self._fd = self._fd, -1
            self.number += 1
        while self._old and self.bytes + self.segment_bytes > self.limit:
            path, size = self._old.pop(0)
            path.unlink(missing_ok=True)
            self.bytes -= size
            self.trimmed += 1
        path = self._path(self.number)
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o640)
        self._size = 0
        try:
            # Room in one piece: a third less CPU a write, and a full disk shows here rather than in the middle of a batch.
            os.posix_fallocate(self._fd, 0, self.segment_bytes)
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)  # a file whose name is lost is lost
            finally:
                os.close(directory)
            for kind, payload in self._preamble():
                self.append(kind, payload, 0)
            batch, size = self._pending, self._pending_bytes
            self._pending, self._pending_bytes = [], 0
            self._write([SEGMENT_MAGIC, *batch], size + len(SEGMENT_MAGIC))
        except OSError:
            os.close(self._fd)
            self._fd = -1
            path.unlink(missing_ok=True)
            raise

    def _close_retired(self) -> None:
        if self._retired >= 0:
            os.close(self._retired)
            self._retired = -1

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:08d}{SUFFIX}"
