"""Reading the kernel's files: one seam for every open, read and listing, so that tests can make any file fail with any errno."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Protocol

READ_SIZE = 4096

# The kernel's way to say "this file is not for you, or has nothing": asking again gives the same answer, and for some functions
# each question makes the firmware log an error. Remembered until the device is registered anew.
REFUSED = frozenset(
    {errno.EINVAL, errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EISDIR, errno.ENXIO, errno.ENOTTY}
)
# The device behind the file is not there any more.
GONE = frozenset({errno.ENODEV, errno.ENOENT, errno.ESTALE, errno.ESHUTDOWN})


class Files(Protocol):
    """What the sources ask of a file system. Every method raises OSError."""

    def open(self, path: str) -> int: ...
    def pread(self, fd: int, size: int, offset: int, /) -> bytes: ...
    def close(self, fd: int) -> None: ...
    def listdir(self, path: str) -> list[str]: ...
    def readlink(self, path: str) -> str: ...
    def realpath(self, path: str) -> str: ...
    def identity(self, path: str) -> int: ...
    def identities(self, directory: str) -> dict[str, int]: ...


class OsFiles:
    """The real file system."""

    pread = staticmethod(os.pread)

    def open(self, path: str) -> int:
        # Not blocking: a copied tree may hold a pipe where /sys has a file, and nobody writes into it.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def close(self, fd: int) -> None:
        os.close(fd)

    def listdir(self, path: str) -> list[str]:
        return [entry.name for entry in Path(path).iterdir()]

    def readlink(self, path: str) -> str:
        return str(Path(path).readlink())

    def realpath(self, path: str) -> str:
        return str(Path(path).resolve())

    def identity(self, path: str) -> int:
        """A number that changes when the directory is made anew: its inode."""
        return Path(path).stat().st_ino

    def identities(self, directory: str) -> dict[str, int]:
        """Name and identity of each directory below; what goes away meanwhile is left out."""
        found = {}
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    found[entry.name] = entry.stat().st_ino
                except OSError:
                    continue
        return found


def read_text(files: Files, path: str) -> str:
    """The whole of a small file, stripped. Bytes that are not UTF-8 are kept as escapes. Raises OSError."""
    fd = files.open(path)
    try:
        return files.pread(fd, READ_SIZE, 0).decode("utf-8", "backslashreplace").strip().strip("\0")
    finally:
        files.close(fd)


def try_text(files: Files, path: str) -> str | None:
    """The same, or None when it cannot be read or is empty: for what is nice to know and often absent."""
    try:
        return read_text(files, path) or None
    except OSError:
        return None


def try_list(files: Files, path: str) -> list[str]:
    """Names in a directory, sorted; none when there is no such directory."""
    try:
        return sorted(files.listdir(path))
    except OSError:
        return []


def try_link_name(files: Files, path: str) -> str | None:
    """The last part of where a link points to, or None."""
    try:
        return files.readlink(path).rstrip("/").rsplit("/", 1)[-1] or None
    except OSError:
        return None


def try_int(text: str | None, base: int = 10) -> int | None:
    try:
        return int(text, base) if text else None
    except ValueError:
        return None


def errno_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "OSError")
