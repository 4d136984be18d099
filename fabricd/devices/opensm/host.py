"""The machine opensm runs on: its files, its log, its signal and its console. Here when it is this machine.

``Host`` is also what ``remote.py`` offers for another machine, so adapters do not care which it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fabricd.devices.base import DeviceError, DeviceUnreachable

MOST_BYTES = 256 << 20
COMMANDS = ("reroute", "resweep heavy", "status", "dump_conf")
PROMPT = b"OpenSM $"
IN_USE = b"(y/n)?"
_STATE = re.compile(rb"^.*(?:Entering [A-Z]+ state|OpenSM \d[^\n]*$|Exiting SM).*$", re.M)
_TAIL = 1 << 20


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the log: its file and how far it was read."""

    inode: int
    size: int


class Host(Protocol):
    """All raise DeviceUnreachable when the machine cannot be asked, DeviceError when it refuses."""

    def read(self, path: str) -> str | None:
        """A file's text, None when there is none."""
        ...

    def write(self, path: str, text: str | None) -> None:
        """Replace a file in one step, or remove it (None)."""
        ...

    def hangup(self) -> None:
        """SIGHUP: read the configuration again and sweep."""
        ...

    def console(self, command: str) -> str:
        """One of COMMANDS on opensm's console; what it printed."""
        ...

    def mark(self) -> Mark:
        """The end of the log now."""
        ...

    def log_since(self, mark: Mark) -> tuple[str, Mark]:
        """What was logged after a place, whole lines, and the place after it."""
        ...

    def identity(self) -> str:
        """A text that changes when opensm was started anew or changed its role."""
        ...


@dataclass(slots=True)
class LocalHost:
    """``directories``: where files may be read and written; ``readable``: further files that may only be read."""

    log: Path
    pid_file: Path | None = None
    console_address: tuple[str, int] | None = None
    directories: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    console_timeout_s: float = 5.0
    _state: dict[int, str] = field(default_factory=dict)

    def read(self, path: str) -> str | None:
        place = self._allowed(path, write=False)
        try:
            if place.stat().st_size > MOST_BYTES:
                raise DeviceError(f"{path}: larger than {MOST_BYTES} bytes")
            return place.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DeviceUnreachable(f"{path}: {error.strerror}") from None

    def write(self, path: str, text: str | None) -> None:
        place = self._allowed(path, write=True)
        try:
            if text is None:
                place.unlink(missing_ok=True)
            else:
                _replace(place, text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise DeviceError(f"{path}: {error.strerror}") from None

    def _allowed(self, path: str, *, write: bool) -> Path:
        place = Path(os.path.normpath(path))
        if not place.is_absolute():
            raise DeviceError(f"{path}: opensm.conf must name this file by its full path")
        inside = any(place.parent == directory for directory in self.directories)
        if not inside and (write or place not in self.readable):
            raise DeviceError(f"{path}: not in a directory fabricd may touch ({', '.join(map(str, self.directories))})")
        return place

    def hangup(self) -> None:
        if self.pid_file is None:
            raise DeviceError("SIGHUP: no process id file of opensm is configured")
        pid = self._pid()
        try:
            os.kill(pid, signal.SIGHUP)
        except OSError as error:
            raise DeviceUnreachable(f"opensm, process {pid}: {error.strerror}") from None

    def _pid(self) -> int:
        assert self.pid_file is not None
        try:
            text = self.pid_file.read_text(encoding="ascii").strip()
            name = Path(f"/proc/{int(text)}/comm").read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            raise DeviceUnreachable(f"{self.pid_file}: names no running process") from None
        if not name.startswith(("opensm", "osm")):
            raise DeviceUnreachable(f"{self.pid_file}: process {text} is {name}, not opensm")
        return int(text)

    def console(self, command: str) -> str:
        if command not in COMMANDS:
            raise DeviceError(f"console command {command!r} is not one of {', '.join(COMMANDS)}")
        if self.console_address is None:
            raise DeviceError("no console of opensm is configured")
        try:
            with socket.create_connection(self.console_address, self.console_timeout_s) as line:
                _until_prompt(line)
                line.sendall(command.encode() + b"\n")
                out = _until_prompt(line).decode("utf-8", "replace")
                # Ended in order: opensm has one console only, and would ask the next caller whether to kill this session.
                line.sendall(b"quit\n")
                while line.recv(1 << 12):
                    pass
                return out
        except OSError as error:
            raise DeviceUnreachable(f"opensm's console: {error.strerror or error}") from None

    def mark(self) -> Mark:
        try:
            found = self.log.stat()
        except OSError as error:
            raise DeviceUnreachable(f"{self.log}: {error.strerror}") from None
        return Mark(found.st_ino, found.st_size)

    def log_since(self, mark: Mark) -> tuple[str, Mark]:
        try:
            with self.log.open("rb") as file:
                found = os.fstat(file.fileno())
                start = mark.size if found.st_ino == mark.inode and found.st_size >= mark.size else 0
                file.seek(start)
                data = file.read(MOST_BYTES)
        except OSError as error:
            raise DeviceUnreachable(f"{self.log}: {error.strerror}") from None
        whole = data[: data.rfind(b"\n") + 1]
        return whole.decode("utf-8", "replace"), Mark(found.st_ino, start + len(whole))

    def identity(self) -> str:
        """Process and start time where the process id is known, and the last change of role in the log."""
        who = ""
        if self.pid_file is not None:
            pid = self._pid()
            with contextlib.suppress(OSError, IndexError):
                who = f"{pid}.{Path(f'/proc/{pid}/stat').read_text().rsplit(')', 1)[1].split()[19]}"
        try:
            with self.log.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - _TAIL))
                found = _STATE.findall(file.read(_TAIL))
        except OSError as error:
            raise DeviceUnreachable(f"{self.log}: {error.strerror}") from None
        return f"{who} {found[-1].decode('utf-8', 'replace').strip() if found else ''}".strip()


def _replace(place: Path, data: bytes) -> None:
    """Write beside, flush to disk, rename: opensm reads the old text or the new one, never a part. Mode and owner stay."""
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=f".{place.name}.", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                before = place.stat()
                os.fchmod(file.fileno(), before.st_mode & 0o7777)
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fsync(file.fileno())
            Path(file.name).replace(place)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _until_prompt(line: socket.socket) -> bytes:
    out = b""
    deadline = time.monotonic() + (line.gettimeout() or 5.0)
    while not out.rstrip().endswith(PROMPT):
        part = line.recv(1 << 16)
        if not part or time.monotonic() > deadline:
            raise ConnectionError("no prompt")
        out += part
        if out.rstrip().endswith(IN_USE):
            line.sendall(b"n\n")
            raise ConnectionError("somebody else uses it")
    return out.rstrip()[: -len(PROMPT)]
