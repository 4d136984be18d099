"""Which sources make which row: every port of a node with the groups of counters that are read for it."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fabricd.config.agent import AgentConfig
from fabricd.daemons.agent_host import HostInterfaces
from fabricd.daemons.identity import digest64
from fabricd.model.catalogue import CounterDef, as_unknown, lookup
from fabricd.model.frame import Column, Row
from fabricd.model.ident import format_guid, guid_from_mac
from fabricd.model.rejects import Rejects
from fabricd.sources.base import CounterGroup
from fabricd.sources.counter_files import CounterFiles, Refusals
from fabricd.sources.devices import Device, Port
from fabricd.sources.files import Files, try_int, try_text
from fabricd.sources.netdevs import Netdev
from fabricd.sources.port_state import PortState

READ_OFFSET = Column(name="read_offset", unit="ns", kind="time", source="agent")
EPOCH = Column(name="epoch", kind="epoch", source="agent")
LEADING = (READ_OFFSET, EPOCH)

_SOURCES = {"counters": "sysfs", "counters_ext": "sysfs", "port": "sysfs", "netdev": "sysfs"}


@dataclass(slots=True)
class PlannedRow:
    """A row and what fills it. ``published`` is false for a row whose identity another one already has."""

    row: Row
    groups: list[CounterGroup]
    epoch: int
    device: Device | None = None
    port: Port | None = None
    netdev: Netdev | None = None
    published: bool = True
    visible_only_from: str | None = None
    suspect: CounterFiles | None = None  # if all of it refuses, the port is another side's
    columns: tuple[Column, ...] = field(init=False)
    definitions: tuple[CounterDef, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.definitions = tuple(d for group in self.groups for d in group.columns)
        self.columns = (*LEADING, *map(to_column, self.definitions))

    def close(self) -> None:
        for group in self.groups:
            group.close()


def to_column(definition: CounterDef) -> Column:
    return Column(
        name=definition.name, unit=definition.unit, width=definition.width, sticky=definition.sticky,
        kind=definition.kind, priority=definition.priority, raw=definition.raw,
        source=_SOURCES.get(definition.interface, definition.interface),
    )  # fmt: skip


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


class RowPlanner:
    """Opens the sources of each port. A source that cannot be opened is rejected and costs only itself."""

    def __init__(
        self,
        config: AgentConfig,
        node: str,
        files: Files,
        rejects: Rejects,
        refusals: Refusals,
        host: HostInterfaces,
        boot_id: str,
    ) -> None:
        self._config, self._node = config, node
        self._files, self._rejects, self._refusals, self._host = files, rejects, refusals, host
        self._boot_id = boot_id
        self._reloads: dict[str, int] = {}  # by device: times it went away under our hands

    def went_away(self, device: Device) -> None:
        """The device answered ENODEV: what comes back in its place is another epoch, and may answer what it refused."""
        self._reloads[device.name] = self._reloads.get(device.name, 0) + 1
        self._refusals.forget(device.path + "/")

    def device_rows(self, device: Device, parent: Device | None) -> list[PlannedRow]:
        """All rows of a device: its ports, members of its bonds, and one for counters of the whole device."""
        if device.role in self._config.skip_roles:
            return []
        guid, how = self._guid(device, parent)
        epoch = self.epoch(device)
        rows = []
        for port in device.ports:
            if port.role in self._config.skip_roles:
                continue
            rows.append(self._port_row(device, port, guid, how, epoch))
            if port.visible_only_from is None:
                rows += [
                    self._member_row(device, port, member, plane, guid, epoch)
                    for plane, member in enumerate(port.members, 1)
                ]
        whole = self._counter_files(device.driver, f"{device.path}/hw_counters", "hw_counters")
        if whole is not None:
            labels = {"scope": "device", "role": device.role}
            rows.append(PlannedRow(self._row(device, guid, 0, 0, labels), self._distinct([whole]), epoch, device))
        return rows

    def epoch(self, device: Device) -> int:
        """Changes with reboot, driver reload (a new directory), firmware and re-registration; the same after our own restart."""
        return digest64(
            self._boot_id, device.name, device.identity, device.fw_ver or "", self._reloads.get(device.name, 0)
        )

    def netdev_row(self, netdev: Netdev) -> PlannedRow:
        """A network interface without an RDMA device."""
        groups: list[CounterGroup | None] = [
            self._counter_files(netdev.driver, f"{netdev.path}/statistics", "netdev"),
            *self._host.groups(netdev, self._wanted_statistic),
        ]
        guid, how = self._mac_guid(netdev)
        labels = {"role": "netdev", "guid_from": how}
        row = Row(
            guid=guid, port=1, netdev=netdev.name, link_layer="Ethernet", driver=netdev.driver,
            rate_gbps=netdev.rate_gbps or 0.0, labels=labels | self._host.labels(netdev),
        )  # fmt: skip
        return PlannedRow(row, self._distinct(groups), digest64(self._boot_id, netdev.name), netdev=netdev)

    def node_row(self, groups: list[CounterGroup]) -> PlannedRow:
        """What belongs to the node as a whole. Its identity is made from the node id: it has no GUID."""
        row = Row(guid=digest64("node", self._node), port=0, labels={"scope": "node"})
        return PlannedRow(row, groups, digest64(self._boot_id))

    def _port_row(self, device: Device, port: Port, guid: int, how: str, epoch: int) -> PlannedRow:
        bond_speed = f"{port.interface.path}/speed" if port.members and port.interface else None
        state = PortState(self._files, port.path, self._rejects, device.driver, bond_speed)
        counters = self._counter_files(device.driver, f"{port.path}/counters", "counters")
        groups: list[CounterGroup | None] = [
            state,
            counters,
            self._counter_files(device.driver, f"{port.path}/counters_ext", "counters_ext"),
            hardware := self._counter_files(device.driver, f"{port.path}/hw_counters", "hw_counters"),
        ]
        elsewhere = port.visible_only_from
        if device.dpu and (counters is None or counters.all_blind):
            elsewhere = "the DPU's own side"
        groups.append(
            self._host.rdma_group(
                device.name, port.number, device.driver, {d.raw for d in hardware.columns} if hardware else set()
            )
        )
        labels: dict[str, str] = {"role": port.role}
        if how:
            labels["guid_from"] = how
        if elsewhere:
            labels["visible_only_from"] = elsewhere
        elif port.interface is not None and not port.members:
            groups += self._host.groups(port.interface, self._wanted_statistic)
            labels |= self._host.labels(port.interface)
        plane = port.number if device.parent else 0
        number = 1 if device.parent else port.number
        row = self._row(device, guid, number, plane, labels, port)
        return PlannedRow(
            row, self._distinct(groups), epoch, device, port, visible_only_from=elsewhere,
            suspect=counters if device.dpu and elsewhere is None else None,
        )  # fmt: skip

    def _member_row(self, device: Device, port: Port, member: Netdev, plane: int, guid: int, epoch: int) -> PlannedRow:
        """A leg of a bond: flow control works on the wire, so its figures are the members' and not the bond's."""
        groups: list[CounterGroup | None] = [
            self._counter_files(member.driver, f"{member.path}/statistics", "netdev"),
            *self._host.groups(member, self._wanted_statistic),
        ]
        row = Row(
            guid=guid, port=port.number, plane=plane, device=device.name, netdev=member.name,
            link_layer="Ethernet", driver=member.driver, rate_gbps=member.rate_gbps or 0.0,
            labels={"role": "bond_member", "parent": port.netdev or device.name} | self._host.labels(member),
        )  # fmt: skip
        return PlannedRow(row, self._distinct(groups), epoch, device, port, member)

    def _row(
        self, device: Device, guid: int, number: int, plane: int, labels: dict[str, str], port: Port | None = None
    ) -> Row:
        known = {"fw": device.fw_ver, "board": device.board_id, "parent": device.parent}
        labels = labels | {key: value for key, value in known.items() if value}
        return Row(
            guid=guid, port=number, plane=plane, device=device.name, netdev=(port and port.netdev) or "",
            link_layer=(port and port.link_layer) or "", driver=device.driver,
            rate_gbps=(port and port.rate_gbps) or 0.0, labels=labels,
        )  # fmt: skip

    def _guid(self, device: Device, parent: Device | None) -> tuple[int, str]:
        """(GUID, where it is from if not from the device)."""
        own = device.node_guid or (parent.node_guid if parent else None)
        if own is not None:
            return own, ""
        for port in device.ports:
            if port.port_guid is not None:
                return port.port_guid, "port"
            if port.interface is not None:
                return self._mac_guid(port.interface)
        self._rejects.add("guid_missing", device.name, device.path)
        return digest64(self._node, device.name), "name"

    def _mac_guid(self, netdev: Netdev) -> tuple[int, str]:
        try:
            guid = guid_from_mac(netdev.mac or "")
        except ValueError:
            guid = 0
        if netdev.mac and set(netdev.mac) > {"0", ":"} and guid:
            return guid, "mac"
        return digest64(self._node, netdev.name), "name"

    def _counter_files(self, driver: str, directory: str, interface: str) -> CounterFiles | None:
        names = self._names(directory, interface)
        if not names:
            return None
        every = 1
        if interface == "hw_counters":
            lifespan = try_int(try_text(self._files, f"{directory}/lifespan"))
            every = max(1, math.ceil((lifespan or 0) / 1000 / self._config.interval - 1e-9))
        definitions = [lookup(driver, interface, name) for name in names]
        if interface == "netdev":
            definitions = [d for d in definitions if d.known]
        return CounterFiles(
            self._files, directory, definitions, self._rejects, self._refusals, every=every,
            # Without the extended counters the kernel shows the 32-bit ones in their place.
            narrow_data=interface == "counters" and "unicast_rcv_packets" not in names,
        )  # fmt: skip

    def _names(self, directory: str, interface: str) -> list[str]:
        try:
            names = sorted(self._files.listdir(directory))
        except OSError:
            return []
        excluded = self._config.counter_exclude
        return [
            name
            for name in names
            if name != "lifespan" and not matches(name, excluded) and not matches(f"{interface}/{name}", excluded)
        ]

    def _wanted_statistic(self, name: str) -> bool:
        return matches(name, self._config.ethtool_include)

    def _distinct(self, groups: Iterable[CounterGroup | None]) -> list[CounterGroup]:
        """The groups there are, with no two columns of one name and priority: a later one goes under its raw name."""
        seen: set[tuple[str, int | None]] = {(column.name, None) for column in LEADING}
        kept = []
        for group in groups:
            if group is None:
                continue
            columns = []
            for definition in group.columns:
                if (definition.name, definition.priority) in seen:
                    definition = as_unknown(definition)
                seen.add((definition.name, definition.priority))
                columns.append(definition)
            group.columns = columns
            kept.append(group)
        return kept


def mark_duplicates(rows: Iterable[PlannedRow], rejects: Rejects) -> None:
    """The first row of an identity is published; others are shown but kept out of the stream, and counted."""
    seen: dict[tuple[int, int, int], PlannedRow] = {}
    for planned in rows:
        row = planned.row
        first = seen.setdefault((row.guid, row.plane, row.port), planned)
        planned.published = first is planned
        if first is not planned:
            where = f"{row.device or row.netdev} and {first.row.device or first.row.netdev}"
            rejects.add("duplicate_guid", f"{format_guid(row.guid)} port {row.port}", where)
