"""Monitoring sessions of the REST interface and the telemetry endpoint's CSV and Prometheus text."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricd.twin.face import U64, Counters
from fabricd.twin.ufm.inventory import Inventory, guid16, label, lid, port_name
from fabricd.twin.ufm.strict import Refused

TICK_BYTES = 8
Values = Callable[[Counters, "Scale"], U64]


@dataclass(frozen=True, slots=True)
class Scale:
    """Ticks of PortXmitWait per nanosecond, by row."""

    ticks_per_ns: np.ndarray[tuple[int], np.dtype[np.float64]]


def _sum(name: str, divisor: int = 1) -> Values:
    return lambda counters, scale: np.asarray(
        getattr(counters, name).sum(axis=1, dtype=np.uint64) // np.uint64(divisor)
    )


def _port(name: str) -> Values:
    def values(counters: Counters, scale: Scale) -> U64:
        array: U64 = getattr(counters, name)
        return array

    return values


def _wait(counters: Counters, scale: Scale) -> U64:
    return (counters.port_wait_ns * scale.ticks_per_ns).astype(np.uint64)


def _none(counters: Counters, scale: Scale) -> U64:
    return np.zeros(len(counters.up), np.uint64)


# Telemetry name -> value; data counters are 4-byte words, as in the management datagrams they come from.
TELEMETRY: dict[str, Values] = {
    "PortXmitDataExtended": _sum("tx_bytes", 4),
    "PortRcvDataExtended": _sum("rx_bytes", 4),
    "PortXmitPktsExtended": _sum("tx_packets"),
    "PortRcvPktsExtended": _sum("rx_packets"),
    "PortUniCastXmitPktsExtended": _sum("tx_packets"),
    "PortUniCastRcvPktsExtended": _sum("rx_packets"),
    "SymbolErrorCounterExtended": _port("symbol_errors"),
    "LinkErrorRecoveryCounterExtended": _port("link_recovered"),
    "LinkDownedCounterExtended": _port("link_downed"),
    "PortRcvErrorsExtended": _port("rcv_errors"),
    "PortXmitDiscardsExtended": _sum("drops"),
    "VL15DroppedExtended": _none,
    "PortXmitWaitExtended": _wait,
}
CONGESTION_SET = {
    "PortXmitWaitExtended": _wait,
    "PortXmitTimeCongExtended": lambda counters, scale: (counters.congested_ns * scale.ticks_per_ns).astype(np.uint64),
    "PortRcvFECN": _sum("sl_fecn"),
    "PortRcvBECN": _sum("sl_becn"),
}
SETS: dict[str, dict[str, Values]] = {
    "ib_basic_debug": TELEMETRY,
    "low_freq_debug": TELEMETRY,
    "congestion": CONGESTION_SET,
}

ATTRIBUTES: dict[str, Values] = {
    "Infiniband_MBOut": _sum("tx_bytes", 4),
    "Infiniband_MBIn": _sum("rx_bytes", 4),
    "Infiniband_PckOut": _sum("tx_packets"),
    "Infiniband_PckIn": _sum("rx_packets"),
    "Infiniband_RcvErrors": _port("rcv_errors"),
    "Infiniband_XmtDiscards": _sum("drops"),
    "Infiniband_SymbolErrors": _port("symbol_errors"),
    "Infiniband_LinkRecovers": _port("link_recovered"),
    "Infiniband_LinkDowned": _port("link_downed"),
    "Infiniband_VL15Dropped": _none,
    "Infiniband_XmitWait": _wait,
}
SCOPES, MONITORED, FUNCTIONS = ("Site", "Device"), ("Port", "Device"), ("RAW",)
SESSION_FIELDS = {
    "attributes": list, "functions": list, "scope_object": str, "interval": int, "monitor_object": str, "objects": list,
}  # fmt: skip


class Monitoring:
    """Sessions and the values they show."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._scale = Scale(inventory.plan.row_gbps / 8.0 / TICK_BYTES)
        self._numbers = itertools.count(1)
        self.sessions: dict[str, dict[str, Any]] = {
            "0": {"attributes": list(ATTRIBUTES), "monitor_object": "Port", "objects": ["Grid.default"]}
        }

    def values(self, which: dict[str, Values]) -> dict[str, list[int]]:
        """Name -> value by row, all of one reading."""
        counters = self._inventory.fabric.read()
        return {name: function(counters, self._scale).tolist() for name, function in which.items()}

    def check(self, body: dict[str, Any]) -> dict[str, Any]:
        """Raises Refused 400 on a session that cannot be served."""
        known = {*ATTRIBUTES, *(f"{name}Rate" for name in ("Infiniband_MBOut", "Infiniband_MBIn"))}
        for name in body["attributes"]:
            if name not in known:
                raise Refused(400, f"attribute {name} is not known")
        if any(function not in FUNCTIONS for function in body["functions"]):
            raise Refused(400, f"functions: {', '.join(FUNCTIONS)}")
        if body["scope_object"] not in SCOPES or body["monitor_object"] not in MONITORED:
            raise Refused(400, "scope_object: Site or Device; monitor_object: Port or Device")
        self._rows(body["objects"])
        return body

    def start(self, body: dict[str, Any]) -> str:
        number = str(next(self._numbers))
        self.sessions[number] = self.check(body)
        return number

    def _rows(self, objects: list[Any]) -> list[int]:
        rows: list[int] = []
        for name in objects:
            if name == "Grid.default":
                return list(range(self._inventory.plan.rows))
            node = self._inventory.system(name.removeprefix("Grid.default.")) if isinstance(name, str) else None
            if node is None:
                raise Refused(400, f"object {name} is not known")
            rows.extend(self._inventory.rows(node))
        return rows

    def data(self, session: dict[str, Any]) -> dict[str, Any]:
        """One sample of a session."""
        values = self.values({name: ATTRIBUTES[name] for name in session["attributes"] if name in ATTRIBUTES})
        ports = {}
        for row in self._rows(session["objects"]):
            port = self._inventory.port(row)
            if port.peer is not None:
                statistics = {name: column[row] for name, column in values.items()}
                ports[port_name(port)] = {"dname": label(port.node.plan, port.number), "statistics": statistics}
        return {time.strftime("%Y-%m-%d %H:%M:%S"): {session["monitor_object"]: ports}}

    # -- telemetry endpoint --------------------------------------------------------------------------------------

    def rows(self, shards: int, shard: int) -> Iterator[int]:
        """Cabled ports whose GUID falls into a shard."""
        for row in range(self._inventory.plan.rows):
            port = self._inventory.port(row)
            if port.peer is not None and port.guid % shards == shard:
                yield row

    def csv(self, which: dict[str, Values], shards: int, shard: int) -> str:
        """A header line and a line per port."""
        values = self.values(which)
        stamp = time.time_ns() // 1000
        lines = [
            ",".join(
                ("timestamp", "source_id", "node_guid", "port_guid", "port_num", "node_description", "lid", *values)
            )
        ]
        for row in self.rows(shards, shard):
            port = self._inventory.port(row)
            node = port.node.plan
            identity = (stamp, f"0x{node.guid:x}_{port.number}", f"0x{node.guid:x}", f"0x{port.guid:x}", port.number,
                        node.name, lid(port))  # fmt: skip
            lines.append(",".join(map(str, (*identity, *(column[row] for column in values.values())))))
        return "\n".join(lines) + "\n"

    def prometheus(self, which: dict[str, Values], shards: int, shard: int) -> str:
        """The same as Prometheus text with labels."""
        values = self.values(which)
        stamp = time.time_ns() // 1_000_000
        rows = list(self.rows(shards, shard))
        names = []
        for row in rows:
            port = self._inventory.port(row)
            node = port.node.plan
            names.append(
                f'{{node_guid="{guid16(node.guid)}",port_guid="{guid16(port.guid)}",port_num="{port.number}",'
                f'node_description="{node.name}"}}'
            )
        lines = []
        for name, column in values.items():
            lines.append(f"# TYPE {name} counter")
            lines += [f"{name}{labels} {column[row]} {stamp}" for row, labels in zip(rows, names, strict=True)]
        return "\n".join(lines) + "\n"
