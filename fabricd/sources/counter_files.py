"""The counter files of one sysfs directory, read through kept descriptors: the node agent's inner loop.

One ``pread`` per file, no open, no allocation that can be avoided: 60 files of a port cost well under 100 µs. What is
not a plain number takes the slow path: refusals are remembered, transient errors are tried again ever more rarely, a
vanished device ends the group.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from fabricd.model.catalogue import CounterDef, saturated, scaled
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.base import SourceGone, clear
from fabricd.sources.files import GONE, REFUSED, Files, errno_name

_SIZE = 32  # a 64-bit number and a newline, with room to notice what is longer
_VALID = int(Flag.VALID)
_SATURATED = int(Flag.VALID | Flag.SATURATED)
_NOT_OBSERVABLE = int(Flag.NOT_OBSERVABLE)
_STALE = int(Flag.STALE)
_LONGEST_PAUSE = 64  # intervals between two attempts at a file that keeps failing

# Before kernel 4.19 a missing performance agent was a text, not an error.
_NOT_AVAILABLE = b"N/A"

NARROW_MAX = 0xFFFF_FFFF


@dataclass(slots=True)
class _Failing:
    """A file that failed without refusing: skipped until ``retry_at``, the pause doubles."""

    pause: int
    retry_at: int


class Refusals:
    """Files that refused, by path: not read again until the device is registered anew or the agent reloads."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def __contains__(self, path: str) -> bool:
        return path in self._paths

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: str) -> None:
        self._paths.add(path)

    def forget(self, prefix: str = "") -> None:
        self._paths = {path for path in self._paths if not path.startswith(prefix)} if prefix else set()


class CounterFiles:
    """A directory such as ``ports/1/hw_counters``: a group of counters (see sources.base.CounterGroup).

    ``every``: read only each so many intervals, because the driver refreshes no faster (``lifespan``); between, the cells
    are stale and empty. ``narrow_data``: 64-bit-looking data counters of this port are 32-bit underneath.
    Raises SourceGone when the device is gone.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        columns: Sequence[CounterDef],
        rejects: Rejects,
        refusals: Refusals,
        *,
        every: int = 1,
        narrow_data: bool = False,
    ) -> None:
        self.columns = columns
        self.directory = directory
        self.every = every
        self._files, self._rejects, self._refusals = files, rejects, refusals
        self._narrow_data = narrow_data
        self._hot: list[
            tuple[int, int, int, CounterDef | None]
        ] = []  # descriptor, column, limit, definition if it scales
        self._last: list[bytes] = []  # the text each cell was made from
        self._blind: set[int] = set()  # columns that show nothing
        self._failing: dict[int, _Failing] = {}
        for column, definition in enumerate(columns):
            self._open(column, definition)

    @property
    def all_blind(self) -> bool:
        """Whether every file refused: nothing of this directory can be seen here."""
        return len(self._blind) == len(self.columns)

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        if tick % self.every:
            clear(values, flags, at, len(self.columns), _STALE)
            self._last = [b""] * len(self._hot)
            return
        pread, last = self._files.pread, self._last
        refused: list[int] = []
        for place, (fd, column, limit, definition) in enumerate(self._hot):
            cell = at + column
            try:
                text = pread(fd, _SIZE, 0)
            except OSError as error:
                flags[cell] = values[cell] = 0
                last[place] = b""
                self._read_failed(column, error, tick, refused)
                continue
            if text == last[place] and text:
                continue  # most counters of a healthy port stand still, and the cell holds what this text says
            last[place] = text
            if text[:-1].isdigit() and (raw := int(text)) < limit:
                values[cell] = raw if definition is None else scaled(definition, raw)
                flags[cell] = _VALID
            else:
                values[cell], flags[cell] = self._odd(column, text, refused)
        for column in self._blind:
            values[at + column], flags[at + column] = 0, _NOT_OBSERVABLE
        if refused:
            self._drop(refused)
        if self._failing:
            self._retry(values, flags, at, tick)

    def close(self) -> None:
        for fd, *_ in self._hot:
            self._close(fd)
        self._hot.clear()

    def _path(self, column: int) -> str:
        return f"{self.directory}/{self.columns[column].raw}"

    def _open(self, column: int, definition: CounterDef) -> None:
        path = self._path(column)
        if not definition.observable or path in self._refusals:
            self._blind.add(column)
            return
        try:
            fd = self._files.open(path)
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise SourceGone(path) from None
            if error.errno == errno.ENOENT:
                self._rejects.add("file_missing", errno_name(error), path)
            else:
                self._refused(column, errno_name(error))
            self._blind.add(column)
            return
        limit = min(definition.limit, NARROW_MAX) if self._narrow_data and definition.width == 64 else definition.limit
        self._hot.append((fd, column, limit, definition if definition.scale != 1 else None))
        self._last.append(b"")

    def _refused(self, column: int, what: str) -> None:
        path = self._path(column)
        self._refusals.add(path)
        self._rejects.add("file_refused", what, path)

    def _read_failed(self, column: int, error: OSError, tick: int, refused: list[int]) -> None:
        if error.errno in GONE:
            raise SourceGone(self._path(column)) from None
        refused.append(column)
        if error.errno in REFUSED:
            self._refused(column, errno_name(error))
            self._blind.add(column)
            return
        self._rejects.add("file_error", errno_name(error), self._path(column))
        last = self._failing.get(column)
        pause = min(last.pause * 2, _LONGEST_PAUSE) if last else 1
        self._failing[column] = _Failing(pause, tick + pause)

    def _odd(self, column: int, text: bytes, refused: list[int]) -> tuple[int, int]:
        """(value, flags) of what is no plain number below the limit: saturated, without a newline, or not a number at all."""
        definition = self.columns[column]
        bare = text.strip(b" \t\r\n\0")
        if bare.startswith(_NOT_AVAILABLE):
            refused.append(column)
            self._blind.add(column)
            self._refused(column, bare.decode("ascii", "backslashreplace"))
            return 0, _NOT_OBSERVABLE
        if not bare.isdigit() or len(text) == _SIZE:
            self._rejects.add("counter_text", bare.decode("ascii", "backslashreplace") or "empty", self._path(column))
            return 0, 0
        raw = int(bare)
        if saturated(definition, raw) or (self._narrow_data and definition.width == 64 and raw == NARROW_MAX):
            if raw > (1 << definition.width) - 1:
                self._rejects.add("counter_range", raw, self._path(column))
                return 0, 0
            return min(scaled(definition, raw), (1 << 64) - 1), _SATURATED
        if raw >= definition.limit:
            self._rejects.add("counter_range", raw, self._path(column))
            return 0, 0
        return scaled(definition, raw), _VALID

    def _drop(self, columns: list[int]) -> None:
        """Take files out of the loop; those that only failed come back by :meth:`_retry`."""
        gone = set(columns)
        for fd, column, *_ in self._hot:
            if column in gone:
                self._close(fd)
        self._hot = [entry for entry in self._hot if entry[1] not in gone]
        self._last = [b""] * len(self._hot)

    def _retry(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        """Files that failed: those that gave a value again are well, those that are due are opened for the next interval."""
        open_now = {entry[1] for entry in self._hot}
        for column, failing in list(self._failing.items()):
            if column in open_now:
                if flags[at + column] & _VALID:
                    del self._failing[column]
                continue
            values[at + column] = flags[at + column] = 0
            if tick + 1 >= failing.retry_at:
                self._open(column, self.columns[column])

    def _close(self, fd: int) -> None:
        try:
            self._files.close(fd)
        except OSError:
            # A descriptor of a device that is gone may report so even when it is closed.
            pass
