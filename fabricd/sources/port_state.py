"""State and rate of a port, read each interval through kept descriptors; the text is parsed only when it changes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from fabricd.model.catalogue import CounterDef, lookup
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.base import SourceGone
from fabricd.sources.files import GONE, Files, errno_name, try_int
from fabricd.sources.link_text import LINK_UP, parse_rate, parse_state

_SIZE = 64
_RATE_EVERY = 10  # intervals


class PortState:
    """``state``, ``phys_state`` and ``rate`` of a port directory: a group of counters (see sources.base.CounterGroup).

    ``speed_path``: a network interface's ``speed`` file (Mb/s) that tells the capacity instead, for a bond.
    """

    def __init__(
        self, files: Files, port_path: str, rejects: Rejects, driver: str = "", speed_path: str | None = None
    ) -> None:
        self.columns: Sequence[CounterDef] = [lookup(driver, "port", raw) for raw in ("state", "phys_state", "rate")]
        self._files, self._rejects = files, rejects
        self._speed = speed_path is not None
        self._paths = (f"{port_path}/state", f"{port_path}/phys_state", speed_path or f"{port_path}/rate")
        self._fds: list[int | None] = []
        self._texts = [b"", b"", b""]
        self._parsed: list[int | None] = [None, None, None]
        for path in self._paths:
            try:
                self._fds.append(files.open(path))
            except OSError as error:
                rejects.add("file_unreadable", errno_name(error), path)
                self._fds.append(None)

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        changed = False
        for column, fd in enumerate(self._fds):
            if fd is None or (column == 2 and not changed and not self._speed and tick % _RATE_EVERY):
                continue  # a link's rate changes only with its state, so it is seldom worth a question by itself
            try:
                text = self._files.pread(fd, _SIZE, 0)
            except OSError as error:
                if error.errno in GONE:
                    raise SourceGone(self._paths[column]) from None
                text = b""  # a bond without members has no speed, and says EINVAL
            if text != self._texts[column]:
                changed = True
                self._texts[column] = text
                self._parsed[column] = self._parse(column, text.decode("ascii", "backslashreplace"))
        if not changed:
            return
        state, phys, rate = self._parsed
        if not self._speed and phys is not None and phys != LINK_UP:
            rate = None  # the text of a port that is down is a default
        for cell, value in enumerate((state, phys, rate), at):
            values[cell] = value or 0
            flags[cell] = Flag.VALID if value is not None else 0

    def _parse(self, column: int, text: str) -> int | None:
        if not text:
            return None
        if column < 2:
            parsed = parse_state(text)
            value = parsed[0] if parsed else None
        elif self._speed:
            megabits = try_int(text.strip())
            return megabits * 125_000 if megabits is not None and 0 < megabits < 0xFFFFFFFF else None
        else:
            gigabits = parse_rate(text)
            value = round(gigabits * 125_000_000) if gigabits is not None else None
        if value is None:
            self._rejects.add("rate_text" if column == 2 else "state_text", text.strip(), self._paths[column])
        return value

    def close(self) -> None:
        for fd in self._fds:
            if fd is not None:
                self._files.close(fd)
        self._fds = []
