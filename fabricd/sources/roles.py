"""What kind of function an RDMA device or port is: not every device is a port of the fabric with counters of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fabricd.sources.files import Files, try_int, try_text

if TYPE_CHECKING:
    from fabricd.sources.devices import Device

PHYSICAL = "physical"
VIRTUAL_FUNCTION = "virtual_function"
REPRESENTOR = "representor"  # a switchdev port that stands for somebody else's function
BOND = "bond"
PLANE = "plane"  # one plane of a multi-plane adapter; its parent shows the sum
SOFTWARE = "software"
SWITCH = "switch"
AGGREGATION_NODE = "aggregation_node"  # of a switch's in-network reduction, no host port
SWITCH_MANAGEMENT = (
    "switch_management"  # a function that manages a node-internal switch; its counters refuse, and log each time
)

_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:hpf|vf\d+|sf\d+)?")
_UPLINK = re.compile(r"p\d+")

_NVIDIA = 0x15B3
_BLUEFIELD = frozenset({0xA2D2, 0xA2D3, 0xA2D6, 0xA2DC, 0xA2DF})  # integrated functions of BlueField 1 to 4


def device_role(files: Files, device: Device) -> str:
    """By node type and description, vital product data, and the PCI function's kind."""
    node_type = try_text(files, f"{device.path}/node_type") or ""
    if node_type.lower().endswith("switch"):
        return SWITCH
    if "aggregation node" in (device.node_desc or "").lower():
        return AGGREGATION_NODE
    if device.bus_path is None:
        return SOFTWARE
    if _is_switch_management(files, device.path):
        return SWITCH_MANAGEMENT
    try:
        files.identity(f"{device.path}/device/physfn")
    except OSError:
        return PHYSICAL
    return VIRTUAL_FUNCTION


def _is_switch_management(files: Files, path: str) -> bool:
    """The product data of these functions carries the word ``SW_MNG``."""
    return "SW_MNG" in (try_text(files, f"{path}/device/vpd") or "")


def is_representor(phys_port_name: str | None) -> bool:
    """``pf0vf3``, ``c1pf0hpf``, ``pf1sf8`` stand for a function; ``p0`` is the uplink itself."""
    name = phys_port_name or ""
    return bool(_REPRESENTOR.fullmatch(name)) and not _UPLINK.fullmatch(name)


def is_dpu_seen_from_host(files: Files, sysfs: str, path: str) -> bool:
    """A BlueField function on a machine that is not the BlueField itself: the port may belong to the other side."""
    vendor = try_int(try_text(files, f"{path}/device/vendor"), 16)
    device = try_int(try_text(files, f"{path}/device/device"), 16)
    if vendor != _NVIDIA or device not in _BLUEFIELD:
        return False
    product = try_text(files, f"{sysfs}/class/dmi/id/product_name") or ""
    return "bluefield" not in product.lower()


def assign_planes(devices: Sequence[Device]) -> None:
    """Devices of one PCI function with one GUID: the kernel shows a multi-plane adapter's planes as ports of a sub-device."""
    by_function: dict[tuple[str, int], list[Device]] = {}
    for device in devices:
        if device.bus_path is not None and device.node_guid is not None:
            by_function.setdefault((device.bus_path, device.node_guid), []).append(device)
    for group in by_function.values():
        if len(group) < 2:
            continue
        parent = min(group, key=lambda d: (d.name.startswith("smi"), len(d.ports), d.name))
        for device in group:
            if device is not parent:
                device.role, device.parent = PLANE, parent.name
                for port in device.ports:
                    port.role = PLANE
