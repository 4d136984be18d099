"""Column names of port counters in the tables of UFM and ibdiagnet, and cells of such tables.

Both write the performance management attributes under names that moved between releases: ``PortXmitDataExtended``,
``PortXmitWaitExt``, ``Infiniband_XmitWait_u_Ticks``, ``Infiniband_MBOut``. Data counters are 4-byte words throughout, ``MBOut``
included (UFM REST guide); a column of a rate, a difference or a normalised value is none of ours.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from fabricd.model.catalogue import CounterDef, lookup, saturated, scaled

_NOTHING = frozenset({"", "na", "n/a", "nan", "null", "none", "-"})
_UFM = re.compile(r"^Infiniband_", re.I)
_UNIT = re.compile(r"_u_(\w+)$", re.I)
_WORDS_AS = frozenset({"", "words", "ticks", "packets", "pkts", "count"})
_WIDE = re.compile(r"_?ext(ended)?$", re.I)

# Lower-case name without its width suffix -> name in performance management.
_NAMES = {
    "portxmitdata": "PortXmitData",
    "portrcvdata": "PortRcvData",
    "portxmitpkts": "PortXmitPkts",
    "portrcvpkts": "PortRcvPkts",
    "portxmitwait": "PortXmitWait",
    "linkdownedcounter": "LinkDownedCounter",
    "xmitdata": "PortXmitData",
    "rcvdata": "PortRcvData",
    "xmitpkts": "PortXmitPkts",
    "rcvpkts": "PortRcvPkts",
    "mbout": "PortXmitData",
    "mbin": "PortRcvData",
    "pckout": "PortXmitPkts",
    "pckin": "PortRcvPkts",
    "xmitwait": "PortXmitWait",
    "linkdowned": "LinkDownedCounter",
    "linkdowncounter": "LinkDownedCounter",
}


class Column(NamedTuple):
    """A counter column: what it counts, and whether it is the 64-bit form."""

    counter: CounterDef
    wide: bool


def counter_column(name: str) -> Column | None:
    """The counter of a column, None when it is something else. UFM's own names (``Infiniband_``) are 64-bit."""
    text = name.strip().strip('"')
    unit = _UNIT.search(text)
    if unit is not None:
        if unit[1].lower() not in _WORDS_AS:  # gigabits, percent, bytes a second: not the counter itself
            return None
        text = text[: unit.start()]
    ufm = bool(_UFM.match(text))
    text = _UFM.sub("", text)
    wide = ufm or bool(_WIDE.search(text))
    raw = _NAMES.get(_WIDE.sub("", text).replace("_", "").lower())
    if raw is None:
        return None
    return Column(lookup("*", "pma:0x1d" if wide else "pma:0x12", raw), wide)


def reading(cell: str, counter: CounterDef) -> int | None:
    """A cell's value in the catalogue's unit. None: empty, or a narrow counter that stands at its top.

    Raises ValueError when it is no count.
    """
    text = cell.strip().strip('"')
    if text.lower() in _NOTHING:
        return None
    try:
        raw = int(text, 16) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        number = float(text)  # 1.5e12, 12.0
        if not math.isfinite(number) or number != int(number):
            raise ValueError(f"not a count: {text[:40]!r}") from None
        raw = int(number)
    if not 0 <= raw < 1 << 64:
        raise ValueError(f"not a 64-bit count: {text[:40]!r}")
    return None if saturated(counter, raw) else scaled(counter, raw)
