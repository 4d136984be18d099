"""The device plane of an InfiniBand fabric: what switches and adapters really hold, by Gets of subnet management attributes.

``Getter`` is the seam: in the controller it asks the collector, which alone may open umad, over its Unix socket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from fabricd.devices.base import DeviceUnreachable
from fabricd.devices.opensm.tables import Tables
from fabricd.errors import FabricdError
from fabricd.ib.gets import GetClient
from fabricd.ib.smp import (
    LFT_BLOCK,
    NO_EGRESS,
    NODE_SWITCH,
    decode_node_info,
    decode_sl_to_vl,
    decode_switch_info,
    decode_vl_arbitration,
)

Getter = Callable[
    [str, int, int, int, int], bytes
]  # (attribute, LID, port, input port, block) -> data; raises DeviceUnreachable
HIGH_BLOCK, LOW_BLOCK = 3, 1  # VLArbitration: blocks of the high and the low priority table
_HIGH_LIMIT_AT, _HIGH_CAP_AT, _LOW_CAP_AT, _OPERATIONAL_AT = 38, 39, 40, 43  # bytes of PortInfo
_PORT0, _PORT_STATE_AT, _ACTIVE = 0, 32, 4
PKEYS_A_BLOCK = 32


class Plane:
    """``lids``: port GUID -> LID as the subnet manager wrote them down; each is checked against the device before it is believed."""

    def __init__(self, get: Getter, lids: Callable[[], Mapping[int, int]]) -> None:
        self._get, self._lids = get, lids
        self._checked: dict[int, tuple[int, bool, int]] = {}  # GUID -> (LID, switch, ports)

    def _info(self, guid: int, lid: int) -> tuple[bool, int]:
        known = self._checked.get(guid)
        if known is None or known[0] != lid:
            info = decode_node_info(self._get("NodeInfo", lid, 0, 0, 0))
            if guid not in (info.port_guid, info.node_guid):
                raise DeviceUnreachable(
                    f"LID {lid} is 0x{info.port_guid:016x}, not 0x{guid:016x}: the LID list is out of date"
                )
            known = self._checked[guid] = lid, info.kind == NODE_SWITCH, info.num_ports
        return known[1], known[2]

    def lid_of(self, guid: int) -> int:
        """Raises DeviceUnreachable for a GUID without a LID."""
        lid = self._lids().get(guid)
        if lid is None:
            raise DeviceUnreachable(f"the subnet manager knows no LID of 0x{guid:016x}")
        self._info(guid, lid)
        return lid

    def switches(self) -> dict[int, int]:
        """GUID -> LID of every switch."""
        return {guid: lid for guid, lid in self._lids().items() if self._info(guid, lid)[0]}

    def adapters(self) -> dict[int, int]:
        return {guid: lid for guid, lid in self._lids().items() if not self._info(guid, lid)[0]}

    # ---------------------------------------------------------------- forwarding

    def table(self, guid: int) -> dict[int, int]:
        """LID -> egress port of a switch; what it does not forward is left out."""
        lid = self.lid_of(guid)
        top = decode_switch_info(self._get("SwitchInfo", lid, 0, 0, 0)).lft_top
        out: dict[int, int] = {}
        for block in range(top // LFT_BLOCK + 1):
            out |= self._entries(lid, block)
        return {entry: port for entry, port in out.items() if entry <= top}

    def entries(self, guid: int, lids: list[int]) -> dict[int, int | None]:
        """The egress port of these LIDs only; None where the switch does not forward one."""
        lid = self.lid_of(guid)
        known: dict[int, int] = {}
        for block in sorted({wanted // LFT_BLOCK for wanted in lids}):
            known |= self._entries(lid, block)
        return {wanted: known.get(wanted) for wanted in lids}

    def _entries(self, lid: int, block: int) -> dict[int, int]:
        data = self._get("LinearForwarding", lid, 0, 0, block)
        return {block * LFT_BLOCK + at: port for at, port in enumerate(data[:LFT_BLOCK]) if port != NO_EGRESS}

    def tables(self) -> tuple[Tables, dict[int, int]]:
        """(all switches' tables, their LIDs)."""
        switches = self.switches()
        return {guid: self.table(guid) for guid in switches}, switches

    # ---------------------------------------------------------------- quality of service

    def sl_to_vl(self, lid: int, port: int, in_port: int = 0) -> list[int]:
        return decode_sl_to_vl(self._get("SLtoVL", lid, port, in_port, 0))

    def arbitration(self, lid: int, port: int, high: bool) -> list[tuple[int, int]]:
        """(lane, weight) of a port's table, up to the device's cap."""
        first = HIGH_BLOCK if high else LOW_BLOCK
        cap = self._port(lid, port)[_HIGH_CAP_AT if high else _LOW_CAP_AT]
        entries = decode_vl_arbitration(self._get("VLArbitration", lid, port, 0, first))
        if cap > 32:
            entries += decode_vl_arbitration(self._get("VLArbitration", lid, port, 0, first + 1))
        return entries[:cap]

    def high_limit(self, lid: int, port: int) -> int:
        return self._port(lid, port)[_HIGH_LIMIT_AT]

    def data_lanes(self, lid: int, port: int) -> int:
        """Lanes in operation: 1, 2, 4, 8 or 15."""
        return {1: 1, 2: 2, 3: 4, 4: 8, 5: 15}.get(self._port(lid, port)[_OPERATIONAL_AT] >> 4, 1)

    def _port(self, lid: int, port: int) -> bytes:
        return self._get("PortInfo", lid, port, 0, 0)

    def active_ports(self, guid: int, most: int) -> list[tuple[int, int]]:
        """(LID, port) of up to ``most`` connected, active ports of a device; port 0 of a switch is none."""
        lid = self.lid_of(guid)
        out: list[tuple[int, int]] = []
        for port in range(1, self._info(guid, lid)[1] + 1):
            if len(out) == most:
                break
            if self._port(lid, port)[_PORT_STATE_AT] & 15 == _ACTIVE:
                out.append((lid, port))
        return out

    def pkeys(self, lid: int, port: int = 0) -> set[int]:
        """P_Keys of the first block, membership bit included."""
        data = self._get("PKeyTable", lid, port, 0, 0)
        return {int.from_bytes(data[at : at + 2], "big") for at in range(0, 2 * PKEYS_A_BLOCK, 2)} - {0}


class CollectorGetter:
    """A Getter over the collector's Unix socket; connects with the first question and anew after an error."""

    def __init__(self, path: str, timeout: float = 3.0) -> None:
        self._path, self._timeout = path, timeout
        self._client: GetClient | None = None
        self._one = threading.Lock()

    def __call__(self, attribute: str, lid: int, port: int, in_port: int, block: int) -> bytes:
        with self._one, self._connected() as client:
            reply = client.get(attribute, lid, port=port, in_port=in_port, block=block)
        if reply.reply != "ok":
            raise DeviceUnreachable(f"{attribute} of LID {lid} port {port}: {reply.error or reply.reply}")
        return reply.raw

    @contextmanager
    def _connected(self) -> Iterator[GetClient]:
        try:
            if self._client is None:
                self._client = GetClient(self._path, self._timeout)
            yield self._client
        except FabricdError as error:
            if self._client is not None:
                self._client.close()
                self._client = None
            raise DeviceUnreachable(str(error)) from None
