"""What no file shows: verbs answers, link samples over time, DCB state. Taken live, or from a capture's ``fabricd/calls.json``."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

from fabricd.doctor.nvml import gpu_memory
from fabricd.doctor.tree import Tree
from fabricd.doctor.verbs import Verbs
from fabricd.errors import BAD_DOCUMENT
from fabricd.sources.dcb import decode, encode_get
from fabricd.sources.netlink import NetlinkSocket, NetlinkUnavailable

if TYPE_CHECKING:
    from fabricd.doctor.inventory import Inventory

CALLS_FILE = "/fabricd/calls.json"
LINK_SAMPLES, LINK_SPACING_S = 12, 0.1


class Calls:
    """``data`` maps a kind (verbs, links, dcb, nvml, bandwidth) to subject to answer. A missing kind was not asked."""

    def __init__(self, data: dict[str, dict[str, Any]]) -> None:
        self.data = data

    def get(self, kind: str, subject: str) -> dict[str, Any] | None:
        answer = self.data.get(kind, {}).get(subject)
        return answer if isinstance(answer, dict) else None


def captured_calls(tree: Tree) -> Calls:
    """Answers stored in a captured tree; none when the capture has none or they are damaged."""
    text = tree.read(CALLS_FILE).text
    try:
        data = json.loads(text) if text else {}
    except BAD_DOCUMENT:
        data = {}
    return Calls(data if isinstance(data, dict) and all(isinstance(v, dict) for v in data.values()) else {})


def live_calls(inventory: Inventory, samples: int = LINK_SAMPLES, spacing_s: float = LINK_SPACING_S) -> Calls:
    """Ask this node: about ``samples × spacing_s`` seconds."""
    verbs = Verbs()
    data: dict[str, dict[str, Any]] = {"verbs": {nic.name: verbs.probe(nic.name) for nic in inventory.nics}, "dcb": {}}
    data["nvml"] = dict(gpu_memory([gpu.pci.bdf for gpu in inventory.gpus]))
    data["links"] = sample_links(inventory, samples, spacing_s)
    netdevs = sorted({name for nic in inventory.nics for port in nic.ports for name in port.netdevs})
    for name in netdevs:
        data["dcb"][name] = read_dcb(name)
    return Calls(data)


def sample_links(inventory: Inventory, samples: int, spacing_s: float) -> dict[str, Any]:
    """Per PCI function: every ``(speed, width)`` seen with its count, and the bytes its RDMA port moved meanwhile."""
    tree, pause = inventory.tree, threading.Event()
    functions = {nic.pci.bdf for nic in inventory.nics if nic.pci} | {gpu.pci.bdf for gpu in inventory.gpus}
    seen: dict[str, dict[str, int]] = {bdf: {} for bdf in functions}
    moved = {nic.pci.bdf: -_port_bytes(tree, nic.name) for nic in inventory.nics if nic.pci}
    for i in range(samples):
        for bdf in functions:
            base = f"/sys/bus/pci/devices/{bdf}"
            speed, width = (tree.read(f"{base}/current_link_{what}").text or "?" for what in ("speed", "width"))
            key = f"{speed} x{width}"
            seen[bdf][key] = seen[bdf].get(key, 0) + 1
        if i + 1 < samples:
            pause.wait(spacing_s)
    for nic in inventory.nics:
        if nic.pci:
            moved[nic.pci.bdf] += _port_bytes(tree, nic.name)
    return {bdf: {"samples": counts, "moved_bytes": moved.get(bdf)} for bdf, counts in seen.items()}


def _port_bytes(tree: Tree, device: str) -> int:
    base = f"/sys/class/infiniband/{device}/ports/1/counters"
    words = [tree.read(f"{base}/{name}").integer() or 0 for name in ("port_xmit_data", "port_rcv_data")]
    return 4 * sum(words)


def read_dcb(netdev: str) -> dict[str, Any]:
    """``{"pfc_enabled": [priorities]|None, "dscp_map": {dscp: priority}, "why": text}`` of a netdev, by DCB netlink."""
    try:
        connection = NetlinkSocket(socket.NETLINK_ROUTE)
    except NetlinkUnavailable as error:
        return {"pfc_enabled": None, "dscp_map": {}, "why": str(error)}
    try:
        dcb = decode(connection.ask(encode_get(netdev)))
    except OSError as error:
        return {"pfc_enabled": None, "dscp_map": {}, "why": f"DCB: {error.strerror or error}"}
    finally:
        connection.close()
    why = "" if dcb.enabled_priorities is not None else "the driver shows no PFC state by DCB"
    return {"pfc_enabled": dcb.enabled_priorities, "dscp_map": dcb.dscp_to_priority, "why": why}
