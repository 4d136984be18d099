"""Statistics of a network interface by the ethtool ioctl: priority flow control, discards and marks of RoCE ports.

Drivers add and remove names while they run: mlx5 shows a priority's pause counters only while flow control is on for it. Older kernels
then write as many entries as there are now, whatever room the caller left; recent ones (6.18) write none when the caller's
count is not theirs. So the buffers keep spare room, the count we expect is passed, and names are compared as bytes after each
reading: values are believed only if the names were still the same.
"""

from __future__ import annotations

import ctypes
import errno
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pyroute2.ethtool.ioctl import (
    ETH_GSTRING_LEN,
    ETH_SS_STATS,
    ETHTOOL_GSTATS,
    ETHTOOL_GSTRINGS,
    IoctlEthtool,
    NoSuchDevice,
    NotSupportedError,
    generate_EthtoolGStats,
    generate_EthtoolGstrings,
)

from fabricd.model.catalogue import CounterDef, lookup, scaled
from fabricd.model.sample import Flag
from fabricd.sources.base import LayoutChanged, SourceGone

_SPARE = 2048  # entries; 64 kB for names
_ATTEMPTS = 3  # at names whose number changes while we ask
_VALID = int(Flag.VALID)


class EthtoolStrings:
    """Names and values of an interface's statistics, raw. Raises OSError, NotSupportedError, NoSuchDevice."""

    def __init__(self, netdev: str) -> None:
        self._ethtool: Any = IoctlEthtool(netdev)
        self._names_raw = b""
        self.names: list[str] = []
        try:
            self._make_room()
            self._read_names()
        except (OSError, NotSupportedError, NoSuchDevice):
            self.close()
            raise

    def _make_room(self) -> None:
        self._count = self._ethtool.get_stringset_length(ETH_SS_STATS)
        room = self._count + _SPARE
        self._strings: Any = generate_EthtoolGstrings(room)(cmd=ETHTOOL_GSTRINGS, string_set=ETH_SS_STATS)
        self._stats: Any = generate_EthtoolGStats(room)(cmd=ETHTOOL_GSTATS)
        self._numbers = memoryview(self._stats.data).cast("B").cast("Q")

    def _read_names(self) -> bool:
        """Ask for the names; True if they are not those of before."""
        for _ in range(_ATTEMPTS):
            self._strings.len = self._count
            self._ethtool.ifreq.gstrings = ctypes.cast(ctypes.byref(self._strings), ctypes.POINTER(None))
            self._ethtool.ioctl()
            if self._strings.len == self._count:
                break
            self._make_room()
        size = self._strings.len * ETH_GSTRING_LEN
        raw = ctypes.string_at(ctypes.addressof(self._strings) + type(self._strings).strings.offset, size)
        if raw == self._names_raw:
            return False
        self._names_raw = raw
        pieces = (raw[i : i + ETH_GSTRING_LEN] for i in range(0, size, ETH_GSTRING_LEN))
        # Some drivers pad a name with blanks.
        self.names = [piece.split(b"\0", 1)[0].decode("ascii", "backslashreplace").strip() for piece in pieces]
        return True

    def read(self) -> memoryview:
        """Values now, in the order of ``names``. Raises LayoutChanged when the names changed since the last reading."""
        self._stats.size = self._count
        self._ethtool.ifreq.gstats = ctypes.cast(ctypes.byref(self._stats), ctypes.POINTER(None))
        self._ethtool.ioctl()
        count = self._stats.size
        if self._read_names() or count != len(self.names):
            raise LayoutChanged
        return self._numbers[:count]

    def close(self) -> None:
        self._ethtool.close()


class Statistics(Protocol):
    """Where names and values come from: the kernel, or a file (see sources.statistics_files)."""

    names: list[str]

    def read(self) -> memoryview: ...
    def close(self) -> None: ...


class EthtoolCounters:
    """The statistics the catalogue knows (and those ``extra`` asks for): a group of counters (see sources.base.CounterGroup).

    Raises SourceGone when there is no such interface, NotSupportedError when its driver has no statistics.
    """

    def __init__(
        self, netdev: str, driver: str, extra: Callable[[str], bool], *, source: Statistics | None = None
    ) -> None:
        self.netdev = netdev
        try:
            self._source: Statistics = source or EthtoolStrings(netdev)
        except (NoSuchDevice, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENODEV:
                raise
            raise SourceGone(netdev) from None
        columns: list[CounterDef] = []
        self.columns: Sequence[CounterDef] = columns
        self._picks: list[tuple[int, CounterDef | None]] = []
        seen: set[tuple[str, int | None]] = set()
        for index, name in enumerate(self._source.names):
            definition = lookup(driver, "ethtool", name)
            if not name or not (definition.known or extra(name)) or (definition.name, definition.priority) in seen:
                continue
            seen.add((definition.name, definition.priority))
            columns.append(definition)
            self._picks.append((index, definition if definition.scale != 1 else None))

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        try:
            numbers = self._source.read()
        except (NoSuchDevice, NotSupportedError):
            raise SourceGone(self.netdev) from None
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise SourceGone(self.netdev) from None
            raise
        for cell, (index, definition) in enumerate(self._picks, at):
            raw = numbers[index]
            values[cell] = raw if definition is None else scaled(definition, raw) & 0xFFFF_FFFF_FFFF_FFFF
            flags[cell] = _VALID

    def close(self) -> None:
        self._source.close()


def open_ethtool(netdev: str, driver: str, extra: Callable[[str], bool]) -> EthtoolCounters | None:
    """The statistics of an interface, or None where its driver has none that are wanted. Raises SourceGone, OSError."""
    try:
        group = EthtoolCounters(netdev, driver, extra)
    except NotSupportedError:
        return None
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM):
            return None
        raise
    if group.columns:
        return group
    group.close()
    return None
