"""One node's counters: finds the devices, lays their ports out in streams of equal columns, reads them into frames' cells.

No schedule and no network here: ``fabricd agent --once`` and the daemon use the same reader.
"""

from __future__ import annotations

import logging
import math
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fabricd.config.agent import AgentConfig
from fabricd.daemons.agent_host import FileHost, HostInterfaces, LiveHost
from fabricd.daemons.agent_rows import LEADING, PlannedRow, RowPlanner, mark_duplicates, matches
from fabricd.daemons.identity import kernel_boot_id
from fabricd.model.catalogue import CounterDef, lookup
from fabricd.model.frame import Column, Schema
from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources import roles
from fabricd.sources.base import CounterGroup, LayoutChanged, SourceGone, clear
from fabricd.sources.counter_files import Refusals
from fabricd.sources.devices import Device, DeviceReader, Port
from fabricd.sources.files import Files, OsFiles, errno_name
from fabricd.sources.kernel_text import IpEcn
from fabricd.sources.netdevs import Netdev, netdev_names, read_netdev

log = logging.getLogger(__name__)

_VALID = int(Flag.VALID)
_LOOK_S = 1.0
_NODE_ROW_S = 2.0  # the node's own row moves slowly: a frame of its own each so many seconds is enough
_SELF = ("read_duration", "lateness", "intervals_skipped", "rejects", "spool_frames", "spool_dropped", "reconnects")


class SelfCounters:
    """What the agent tells about itself: a group of counters that the daemon fills."""

    def __init__(self) -> None:
        self.columns: Sequence[CounterDef] = [lookup("", "agent", name) for name in _SELF]
        self.now: dict[str, int] = {}

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        for cell, name in enumerate(_SELF, at):
            value = self.now.get(name)
            values[cell] = value or 0
            flags[cell] = _VALID if value is not None else 0

    def close(self) -> None: ...


@dataclass(slots=True)
class Stream:
    """Rows of equal columns and the cells of their next frame."""

    number: int
    rows: list[PlannedRow]
    columns: tuple[Column, ...]
    every: int = 1  # intervals between two of its frames
    values: array[int] = field(init=False)
    flags: bytearray = field(init=False)

    def __post_init__(self) -> None:
        cells = len(self.rows) * len(self.columns)
        self.values = array("Q", bytes(8 * cells))
        self.flags = bytearray(cells)

    def schema(self, node: str, fabric: str, boot: int) -> Schema:
        return Schema(
            node=node, fabric=fabric, stream=self.number, boot=boot,
            rows=tuple(planned.row for planned in self.rows), columns=self.columns,
        )  # fmt: skip


