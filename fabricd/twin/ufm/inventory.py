"""Systems, ports and links as UFM describes them, from the plan, the newest reading and the subnet's registers."""

from __future__ import annotations

from typing import Any

from fabricd.twin.face import Fabric, PlanNode
from fabricd.twin.mad.server import MadServer
from fabricd.twin.mad.subnet import ADAPTER_FIRMWARE, SWITCH_FIRMWARE
from fabricd.twin.mad.subnet import Port as SubnetPort

SPEED_NAMES = ("SDR", "DDR", "QDR", "FDR", "EDR", "HDR", "NDR")
PHYSICAL = {2: "Polling", 3: "Disabled", 5: "Link Up"}
LOGICAL = {1: "Down", 2: "Initialize", 3: "Armed", 4: "Active"}
SWITCH_ACTIONS = ["run_cli", "reboot", "sw_upgrade", "mirroring", "mark_device_unhealthy"]
SWITCH_PORT_ACTIONS = ["reset", "disable", "enable", "healthy_operations", "get_cables_info"]
ADAPTER_PORT_ACTIONS = ["reset", "disable", "enable", "get_cables_info"]
WIDTHS = {1: "1x", 2: "4x", 4: "8x", 8: "12x", 16: "2x"}


class Inventory:
    """Lookups by UFM's names and the JSON of each object."""

    def __init__(self, fabric: Fabric, mad: MadServer) -> None:
        self.fabric, self.mad = fabric, mad
        self.plan = fabric.plan
        self._systems = {guid16(node.guid): node for node in self.plan.nodes}
        self._names = {system_name(node): node for node in self.plan.nodes}
        self._ports = {port_name(self.port(row)): row for row in range(self.plan.rows)}

    def port(self, row: int) -> SubnetPort:
        return self.mad.subnet.by_row[row]

    def system(self, text: str) -> PlanNode | None:
        """By GUID, name or management address."""
        return self._systems.get(text.lower()) or self._names.get(text) or self.by_address(text)

    def by_address(self, text: str) -> PlanNode | None:
        return next((node for node in self.plan.nodes if address(node) == text), None)

    def row(self, name: str) -> int | None:
        """Row of ``<guid>_<number>``."""
        return self._ports.get(name.lower())

    def adapter_row(self, guid: str) -> int | None:
        """Row of an adapter by its port GUID (what partitions list) or node GUID."""
        row = self._ports.get(f"{guid}_1")
        if row is None and guid in self._systems and self._systems[guid].kind == "adapter":
            row = self._systems[guid].first_row
        return row

    def rows(self, node: PlanNode) -> range:
        return range(node.first_row, node.first_row + node.ports)

    def system_json(self, node: PlanNode, full_ports: bool) -> dict[str, Any]:
        switch = node.kind == "switch"
        firmware = SWITCH_FIRMWARE if switch else ADAPTER_FIRMWARE
        rows = [row for row in self.rows(node) if self.plan.row_peer[row] >= 0]
        ports = [self.port_json(row) if full_ports else port_name(self.port(row)) for row in rows]
        return {
            "guid": guid16(node.guid), "name": guid16(node.guid), "system_name": system_name(node),
            "system_guid": guid16(node.guid), "type": "switch" if switch else "host",
            "role": {0: "endpoint", 1: "tor"}.get(node.tier, "core"), "model": "MQM9790" if switch else "Computer",
            "technology": "NDR", "vendor": "NVIDIA", "description": "MQM9790" if switch else "Computer",
            "ip": address(node), "is_manual_ip": False, "is_managed": switch, "state": "active", "severity": "Info",
            "sm_mode": "noSM", "fw_version": ".".join(map(str, firmware)), "sw_version": "3.12.1002" if switch else "N/A",
            "psid": "MT_0000000543" if switch else "MT_0000000838", "capabilities": SWITCH_ACTIONS if switch else [],
            "ports": ports, "modules": [], "groups": ["All_Switches" if switch else "All_Hosts"], "script": "N/A", "url": "",
            "ram": "N/A", "cpus_number": "N/A", "cpu_type": "N/A", "cpu_speed": "N/A", "total_alarms": 0,
            "temperature": "51" if switch else "N/A", "mirroring_template": False, "has_ufm_agent": False,
            "server_operation_mode": "Switch" if switch else "Stand_Alone", "has_smartnic_device": False,
        }  # fmt: skip

    def port_json(self, row: int) -> dict[str, Any]:
        port, node = self.port(row), self.plan.node_of(row)
        switch = node.kind == "switch"
        up = port.physical == 5
        code = port.info[62] >> 4
        supported = [SPEED_NAMES[3 + bit] for bit in range(4) if port.info[62] >> bit & 1]
        enabled = [SPEED_NAMES[3 + bit] for bit in range(4) if port.info[63] >> bit & 1]
        dname = label(node, port.number)
        document: dict[str, Any] = {
            "name": port_name(port), "guid": guid16(port.guid), "number": port.number, "external_number": port.number,
            "dname": dname, "description": "Switch IB Port" if switch else "Computer IB Port",
            "systemID": guid16(node.guid), "system_name": system_name(node), "system_ip": address(node),
            "system_capabilities": SWITCH_ACTIONS if switch else [], "system_mirroring_template": False,
            "node_description": node_description(node, port.number), "lid": lid(port),
            "path": f"default / {'Switch' if switch else 'Computer'}: {system_name(node)} / {dname}",
            "tier": node.tier or 1, "module": "N/A", "mirror": "disable",
            "physical_state": PHYSICAL.get(port.physical, "Polling"), "logical_state": LOGICAL[port.state],
            "capabilities": SWITCH_PORT_ACTIONS if switch else ADAPTER_PORT_ACTIONS, "mtu": 4096,
            "active_speed": SPEED_NAMES[code.bit_length() + 2] if up and code else "N/A",
            "enabled_speed": enabled[-1:], "supported_speed": supported[-2:],
            "active_width": WIDTHS[port.info[31]] if up else "N/A", "enabled_width": ["4x"],
            "supported_width": ["1x", "2x", "4x"], "fec_mode": "RS_FEC (257,272)", "effective_ber": "1.5E-254",
            "severity": "Info", "high_ber_severity": "N/A",
        }  # fmt: skip
        document.update(self._peer(port, up))
        return document

    def _peer(self, port: SubnetPort, up: bool) -> dict[str, Any]:
        peer = port.peer if up else None
        if peer is None:
            keys = ("peer", "peer_guid", "peer_lid", "peer_ip", "peer_node_guid", "peer_node_name",
                    "peer_node_description", "peer_port_dname")  # fmt: skip
            return dict.fromkeys(keys, "N/A") | {"peer": None}
        node = peer.node.plan
        return {
            "peer": port_name(peer), "peer_guid": guid16(peer.guid), "peer_lid": lid(peer), "peer_ip": address(node),
            "peer_node_guid": guid16(node.guid), "peer_node_name": system_name(node),
            "peer_node_description": node_description(node, peer.number), "peer_port_dname": label(node, peer.number),
        }  # fmt: skip

    def link_json(self, row: int) -> dict[str, Any]:
        port = self.port(row)
        peer = port.peer
        assert peer is not None
        a, b = port.node.plan, peer.node.plan
        return {
            "name": f"{port_name(port)}:{port_name(peer)}", "source_guid": guid16(port.guid),
            "source_port": str(port.number), "source_port_dname": label(a, port.number),
            "source_port_node_description": node_description(a, port.number), "destination_guid": guid16(peer.guid),
            "destination_port": str(peer.number), "destination_port_dname": label(b, peer.number),
            "destination_port_node_description": node_description(b, peer.number),
            "width": f"IB_{WIDTHS[port.info[31]]}", "severity": "Info", "capabilities": ["get_cables_info"], "cable_info": {},
        }  # fmt: skip


def guid16(guid: int) -> str:
    return f"{guid:016x}"


def port_name(port: SubnetPort) -> str:
    """UFM's key of a port: its GUID (a switch's: the node's) and its number."""
    return f"{guid16(port.guid)}_{port.number}"


def lid(port: SubnetPort) -> int:
    return port.node.ports.get(0, port).lid


def system_name(node: PlanNode) -> str:
    """A switch's name; an adapter counts as a system of its own, named after host and device."""
    return node.name


def node_description(node: PlanNode, number: int) -> str:
    return f"{node.name}:{label(node, number)}" if node.kind == "switch" else node.name


def label(node: PlanNode, number: int) -> str:
    """What the faceplate says: two ports a cage on newer switches, the device on adapters."""
    return f"1/{(number + 1) // 2}/{2 - number % 2}" if node.kind == "switch" else node.name.rpartition(" ")[2]


def address(node: PlanNode) -> str:
    """A management address by position (nothing listens there)."""
    net = 20 if node.kind == "switch" else 30
    return f"10.{net}.{node.index >> 8 & 0xFF}.{node.index & 0xFF}"
