"""Reading a node: the live file system, or a captured tree that stands for it. Never a bare error: every miss says why."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 65536  # no file the doctor reads is larger; a captured tree may hold anything
_WORDS = {
    errno.ENOENT: "not there",
    errno.EACCES: "needs more privilege",
    errno.EPERM: "needs more privilege",
    errno.EINVAL: "refused by the driver",
    errno.EOPNOTSUPP: "not supported",
    errno.ENODEV: "device is gone",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """A value, or why there is none. ``denied``: more privilege would show it."""

    path: str
    text: str | None
    why: str = ""
    denied: bool = False

    def integer(self) -> int | None:
        """The value as a number (decimal or 0x…), None when missing or something else."""
        try:
            return int(self.text.strip(), 0) if self.text is not None else None
        except ValueError:
            return None


class Tree:
    """Absolute paths below ``root`` (``/`` is the live node)."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(os.path.realpath(root))
        self.live = self.root == Path("/")

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> Reading:
        """Text of a small file, stripped."""
        data, why, denied = self._bytes(path)
        return Reading(path, None if data is None else data.decode(errors="replace").strip(), why, denied)

    def read_bytes(self, path: str) -> tuple[bytes | None, str]:
        """(content, why missing)."""
        data, why, _ = self._bytes(path)
        return data, why

    def _bytes(self, path: str) -> tuple[bytes | None, str, bool]:
        inside = self.real(path)
        if inside is None:
            return None, "not there", False
        try:
            fd = os.open(self._at(inside), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            return None, *self._why(error)
        try:
            return os.read(fd, MAX_BYTES), "", False
        except OSError as error:
            return None, *self._why(error)
        finally:
            os.close(fd)

    @staticmethod
    def _why(error: OSError) -> tuple[str, bool]:
        words = _WORDS.get(error.errno or 0, os.strerror(error.errno or 0))
        return words, error.errno in (errno.EACCES, errno.EPERM)

    def names(self, path: str) -> list[str]:
        """Sorted entries of a directory; empty when it cannot be listed."""
        inside = self.real(path)
        if inside is None:
            return []
        try:
            return sorted(entry.name for entry in self._at(inside).iterdir())
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        inside = self.real(path)
        return inside is not None and self._at(inside).exists()

    def real(self, path: str) -> str | None:
        """Absolute path with links resolved, as seen from the root; None when it leads out of a captured tree."""
        try:
            target = Path(os.path.realpath(self._at(path)))
        except OSError:
            return None
        if self.live:
            return str(target)
        try:
            return "/" + str(target.relative_to(self.root)).removeprefix(".")
        except ValueError:
            return None
