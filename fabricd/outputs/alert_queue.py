"""Messages that wait for their receiver, on disk: one file a message, atomically written, oldest first, bounded.

At most one message of a verdict waits per receiver: a later one replaces it, so that a receiver that was away for an hour is
told how things stand now and not every step of how they came to.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.outputs.alert import Alert

_decoder = msgspec.json.Decoder(Alert)


class AlertQueue:
    """Raises FabricdError, naming the directory, when it cannot be used."""

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory, self.keep = directory, keep
        self.dropped = self.damaged = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for leftover in directory.glob(".*.part"):
                leftover.unlink()
            names = [path.name for path in directory.glob("*.json")]
        except OSError as error:
            raise FabricdError(f"alerts.queue_dir = {directory}: {error.strerror}") from None
        self._next = 1 + max((int(name.split("-")[0]) for name in names if name.split("-")[0].isdigit()), default=0)

    def put(self, alert: Alert) -> None:
        """Queue a message in place of an older one of the same verdict."""
        mark = _mark(alert.fingerprint)
        try:
            for older in self.directory.glob(f"*-{mark}.json"):
                older.unlink()
            target = self.directory / f"{self._next:012d}-{mark}.json"
            self._next += 1
            partial = self.directory / f".{target.name}.part"
            with partial.open("wb") as file:
                file.write(msgspec.json.encode(alert))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
            for extra in self._paths()[: -self.keep]:
                extra.unlink()
                self.dropped += 1
        except OSError as error:
            raise FabricdError(f"alerts.queue_dir = {self.directory}: {error.strerror}") from None

    def _paths(self) -> list[Path]:
        return sorted(self.directory.glob("*.json"))

    def __len__(self) -> int:
        return len(self._paths())

    def head(self) -> tuple[Path, Alert] | None:
        """The oldest message; damaged files are counted and removed."""
        for path in self._paths():
            try:
                return path, _decoder.decode(path.read_bytes())
            except (*BAD_DOCUMENT, OSError):
                self.damaged += 1
                path.unlink(missing_ok=True)
        return None

    def done(self, path: Path) -> None:
        """Delivered (or refused for good). Gone already when a newer message took its place meanwhile."""
        path.unlink(missing_ok=True)


def _mark(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
