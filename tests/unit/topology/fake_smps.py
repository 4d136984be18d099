"""A transport that answers directed-route SMPs from a generated topology, with nodes that are silent, keyed, lossy or doubled."""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Callable, Set
from random import Random

from fabricd.ib.mad import GET_RESP, MAD_SIZE, METHOD_AT, Smp
from fabricd.ib.transport import Address, get_only
from fabricd.model.topology import SWITCH, Topology


class FakeSmps:
    """``local`` is the adapter one sits at. ``silent``: GUIDs that never answer. ``shown``: GUID a node claims instead of its own."""

    size, mad_at, status_at = 8 + MAD_SIZE, 8, 4
    drains, reports_timeouts = True, False

    def __init__(
        self,
        topology: Topology,
        local: int,
        *,
        silent: Set[int] = frozenset(),
        shown: dict[int, int] | None = None,
        m_key: int = 0,
        loss: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.topology, self.local, self.silent, self.shown = topology, local, silent, shown or {}
        self.m_key, self.loss, self.random = m_key, loss, Random(seed)
        self.peers = topology.neighbours()
        self.rates = {ref: link for link in topology.links for ref in (link.a, link.b)}
        self.answers: deque[bytes] = deque()
        self.asked = 0
        self.send: Callable[[memoryview], None] = get_only(self._send, self.mad_at)

    def address(self, frame: memoryview, to: Address, timeout_ms: int) -> None:
        struct.pack_into(">HHI", frame, 0, to.lid, timeout_ms, 0)

    def poll(self, timeout_ms: float) -> bool:
        if not self.answers:
            time.sleep(timeout_ms / 1000)
        return bool(self.answers)

    def recv(self) -> bytes:
        if not self.answers:
            raise BlockingIOError
        return self.answers.popleft()

    def close(self) -> None:
        self.answers.clear()

    def _send(self, frame: memoryview) -> None:
        self.asked += 1
        mad = bytearray(frame[self.mad_at :])
        guid, port = self.local, 1
        for egress in mad[129 : 129 + mad[7]]:
            far = self.peers.get((guid, egress))
            if far is None or guid in self.silent:
                return
            guid, port = far
        keyed = self.m_key and int.from_bytes(mad[24:32], "big") != self.m_key
        if guid in self.silent or keyed or self.random.random() < self.loss:
            return
        data = self._data(guid, port, int.from_bytes(mad[16:18], "big"), int.from_bytes(mad[20:24], "big"))
        mad[METHOD_AT] = GET_RESP
        mad[64:128] = data.ljust(64, b"\0")
        self.answers.append(bytes(8) + bytes(mad))

    def _data(self, guid: int, port: int, attribute: int, modifier: int) -> bytes:
        node = self.topology.nodes[guid]
        switch = node.type == SWITCH
        if attribute == Smp.NODE_INFO:
            shown = self.shown.get(guid, guid)
            kind = 2 if switch else 1
            return struct.pack(
                ">BBBBQQQHHIB3s",
                1,
                1,
                kind,
                node.num_ports,
                shown,
                shown,
                shown,
                8,
                node.device_id,
                0,
                port,
                b"\0\2\xc9",
            )
        if attribute == Smp.NODE_DESCRIPTION:
            return node.name.encode()
        if attribute == Smp.SWITCH_INFO:
            return struct.pack(">HHHHBBBBHHBxH", 49152, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0)
        info = bytearray(64)
        info[16:18] = node.lids.get(0 if switch else modifier, 0).to_bytes(2, "big")
        link = self.rates.get((guid, modifier))
        info[32], info[33] = (4, 5 << 4) if link else (1, 2 << 4)
        if link:
            info[31], info[62] = {1: 1, 2: 16, 4: 2}[link.width], {"EDR": 2, "HDR": 4, "NDR": 8}[link.speed] << 4
        return bytes(info)
