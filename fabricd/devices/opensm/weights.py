"""The hop weights file: ``<switch guid> <port>: <weight>``. A weight is a number of hops the port counts as.

Above each weight fabricd keeps, as a comment, how many destinations left by the port before: with that the tables of the switch
tell whether the weight is in force, also after this process was started anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fabricd.devices.base import DeviceError

_LINE = re.compile(r"^\s*(0x[0-9a-fA-F]{1,16})\s+(\d+)\s*:\s*(\d+)\s*(?:#.*)?$")
_NOTE = re.compile(r"^# fabricd: (0x[0-9a-f]{16}) (\d+) carried (\d+)$")
MOST = 0xFF


@dataclass(frozen=True, slots=True)
class Weight:
    """``carried``: destinations that left by the port when the weight was set; None when somebody else set it."""

    weight: int
    carried: int | None = None


def get_weight(text: str, guid: int, port: int) -> Weight | None:
    """The weight of a port; the last line counts, as in opensm."""
    weight = carried = None
    for line in text.splitlines():
        if (match := _NOTE.match(line)) and (int(match[1], 16), int(match[2])) == (guid, port):
            carried = int(match[3])
        elif (match := _LINE.match(line)) and (int(match[1], 16), int(match[2])) == (guid, port):
            weight = int(match[3])
    return None if weight is None else Weight(weight, carried)


def set_weight(text: str, guid: int, port: int, new: Weight | None) -> str:
    """The text with the port's weight set or removed. Raises DeviceError for a weight out of 1 to 255."""
    if new is not None and not 1 <= new.weight <= MOST:
        raise DeviceError(f"hop weight {new.weight}: 1 to {MOST}")
    kept = []
    for line in text.splitlines(keepends=True):
        match = _NOTE.match(line.rstrip("\n")) or _LINE.match(line.rstrip("\n"))
        if match is None or (int(match[1], 16), int(match[2])) != (guid, port):
            kept.append(line if line.endswith("\n") else line + "\n")
    if new is not None:
        if new.carried is not None:
            kept.append(f"# fabricd: 0x{guid:016x} {port} carried {new.carried}\n")
        kept.append(f"0x{guid:016x} {port}: {new.weight}\n")
    return "".join(kept)
