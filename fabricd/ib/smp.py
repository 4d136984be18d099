"""Layouts of the subnet management attributes fabricd reads. Offsets within the 64 bytes of SMP data, all big-endian.

Source: InfiniBand Architecture Specification volume 1, 14.2.5, as laid out by rdma-core's ``libibmad/fields.c``.
Whole batches are decoded with numpy; single answers go through the same functions with one row.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricd.ib.mad import SMP_DATA_AT, SMP_DATA_SIZE

LFT_BLOCK = 64  # destinations a LinearForwardingTable block
NO_EGRESS = 255  # LFT entry of a LID the switch does not forward
LINK_UP = 5  # PortPhysicalState
STATES = {0: "", 1: "down", 2: "init", 3: "armed", 4: "active", 5: "active-defer"}
PHYS_STATES = {1: "sleep", 2: "polling", 3: "disabled", 4: "training", 5: "link-up", 6: "error-recovery", 7: "phy-test"}
NODE_CA, NODE_SWITCH, NODE_ROUTER = 1, 2, 3

Bytes = npt.NDArray[np.uint8]
_NODE_INFO = struct.Struct(">BBBBQQQHHIB3s")
_SWITCH_INFO = struct.Struct(">HHHHBBBBHHBxH")


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """Attribute 0x11. ``local_port`` is the port the request came in by; ``port_guid`` belongs to it."""

    kind: int
    num_ports: int
    system_guid: int
    node_guid: int
    port_guid: int
    device_id: int
    revision: int
    local_port: int
    vendor_id: int


@dataclass(frozen=True, slots=True)
class SwitchInfo:
    """Attribute 0x12. ``lft_top`` is the highest LID the switch forwards."""

    lft_cap: int
    lft_top: int
    default_port: int
    port_state_change: bool
    enhanced_port0: bool


@dataclass(frozen=True, slots=True)
class PortInfos:
    """Attribute 0x15 of many ports, one row each. ``speed`` and ``ext_speed`` are the codes of LinkSpeedActive and
    LinkSpeedExtActive, ``width`` of LinkWidthActive; ``state`` and ``phys_state`` as in STATES and PHYS_STATES."""

    lid: npt.NDArray[np.uint16]
    lmc: Bytes
    state: Bytes
    phys_state: Bytes
    width: Bytes
    speed: Bytes
    ext_speed: Bytes
    mtu: Bytes  # code of NeighborMTU: 1 = 256 ... 5 = 4096
    operational_vls: Bytes

    def rows(self, first: int, last: int) -> PortInfos:
        """Rows ``first`` to ``last`` - 1, as views."""
        part = slice(first, last)
        return PortInfos(
            self.lid[part],
            self.lmc[part],
            self.state[part],
            self.phys_state[part],
            self.width[part],
            self.speed[part],
            self.ext_speed[part],
            self.mtu[part],
            self.operational_vls[part],
        )


def smp_data(mads: Bytes) -> Bytes:
    """(n, 256) MADs -> (n, 64) attribute data."""
    return mads[:, SMP_DATA_AT : SMP_DATA_AT + SMP_DATA_SIZE]


def decode_node_info(data: bytes) -> NodeInfo:
    """Raises ValueError on fewer than 40 bytes."""
    if len(data) < _NODE_INFO.size:
        raise ValueError(f"NodeInfo of {len(data)} bytes")
    _, _, kind, ports, system, node, port, _, device, revision, local, vendor = _NODE_INFO.unpack_from(data)
    return NodeInfo(kind, ports, system, node, port, device, revision, local, int.from_bytes(vendor, "big"))


def decode_node_description(data: bytes) -> str:
    """64 bytes of text, not always NUL-terminated and not always UTF-8."""
    return data[:SMP_DATA_SIZE].split(b"\0", 1)[0].decode("utf-8", "replace")


def decode_switch_info(data: bytes) -> SwitchInfo:
    """Raises ValueError on fewer than 20 bytes."""
    if len(data) < _SWITCH_INFO.size:
        raise ValueError(f"SwitchInfo of {len(data)} bytes")
    lft_cap, _, _, lft_top, default_port, _, _, life, _, _, flags, _ = _SWITCH_INFO.unpack_from(data)
    return SwitchInfo(lft_cap, lft_top, default_port, bool(life & 4), bool(flags & 8))


def decode_port_infos(data: Bytes) -> PortInfos:
    """(n, 64) data -> columns of length n."""

    def byte(at: int, shift: int, mask: int) -> Bytes:
        return (data[:, at] >> shift & mask).astype(np.uint8)

    return PortInfos(
        lid=(data[:, 16].astype(np.uint16) * 256 + data[:, 17]).astype(np.uint16),
        lmc=byte(34, 0, 7),
        state=byte(32, 0, 15),
        phys_state=byte(33, 4, 15),
        width=byte(31, 0, 255),
        speed=byte(35, 4, 15),
        ext_speed=byte(62, 4, 15),
        mtu=byte(36, 4, 15),
        operational_vls=byte(43, 4, 15),
    )


def decode_sl_to_vl(data: bytes) -> list[int]:
    """Attribute 0x17: the virtual lane of service levels 0 to 15 (15 = dropped)."""
    return [value for byte in data[:8] for value in (byte >> 4, byte & 15)]


def decode_vl_arbitration(data: bytes) -> list[tuple[int, int]]:
    """Attribute 0x18: 32 entries (virtual lane, weight in 64-byte units); weight 0 ends nothing, it only skips the entry."""
    return [(data[2 * i] & 15, data[2 * i + 1]) for i in range(32)]
