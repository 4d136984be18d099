"""Subnet management attributes: what each Get shows and each Set does to a node's registers.

Layouts after IBTA volume 1 chapter 14 (offsets inside the 64 attribute bytes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fabricd.twin import links
from fabricd.twin.mad.subnet import (
    ACTIVE,
    ADAPTER,
    ADAPTER_FIRMWARE,
    ARMED,
    DISABLED,
    DOWN,
    INIT,
    LFT_ENTRIES,
    LINK_UP,
    PKEYS,
    POLLING,
    SWITCH,
    SWITCH_FIRMWARE,
    Node,
    Port,
    Subnet,
)
from fabricd.twin.mad.wire import BAD_METHOD, GET, INVALID_VALUE, OK, SET, UNSUPPORTED, get, put

Answer = tuple[int, bytes | bytearray | None]
SM_INFO = 0x20
EXTENDED_PORT_INFO = 0xFF90
MULTICAST_BLOCKS, MULTICAST_POSITIONS = 32, 16
ALL_EGRESS, ALL_INGRESS = 1 << 16, 1 << 17  # bits of the SL2VL modifier: one table for all ports


class Watcher(Protocol):
    """Told about what bears on traffic or on other ports."""

    def routes_written(self, node: Node) -> None: ...
    def lanes_written(self, port: Port) -> None: ...
    def arbitration_written(self, port: Port) -> None: ...
    def link_asked(self, port: Port, physical: int) -> None:
        """A manager asks a link to go DISABLED, or POLLING (enabled: it trains again)."""

    def speed_asked(self, port: Port) -> None:
        """A manager narrowed or widened the speeds and widths a port may train at."""


class Agent:
    """The subnet management agent of every node."""

    def __init__(self, subnet: Subnet, watcher: Watcher) -> None:
        self._subnet = subnet
        self._watcher = watcher
        self._handlers: dict[int, Callable[[Port, bool, int, bytes], Answer]] = {
            0x10: self._node_description,
            0x11: self._node_info,
            0x12: self._switch_info,
            0x14: self._guid_info,
            0x15: self._port_info,
            0x16: self._pkey_table,
            0x17: self._sl_to_vl,
            0x18: self._arbitration,
            0x19: self._linear_table,
            0x1B: self._multicast_table,
            EXTENDED_PORT_INFO: self._extended_port_info,
        }

    def answer(self, port: Port, method: int, attribute: int, modifier: int, data: bytes) -> Answer:
        """Answer a request that arrived through ``port``: (MAD status, attribute bytes or None)."""
        if method not in (GET, SET):
            return BAD_METHOD, None
        handler = self._handlers.get(attribute)
        return handler(port, method == SET, modifier, data) if handler else (UNSUPPORTED, None)

    def _node_description(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        return (BAD_METHOD, None) if write else (OK, port.node.description)

    def _node_info(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        return (BAD_METHOD, None) if write else (OK, port.node.node_info(port))

    def _switch_info(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        node = port.node
        if node.type != SWITCH:
            return UNSUPPORTED, None
        if write:
            node.lft_top = get(data, 6, 2)
            node.life = data[11] >> 3
            node.mft_top = get(data, 18, 2)
            if data[11] & 4:  # written as one: acknowledged
                node.change = False
            self._subnet.routes_changed()
        return OK, node.switch_info()

    def _guid_info(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        if modifier > 3:
            return INVALID_VALUE, None
        out = bytearray(64)
        if modifier == 0:
            put(out, 0, 8, port.guid)
        return OK, out

    def _port_info(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        node = port.node
        number = modifier & 0xFF
        target = node.ports.get(port.number if node.type == ADAPTER and number == 0 else number)
        if target is None:
            return INVALID_VALUE, None
        if write and not self._set_port_info(target, data):
            return INVALID_VALUE, None
        out = bytearray(target.info)
        out[28] = port.number
        return OK, out

    def _set_port_info(self, target: Port, data: bytes) -> bool:
        """Write the settable fields; False when a state change is not allowed from here."""
        state, physical = data[32] & 15, data[33] >> 4
        if state not in (0, DOWN, ARMED, ACTIVE) or (state == ARMED and target.state not in (INIT, ARMED)):
            return False
        if state == ACTIVE and target.state not in (ARMED, ACTIVE):
            return False
        info = target.info
        old_lid, old_lmc = target.lid, target.lmc
        old_setting = info[29], info[35] & 15, info[63]
        if target.number == 0 or target.node.type == ADAPTER:  # a switch has these once, at its port 0
            info[0:20] = data[0:20]
            info[26:28] = data[26:28]
            info[34] = data[34]
        if data[29]:
            info[29] = info[30] if data[29] == 0xFF else data[29] & info[30]
        if data[33] & 15:
            info[33] = info[33] & 0xF0 | data[33] & 15
        if data[35] & 15:
            info[35] = info[35] & 0xF0 | (info[32] >> 4 if data[35] & 15 == 15 else data[35] & 15)
        if data[36] >> 4:
            info[36] = data[36]
        else:
            info[36] = info[36] & 0xF0 | data[36] & 15
        arbitrate = info[38] != data[38]
        info[38] = data[38]
        info[42] = data[42]
        if data[43] >> 4:
            info[43] = data[43]
        info[51] = data[51] & 0x7F  # the client-reregister bit acts and is not kept
        info[53] = data[53]
        if data[63] & 31:
            info[63] = info[62] & 15 if data[63] & 31 == 31 else data[63] & 31
        if (old_lid, old_lmc) != (target.lid, target.lmc):
            self._subnet.routes_changed()
            self._watcher.routes_written(target.node)
        if arbitrate:
            self._watcher.arbitration_written(target)
        self._change_state(target, state, physical, (info[29], info[35] & 15, info[63]) != old_setting)
        return True

    def _change_state(self, target: Port, state: int, physical: int, setting_changed: bool) -> None:
        if target.number == 0:
            return
        if setting_changed:
            self._watcher.speed_asked(target)
        if physical in (POLLING, DISABLED):
            self._watcher.link_asked(target, physical)
        elif state == DOWN:
            self._watcher.link_asked(target, POLLING)
        elif state in (ARMED, ACTIVE) and target.physical == LINK_UP:
            target.state = state

    def _pkey_table(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        target = port.node.ports.get(modifier >> 16) if port.node.type == SWITCH else port
        start = (modifier & 0xFFFF) * 64
        if target is None or start >= 2 * PKEYS:
            return INVALID_VALUE, None
        if write:
            target.pkeys[start : start + 64] = data[:64]
        return OK, target.pkeys[start : start + 64]

    def _sl_to_vl(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        node = port.node
        ingress, egress = (modifier >> 8 & 0xFF, modifier & 0xFF) if node.type == SWITCH else (0, port.number)
        target = node.ports.get(egress)
        if target is None or (node.type == SWITCH and ingress not in node.ports):
            return INVALID_VALUE, None
        if write:
            outs = node.ports.values() if node.type == SWITCH and modifier & ALL_EGRESS else (target,)
            every = node.type == SWITCH and modifier & ALL_INGRESS
            for out in outs:
                out.sl_to_vl.update(dict.fromkeys(node.ports if every else (ingress,), bytes(data[:8])))
                self._watcher.lanes_written(out)
        return OK, target.sl_to_vl.get(ingress, bytes(8)).ljust(64, b"\0")

    def _arbitration(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        target = port.node.ports.get(modifier & 0xFF) if port.node.type == SWITCH else port
        block = modifier >> 16
        if target is None or block not in target.arbitration:
            return INVALID_VALUE, None
        if write:
            target.arbitration[block][:] = data[:64]
            self._watcher.arbitration_written(target)
        return OK, target.arbitration[block]

    def _linear_table(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        node = port.node
        if node.type != SWITCH:
            return UNSUPPORTED, None
        start = modifier * 64
        if start + 64 > LFT_ENTRIES:
            return INVALID_VALUE, None
        if write and node.lft[start : start + 64] != data[:64]:
            node.lft[start : start + 64] = data[:64]
            self._subnet.routes_changed()
            self._watcher.routes_written(node)
        return OK, node.lft[start : start + 64]

    def _multicast_table(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        node = port.node
        if node.type != SWITCH:
            return UNSUPPORTED, None
        if modifier & 0xFFFFFF >= MULTICAST_BLOCKS or modifier >> 28 >= MULTICAST_POSITIONS:
            return INVALID_VALUE, None
        if write:
            node.mft[modifier] = bytes(data[:64])
        return OK, node.mft.get(modifier, bytes(64))

    def _extended_port_info(self, port: Port, write: bool, modifier: int, data: bytes) -> Answer:
        """NVIDIA's vendor attribute that newer devices are asked for: no FDR10 here, firmware as NodeInfo's device."""
        target = port.node.ports.get(modifier & 0xFF) if port.node.type == SWITCH else port
        if target is None:
            return INVALID_VALUE, None
        return (BAD_METHOD, None) if write else (OK, bytes(64))


def firmware(node: Node) -> int:
    """Firmware version as the simulator's vendor record carries it: major, minor, sub-minor."""
    major, minor, sub = SWITCH_FIRMWARE if node.type == SWITCH else ADAPTER_FIRMWARE
    return major << 32 | minor << 16 | sub


def allowed_setting(port: Port) -> links.Link:
    """The best setting both ends of a link may train at, given the widths and speeds a manager enabled."""
    ends = [port] if port.peer is None else [port, port.peer]
    widths, extended, speeds = 0xFF, 0x1F, 0x0F
    for end in ends:
        widths &= end.info[29]
        speeds &= end.info[35] & 15
        extended &= end.info[63]
    lanes = max((n for n, code in links.WIDTHS.items() if code & widths), default=1)
    candidates = [
        links.Link(lanes, name, code, ext)
        for name, _, code, ext in links.SPEEDS
        if (ext & extended if ext else code & speeds)
    ]
    return candidates[-1] if candidates else links.Link(lanes, "SDR", 1, 0)
