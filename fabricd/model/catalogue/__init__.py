"""The counter catalogue: what a raw name of (driver, interface) means. The only place where widths, units and scales live.

``lookup("mlx5_core", "hw_counters", "np_cnp_sent")`` gives the canonical name, unit, width, stickiness and scope. A name nobody
has described passes through under itself, with an unknown unit. Interfaces: ``counters`` and ``hw_counters`` (sysfs),
``ethtool``, ``dcb``, ``netdev``, ``netstat``, ``snmp`` and ``pma:0x12`` … (attributes of performance management datagrams).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from fabricd.model.catalogue import broadcom, infiniband, intel, linux, mellanox, others, snmp
from fabricd.model.catalogue.base import Alias, Scope, Table
from fabricd.model.catalogue.metrics import METRICS, Metric, MetricKind

__all__ = ["METRICS", "CounterDef", "Metric", "as_unknown", "exposed", "lookup", "metric", "saturated", "scaled"]

U64_MAX = (1 << 64) - 1
TABLES: tuple[Table, ...] = (
    *infiniband.TABLES,
    *mellanox.TABLES,
    *broadcom.TABLES,
    *intel.TABLES,
    *others.TABLES,
    *linux.TABLES,
    *snmp.TABLES,
)


@dataclass(frozen=True, slots=True)
class CounterDef:
    """A raw counter of one source, understood: name, unit, and how it counts. ``unit`` "" and ``known`` False: not described."""

    name: str
    unit: str
    width: int
    sticky: bool
    scope: Scope
    help: str
    source: str
    raw: str
    interface: str
    scale: int = 1
    priority: int | None = None
    kind: MetricKind = "counter"
    observable: bool = True
    known: bool = True

    @property
    def limit(self) -> int:
        """Raw values below it are what they say; at it a sticky counter is full, and above it no 64-bit cell holds the value."""
        full = (1 << self.width) - 1 if self.sticky else U64_MAX + 1
        return min(full, U64_MAX // self.scale + 1)


def as_unknown(definition: CounterDef) -> CounterDef:
    """The same counter under its raw name: for a second raw name of one port that means what a first already does."""
    name = _passed_through(definition.raw)
    return replace(definition, name=f"{name}_{definition.interface}" if name == definition.name else name)


def scaled(definition: CounterDef, raw: int) -> int:
    """A raw reading in the canonical unit: words become bytes and microseconds become nanoseconds here and nowhere else."""
    return raw * definition.scale


def saturated(definition: CounterDef, raw: int) -> bool:
    """Whether a sticky counter stands at its maximum: the true value is unknown, and so is the rate."""
    return definition.sticky and raw >= (1 << definition.width) - 1


def metric(name: str) -> Metric:
    """The canonical metric of a name; one with an unknown unit for a name that passed through."""
    return METRICS.get(name) or Metric(name, "", f"{name}, as the driver names it (unit unknown)")


def exposed(name: str, unit: str) -> tuple[str, float]:
    """(name, factor) for Prometheus: base units, so nanoseconds are shown as ``…_seconds``. No prefix, no ``_total``."""
    if unit == "ns":
        return f"{name}_seconds", 1e-9
    if unit == "bytes_per_second":
        return f"{name}_bytes_per_second", 1.0
    return name, 1.0


@lru_cache(maxsize=65536)
def lookup(driver: str, interface: str, raw: str) -> CounterDef:
    """The definition of a raw name; never fails. The driver's own table goes before the one for all drivers."""
    name = raw.strip()
    for wanted in (driver, "*"):
        for table in _by_key.get((wanted, interface), ()):
            found = _find(table, name)
            if found is not None:
                return _define(found, table, raw)
    return CounterDef(
        name=_passed_through(name), unit="", width=_declared_width(name), sticky=False, scope="port",
        help=f"{name}, as the driver names it (unit unknown)", source="", raw=raw, interface=interface, known=False,
    )  # fmt: skip


def _find(table: Table, name: str) -> Alias | None:
    entry = table.names.get(name)
    if entry is not None:
        return Alias(entry, table.width) if isinstance(entry, str) else entry
    for family in table.patterns:
        match = family.regex.fullmatch(name)
        if match:
            alias = family.alias
            if not match.re.groups:
                return alias
            return Alias(alias.metric, alias.width, alias.sticky, alias.scale, int(match[1]), alias.observable)
    return None


def _define(alias: Alias, table: Table, raw: str) -> CounterDef:
    canonical = METRICS[alias.metric]
    return CounterDef(
        name=canonical.name, unit=canonical.unit, width=alias.width, sticky=alias.sticky, scope=table.scope,
        help=canonical.help, source=table.source, raw=raw, interface=table.interface, scale=alias.scale,
        priority=alias.priority, kind=canonical.kind, observable=alias.observable,
    )  # fmt: skip


def _passed_through(name: str) -> str:
    """A raw name as a metric name: hfi1's width mark goes, what is no letter, digit or underscore becomes one."""
    plain = re.sub(r",\d+$", "", name)
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", plain).strip("_").lower()
    return plain if plain and not plain[0].isdigit() else f"counter_{plain}"


def _declared_width(name: str) -> int:
    """hfi1 ends the names of its narrow counters in ``,32``."""
    match = re.search(r",(\d+)$", name)
    return int(match[1]) if match and int(match[1]) in (8, 16, 32, 64) else 64


_by_key: dict[tuple[str, str], list[Table]] = {}
for _table in TABLES:
    for _driver in _table.drivers:
        _by_key.setdefault((_driver, _table.interface), []).append(_table)
