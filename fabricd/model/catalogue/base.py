"""What a vendor's table is made of: raw names of one interface of some drivers, and what each stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["port", "device", "netdev", "node"]

WORD = 4  # PortXmitData and its kin count words of 4 bytes on every link width
MICROSECOND = 1000  # pause time comes in microseconds, the catalogue keeps nanoseconds


@dataclass(frozen=True, slots=True)
class Alias:
    """A raw name's meaning: the canonical metric and how this source counts it.

    ``width`` bits at the source; ``sticky``: stops at all-ones instead of wrapping; ``scale``: raw units in one canonical unit;
    ``observable``: False where the driver always answers 0 for want of the figure.
    """

    metric: str
    width: int = 64
    sticky: bool = False
    scale: int = 1
    priority: int | None = None
    observable: bool = True


@dataclass(frozen=True, slots=True)
class Pattern:
    """A family of raw names: group 1, if any, is the priority or lane."""

    regex: re.Pattern[str]
    alias: Alias


@dataclass(frozen=True, slots=True)
class Table:
    """Raw names of one interface. ``drivers`` as the kernel names them; ``("*",)`` is the fallback for all.

    ``source`` says where the facts are from. The default width goes for entries written as a plain metric name.
    """

    drivers: tuple[str, ...]
    interface: str
    source: str
    names: Mapping[str, Alias | str] = field(default_factory=dict)
    patterns: tuple[Pattern, ...] = ()
    scope: Scope = "port"
    width: int = 64


def pattern(regex: str, metric: str, *, width: int = 64, sticky: bool = False, scale: int = 1) -> Pattern:
    return Pattern(re.compile(regex), Alias(metric, width, sticky, scale))