class NodeReader:
    """Reads one node. Not thread-safe. ``files`` is the seam through which tests make files fail.

    With ``config.sysfs`` other than ``/sys`` the tree is another machine's (or made up): only files are read then.
    """

    def __init__(self, config: AgentConfig, node: str, rejects: Rejects, *, files: Files | None = None) -> None:
        self.config, self.node, self.rejects = config, node, rejects
        self.self_counters = SelfCounters()
        self.devices: list[Device] = []
        self.netdevs: list[Netdev] = []
        self.streams: list[Stream] = []
        self._rows: list[PlannedRow] = []
        self._unpublished: list[Stream] = []
        self._files: Files = files or OsFiles()
        self._sysfs = config.sysfs.rstrip("/") or "/"
        self.live = self._sysfs == "/sys"
        self._host: HostInterfaces = LiveHost(config, rejects) if self.live else FileHost(config, rejects)
        self._refusals = Refusals()
        self._device_reader = DeviceReader(self._sysfs, self._files, rejects)
        self._planner = RowPlanner(
            config, node, self._files, rejects, self._refusals, self._host, kernel_boot_id(config.procfs)
        )
        self._stream_numbers: dict[tuple[Column, ...], int] = {}
        self._seen: dict[str, int] = {}  # device name -> identity at the last search
        self._stale = True
        self._searched_at = -math.inf
        self._looks = 0
        self._look_every = max(1, round(_LOOK_S / config.interval))
        self._node_row_every = max(1, round(_NODE_ROW_S / config.interval))

    @property
    def files(self) -> Files:
        """The seam every file of the node is read through."""
        return self._files

    @property
    def refused_files(self) -> int:
        return len(self._refusals)

    def forget_refusals(self) -> None:
        """Ask every file again from the next search on (a reload by the operator)."""
        self._refusals.forget()
        self._stale = True

    def search_if_due(self) -> bool:
        """Look for devices again when it is time or something changed; True when rows or columns are new."""
        if self._stale or time.monotonic() - self._searched_at >= self.config.rediscover:
            return self.search()
        # A device that leaves tells so itself when it is read; for one that comes, a look a second is soon enough.
        self._looks += 1
        if self._looks % self._look_every or self._device_reader.identities() == self._seen:
            return False
        return self.search()

    def search(self) -> bool:
        """Find devices and lay out the rows. True when anything is different from before."""
        force, self._stale = self._stale, False
        self._searched_at = time.monotonic()
        self._seen = self._device_reader.identities()
        devices = self._device_reader.read(self._wanted)
        netdevs = self._lone_netdevs(devices)
        if not force and devices == self.devices and netdevs == self.netdevs:
            return False
        self.devices, self.netdevs = devices, netdevs
        self._lay_out()
        return True

    def node_row_due(self, tick: int) -> bool:
        """Whether the node's own row is read at this tick."""
        return tick % self._node_row_every == 0

    def read(self, tick: int, began_ns: int) -> None:
        """Read every row into its stream's cells. ``began_ns``: the frames' time on the monotonic clock."""
        for stream in (*self.streams, *self._unpublished):
            if tick % stream.every:
                continue
            width = len(stream.columns)
            for number, planned in enumerate(stream.rows):
                self._read_row(planned, stream.values, stream.flags, number * width, width, tick, began_ns)

    def close(self) -> None:
        for planned in self._rows:
            planned.close()
        self._rows, self.streams, self._unpublished = [], [], []
        self._host.close()

    def _wanted(self, name: str) -> bool:
        return matches(name, self.config.device_include) and not matches(name, self.config.device_exclude)

    def _lone_netdevs(self, devices: list[Device]) -> list[Netdev]:
        """Interfaces to be read by themselves."""
        wanted = self.config.netdevs
        if wanted == "none" or (wanted == "auto" and devices):
            return []
        taken = {port.netdev for device in devices for port in device.ports}
        taken |= {member.name for device in devices for port in device.ports for member in port.members}
        names = [name for name in netdev_names(self._files, self._sysfs) if name not in taken]
        return [
            read_netdev(self._files, self._sysfs, name)
            for name in names
            if not matches(name, self.config.netdev_exclude)
        ]

    def _lay_out(self) -> None:
        for planned in self._rows:
            planned.close()
        self._host.begin()
        self._rows = []
        by_name = {device.name: device for device in self.devices}
        for device in self.devices:
            try:
                self._rows += self._planner.device_rows(device, by_name.get(device.parent or ""))
            except SourceGone as error:
                self._gone(device, str(error))
        self._rows += [self._planner.netdev_row(netdev) for netdev in self.netdevs]
        self._rows.append(self._planner.node_row(self._node_groups()))
        mark_duplicates(self._rows, self.rejects)
        self.streams = self._streams([planned for planned in self._rows if planned.published])
        self._unpublished = self._streams([planned for planned in self._rows if not planned.published])

    def _node_groups(self) -> list[CounterGroup]:
        groups: list[CounterGroup] = [self.self_counters]
        if self.live and self.config.ip_ecn:
            try:
                groups.append(IpEcn(self._files, self.config.procfs, self.rejects))
            except OSError as error:
                self.rejects.add("file_unreadable", errno_name(error), f"{self.config.procfs}/net/netstat")
        return groups

    def _streams(self, rows: list[PlannedRow]) -> list[Stream]:
        """One stream per set of equal columns; the number of a set stays the same while the process lives."""
        by_columns: dict[tuple[Column, ...], list[PlannedRow]] = {}
        for planned in rows:
            by_columns.setdefault(planned.columns, []).append(planned)
        return [
            Stream(
                self._stream_numbers.setdefault(columns, len(self._stream_numbers)),
                group,
                columns,
                every=self._node_row_every if all(p.row.labels.get("scope") == "node" for p in group) else 1,
            )
            for columns, group in by_columns.items()
        ]

    def _read_row(
        self, planned: PlannedRow, values: array[int], flags: bytearray, at: int, width: int, tick: int, began_ns: int
    ) -> None:
        cell = at + len(LEADING)
        for group in planned.groups:
            count = len(group.columns)
            try:
                group.read(values, flags, cell, tick)
            except SourceGone as error:
                clear(values, flags, at, width)
                self._stale = True
                if planned.device is not None:
                    self._gone(planned.device, str(error))
                return
            except LayoutChanged:
                clear(values, flags, cell, count)
                self._stale = True
            except OSError as error:
                clear(values, flags, cell, count)
                self.rejects.add("source_error", errno_name(error), planned.row.netdev or planned.row.device)
            cell += count
        if planned.suspect is not None and planned.suspect.all_blind:
            planned.suspect = None
            self._stale = True  # lay out again, knowing now that the port is not ours to see
        values[at] = time.monotonic_ns() - began_ns
        values[at + 1] = planned.epoch
        flags[at] = flags[at + 1] = _VALID

    def _gone(self, device: Device, where: str) -> None:
        self._stale = True
        self.rejects.add("device_gone", device.name, where)
        self._planner.went_away(device)

    def visible_only_from(self, port: Port) -> str | None:
        """Where else one must look for this port's own figures; None when they are here."""
        return next(
            (p.visible_only_from for p in self._rows if p.port is port and p.netdev is None), port.visible_only_from
        )

    def to_json(self) -> dict[str, Any]:
        """The last reading as ``fabricd agent --once --json`` prints it."""
        cells = {
            id(planned): (stream, number * len(stream.columns))
            for stream in (*self.streams, *self._unpublished)
            for number, planned in enumerate(stream.rows)
        }

        def counters(planned: PlannedRow) -> dict[str, Any]:
            stream, at = cells[id(planned)]
            start = at + len(LEADING)
            found = {}
            for cell, (definition, column) in enumerate(
                zip(planned.definitions, stream.columns[len(LEADING) :], strict=True), start
            ):
                if definition.interface != "port":
                    found[_key(definition)] = _counter_json(definition, column, stream.values[cell], stream.flags[cell])
            return found

        document: dict[str, Any] = {"node": self.node, "devices": []}
        for device in self.devices:
            mine = [planned for planned in self._rows if planned.device is device]
            entry = _device_json(device)
            for port in device.ports:
                for planned in (p for p in mine if p.port is port):
                    entry["ports"].append(_port_json(port, planned, counters(planned)))
                if not any(p.port is port for p in mine):
                    entry["ports"].append(_port_json(port, None, {}))
            for planned in (p for p in mine if p.port is None):
                entry["counters"] = counters(planned)
            document["devices"].append(entry)
        if self.netdevs:
            document["netdevs"] = [
                {
                    "name": p.netdev.name, "driver": p.netdev.driver, "mac": p.netdev.mac,
                    "operstate": p.netdev.operstate, "rate_gbps": p.netdev.rate_gbps, "counters": counters(p),
                }
                for p in self._rows
                if p.netdev is not None and p.device is None
            ]  # fmt: skip
        node = [counters(p) for p in self._rows if p.row.labels.get("scope") == "node"]
        document["node_counters"] = {
            name: entry for found in node for name, entry in found.items() if entry["source"] != "agent"
        }
        document["rejects"] = self.rejects.to_json()
        return document


