"""Statistics of network interfaces as files, where a directory stands for ``/sys``: there is no kernel to ask then.

``<sysfs>/ethtool/<netdev>.json`` is ``{"driver": …, "statistics": {NAME: value}}`` with the names of ``ethtool -S``. A recording of
another machine can be made so, and a simulated fabric writes its hosts' statistics there.
"""

from __future__ import annotations

import errno
import json
from array import array
from collections.abc import Callable
from pathlib import Path

from fabricd.errors import BAD_DOCUMENT
from fabricd.sources.base import LayoutChanged
from fabricd.sources.ethtool import EthtoolCounters


class FileStatistics:
    """Names and values of one file; the names may change from reading to reading, as a driver's do."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.names: list[str] = []
        self.names, _ = self._load()

    def _load(self) -> tuple[list[str], array[int]]:
        """Raises OSError: ENODEV when the file is gone, EIO when it cannot be understood."""
        try:
            document = json.loads(self._path.read_bytes())
            table = document["statistics"]
            return list(table), array("Q", table.values())
        except FileNotFoundError:
            raise OSError(errno.ENODEV, "no such statistics file", str(self._path)) from None
        except (*BAD_DOCUMENT, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise OSError(errno.EIO, f"not a statistics file: {error}", str(self._path)) from None

    def read(self) -> memoryview:
        """Values now, in the order of ``names``. Raises LayoutChanged when the names are others now, OSError."""
        names, values = self._load()
        if names != self.names:
            self.names = names
            raise LayoutChanged
        return memoryview(values)

    def close(self) -> None:
        """Nothing is kept open."""


def open_statistics(directory: Path, netdev: str, driver: str, extra: Callable[[str], bool]) -> EthtoolCounters | None:
    """The statistics file of an interface as a group of counters; None where there is none. Raises SourceGone, OSError."""
    path = directory / f"{netdev}.json"
    if not path.exists():
        return None
    group = EthtoolCounters(netdev, driver, extra, source=FileStatistics(path))
    return group if group.columns else None
