"""Files that are rewritten in place many times a second: readers keep their descriptors, so the inode must stay.

Each write is one ``pwrite``. Numbers that became shorter are padded with newlines to the old length first, so that no
reader can see the tail of the old number, then the file is cut.
"""

from __future__ import annotations

import os
import resource

RESERVED_DESCRIPTORS = 512  # for sockets and everything else


class FileWriter:
    """Writes small texts to files below one directory, through kept descriptors where the limit allows."""

    def __init__(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._room = (65536 if hard == resource.RLIM_INFINITY else hard) - RESERVED_DESCRIPTORS
        self._kept: dict[str, int] = {}
        self._lengths: dict[str, int] = {}

    def create(self, path: str, text: str) -> None:
        """A new file (its directory exists)."""
        data = text.encode()
        with open(path, "wb") as out:
            out.write(data)
        self._lengths[path] = len(data)

    def write(self, path: str, text: str) -> None:
        """Replace the content of a file made by :meth:`create`."""
        data = text.encode()
        length = self._lengths.get(path, 0)
        fd = self._kept.get(path)
        if fd is None:
            fd = os.open(path, os.O_WRONLY)
            if len(self._kept) < self._room:
                self._kept[path] = fd
        os.pwrite(fd, data if len(data) >= length else data + b"\n" * (length - len(data)), 0)
        if len(data) < length:
            os.ftruncate(fd, len(data))
        self._lengths[path] = len(data)
        if path not in self._kept:
            os.close(fd)

    def close(self) -> None:
        for fd in self._kept.values():
            os.close(fd)
        self._kept.clear()