def _key(definition: CounterDef) -> str:
    return definition.name if definition.priority is None else f"{definition.name}_prio{definition.priority}"


def _counter_json(definition: CounterDef, column: Column, value: int, bits: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "value": value if bits & _VALID else None,
        "unit": definition.unit or "unknown",
        "width": definition.width,
        "flags": Flag(bits).names,
        "raw": definition.raw,
        "source": column.source,
    }
    if definition.priority is not None:
        entry["priority"] = definition.priority
    return entry


def _device_json(device: Device) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": device.name,
        "driver": device.driver or None,
        "node_guid": format_guid(device.node_guid) if device.node_guid is not None else None,
        "fw_ver": device.fw_ver,
        "board_id": device.board_id,
        "role": device.role,
        "ports": [],
    }
    if device.parent:
        entry["parent"] = device.parent
    return entry


def _port_json(port: Port, planned: PlannedRow | None, counters: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "port": port.number,
        "link_layer": port.link_layer,
        "state": port.state,
        "phys_state": port.phys_state,
        "rate_gbps": port.rate_gbps,
        "netdev": port.netdev,
        "lid": port.lid,
        "role": port.role,
    }
    elsewhere = planned.visible_only_from if planned is not None else port.visible_only_from
    if elsewhere:
        entry["visible_only_from"] = elsewhere
    if planned is not None and planned.netdev is not None:
        entry |= {
            "role": "bond_member", "netdev": planned.netdev.name, "rate_gbps": planned.netdev.rate_gbps,
            "plane": planned.row.plane,
        }  # fmt: skip
    elif planned is not None and port.role == roles.PLANE:
        entry["plane"] = planned.row.plane
    if planned is not None and not planned.published:
        entry["duplicate"] = True
    entry["counters"] = counters
    return entry
