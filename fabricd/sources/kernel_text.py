"""Counters of the kernel itself: IP-level ECN in ``/proc/net/netstat`` and the statistics files of a network interface."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from fabricd.model.catalogue import CounterDef, lookup
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.files import Files, errno_name

_SIZE = 32 * 1024
_SECTION = b"IpExt:"
_NAMES = ("InNoECTPkts", "InECT1Pkts", "InECT0Pkts", "InCEPkts")


class IpEcn:
    """Packets by their ECN field, of this network namespace: a group of counters (see sources.base.CounterGroup).

    Raises OSError when the file cannot be opened.
    """

    def __init__(self, files: Files, procfs: str, rejects: Rejects) -> None:
        self.columns: Sequence[CounterDef] = [lookup("", "netstat", name) for name in _NAMES]
        self._files, self._rejects = files, rejects
        self._path = f"{procfs}/net/netstat"
        self._fd = files.open(self._path)
        self._header = b""
        self._picks: list[int] = []

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        found = self._parse()
        for cell, value in enumerate(found, at):
            values[cell] = value if value is not None else 0
            flags[cell] = Flag.VALID if value is not None else 0

    def _parse(self) -> list[int | None]:
        missing: list[int | None] = [None] * len(_NAMES)
        try:
            text = self._files.pread(self._fd, _SIZE, 0)
        except OSError as error:
            self._rejects.add("file_error", errno_name(error), self._path)
            return missing
        lines = [line for line in text.split(b"\n") if line.startswith(_SECTION)]
        if len(lines) != 2:
            self._rejects.add("netstat_text", f"{len(lines)} lines of IpExt", self._path)
            return missing
        if lines[0] != self._header:
            names = lines[0].split()
            self._picks = [names.index(name) if name in names else -1 for name in map(str.encode, _NAMES)]
            self._header = lines[0]
        numbers = lines[1].split()
        return [
            int(numbers[pick]) if 0 < pick < len(numbers) and numbers[pick].isdigit() else None for pick in self._picks
        ]

    def close(self) -> None:
        self._files.close(self._fd)
