"""The MAD server by its sockets: clients, routing, registers, traps, and the levers that writes pull."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from fabricd.errors import FabricdError
from fabricd.twin.face import Arbitration
from fabricd.twin.faults import TelemetryFaults
from fabricd.twin.mad.server import MadServer
from tests.unit.twin.static_fabric import StaticFabric, leaf_spine

ENVELOPE = struct.Struct("=IIIIIxxxx8s256s")
CONTROL = struct.Struct("=IIII64s")
_numbers = itertools.count(1)


class Client:
    """A program on the simulator's sockets, in non-blocking steps."""

    def __init__(self, base: str) -> None:
        self.base, self.pid = base, os.getpid() + 1_000_000 * next(_numbers)
        self.control, self.mads = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        self.control.bind(f"\0{base}:ctl{self.pid}\0".encode())
        self.mads.bind(f"\0{base}:in{self.pid}\0".encode())
        for each in (self.control, self.mads):
            each.setblocking(False)
        self.index = -1

    async def ask(self, kind: int, data: bytes = b"") -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        self.control.sendto(
            CONTROL.pack(0xDEADBEEF, max(self.index, 0), kind, len(data), data), f"\0{self.base}:ctl\0".encode()
        )
        answer = await asyncio.wait_for(loop.sock_recv(self.control, 512), 10)
        _, _, kind, _, body = CONTROL.unpack(answer)
        return kind, body

    async def connect(self, host: str = "", manager: bool = False) -> int:
        kind, body = await self.ask(1, struct.pack("=III32s", self.pid, 0, manager, host.encode()))
        if kind == 1:
            self.index = struct.unpack_from("=I", body)[0]
            self.mads.connect(f"\0{self.base}:out{self.index}\0".encode())
        return kind

    def send(self, mad: bytes, lid: int = 0xFFFF, source: int = 0) -> None:
        length = (256).to_bytes(8, "big")
        self.mads.send(ENVELOPE.pack(socket.htons(lid), source, socket.htonl(1), socket.htonl(1), 0, length, mad))

    async def receive(self) -> tuple[int, bytes]:
        """(status of the envelope, MAD)."""
        answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.mads, 512), 10)
        fields = ENVELOPE.unpack(answer)
        return socket.ntohl(fields[4]), fields[6]

    async def call(self, mad: bytes, lid: int = 0xFFFF) -> tuple[int, bytes]:
        self.send(mad, lid)
        return await self.receive()

    def close(self) -> None:
        self.control.close()
        self.mads.close()


def smp(attribute: int, modifier: int = 0, data: bytes = b"", path: tuple[int, ...] | None = None) -> bytes:
    """A subnet management MAD: Set when there is data; by directed route when there is a path."""
    mad = bytearray(256)
    mad[0:4] = bytes((1, 1 if path is None else 0x81, 1, 2 if data else 1))
    mad[16:18] = attribute.to_bytes(2, "big")
    mad[20:24] = modifier.to_bytes(4, "big")
    if path is not None:
        mad[7] = len(path)
        mad[32:36] = b"\xff" * 4
        mad[129 : 129 + len(path)] = bytes(path)
    mad[64 : 64 + len(data)] = data
    return bytes(mad)


def served(
    check: Callable[[StaticFabric, MadServer, str], Awaitable[None]],
    configured: bool = True,
    faults: Callable[[StaticFabric], TelemetryFaults] | None = None,
    **shape: Any,
) -> None:
    """Run a check against a server over a still fabric."""

    async def main() -> None:
        fabric = StaticFabric(leaf_spine(**shape))
        base = f"test-{os.getpid()}-{next(_numbers)}"
        server = MadServer(fabric, base, configured, faults(fabric) if faults else None)
        await server.start()
        try:
            await check(fabric, server, base)
        finally:
            await server.stop()

    asyncio.run(main())


def test_more_than_ten_clients_and_reuse_of_dead_ones() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        clients = [Client(base) for _ in range(25)]
        for client in clients:
            assert await client.connect() == 1
        assert sorted(client.index for client in clients) == list(range(25))
        clients[3].close()
        late = Client(base)
        assert await late.connect() == 1 and late.index == 3
        for client in [*clients[:3], *clients[4:], late]:
            status, mad = await client.call(smp(0x11, path=()))
            assert (status, mad[3]) == (0, 0x81)
            client.close()

    served(check)


def test_an_unknown_node_is_refused() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        assert await client.connect("H-0000000000000001") == 0
        assert await client.connect("leaf-01") == 1
        _, mad = await client.call(smp(0x10, path=()))
        assert mad[64:71] == b"leaf-01"
        client.close()

    served(check)


def test_a_taken_name_is_one_clear_error() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        with pytest.raises(FabricdError, match=base):
            await MadServer(fabric, base).start()

    served(check)


def test_nothing_is_lost_when_a_client_reads_late() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        for number in range(200):
            mad = bytearray(smp(0x11, path=()))
            mad[12:16] = number.to_bytes(4, "big")
            while True:
                try:
                    client.send(bytes(mad))
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.001)
        seen = [int.from_bytes((await client.receive())[1][12:16], "big") for _ in range(200)]
        assert seen == list(range(200))
        client.close()

    served(check)


def test_lid_routes_follow_the_tables() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect(fabric.plan.adapters[0].name)
        target = server.subnet.nodes[fabric.plan.adapters[5].index]
        status, mad = await client.call(smp(0x11), target.first.lid)
        assert status == 0 and int.from_bytes(mad[64 + 12 : 64 + 20], "big") == target.guid
        for switch in fabric.plan.switches:
            server.subnet.nodes[switch.index].lft[target.first.lid] = 255
        server.subnet.routes_changed()
        assert (await client.call(smp(0x11), target.first.lid))[0] == 110
        assert (await client.call(smp(0x11), 40000))[0] == 110
        client.close()

    served(check)


def test_directed_routes_record_their_way_back() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect(fabric.plan.adapters[0].name)
        status, mad = await client.call(smp(0x11, path=(1, 16, 2)))
        assert (status, mad[4] & 0x80) == (0, 0x80)
        assert bytes(mad[64 + 36 : 64 + 37]) == b"\x10"  # entered leaf-01 by its port 16
        assert tuple(mad[193:196]) == (1, 1, 16)
        assert (await client.call(smp(0x11, path=(1, 9))))[0] == 110  # nothing is cabled there
        assert (await client.call(smp(0x11, path=(1, 2, 1))))[0] == 110  # adapters do not forward
        client.close()

    served(check)


def test_what_is_not_supported_says_so() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        for attribute, modifier, status in ((0x77, 0, 0x0C), (0x15, 99, 0), (0x19, 0, 0x0C), (0x18, 9 << 16, 0x1C)):
            _, mad = await client.call(smp(attribute, modifier, path=()))
            assert (mad[4] & 0x7F) << 8 | mad[5] == status or attribute == 0x15
        _, mad = await client.call(smp(0x15, 99, path=(1,)))
        assert mad[5] == 0x1C
        client.close()

    served(check)


def test_tables_become_routes_of_the_model() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        switch = server.subnet.nodes[0]
        lids = [server.subnet.nodes[a.index].first.lid for a in fabric.plan.adapters]
        block = bytearray(switch.lft[:64])
        block[lids[4]] = 15
        block[lids[5]] = 255
        await client.call(smp(0x19, 0, bytes(block), path=(1,)))
        await asyncio.sleep(0.01)
        ((position, egress),) = fabric.pulled("set_routes")
        assert position == 0
        expected = fabric.routes()[0].tolist()
        assert egress == [*expected[:4], 15, 0]
        client.close()

    served(check)


def test_lanes_arbitration_and_limits_reach_the_model() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        mapping = bytes((0x12, 0x30)) + bytes(6)
        await client.call(smp(0x17, 2 << 8 | 5, mapping, path=(1,)))
        await client.call(smp(0x18, 1 << 16 | 5, bytes((0, 10, 1, 20)) + bytes(60), path=(1,)))
        await client.call(smp(0x18, 3 << 16 | 5, bytes((3, 200)) + bytes(62), path=(1,)))
        _, mad = await client.call(smp(0x17, 2 << 8 | 5, path=(1,)))
        assert mad[64:72] == mapping
        _, mad = await client.call(smp(0x15, 5, path=(1,)))
        info = bytearray(mad[64:128])
        info[38] = 9
        info[32] &= 0xF0
        await client.call(smp(0x15, 5, bytes(info), path=(1,)))
        await asyncio.sleep(0.01)
        row = fabric.plan.row(fabric.plan.switches[0], 5)
        assert (row, 2, (1, 2, 3, 0, *[0] * 12)) in fabric.pulled("set_sl_to_vl")
        assert fabric.pulled("set_arbitration")[-1] == (
            row,
            Arbitration(high=((3, 200),), low=((0, 10), (1, 20), (2, 64), (3, 64))[:2], high_limit=9),
        )
        client.close()

    served(check)


def congestion(attribute: int, data: bytes, modifier: int = 0) -> bytes:
    mad = bytearray(256)
    mad[0:4] = bytes((1, 0x21, 2, 2))
    mad[16:18] = attribute.to_bytes(2, "big")
    mad[20:24] = modifier.to_bytes(4, "big")
    mad[64 : 64 + len(data)] = data
    return bytes(mad)


def test_congestion_control_reaches_the_model_and_is_read_back() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        switch, adapter = server.subnet.nodes[0], server.subnet.nodes[fabric.plan.adapters[1].index]
        setting = bytearray(192)
        setting[68], setting[74:76] = 0xA0, (7).to_bytes(2, "big")
        _, mad = await client.call(congestion(0x14, bytes(setting)), switch.first.lid)
        assert mad[64:256] == bytes(setting)
        assert fabric.pulled("set_threshold") == [(0, 10, 7)]
        table = (3).to_bytes(2, "big") + bytes(2) + b"".join(v.to_bytes(2, "big") for v in (0, 1, 2 << 0, 0x4006))
        await client.call(congestion(0x17, table), adapter.first.lid)
        source = bytearray(192)
        source[2:4] = (1 << 2).to_bytes(2, "big")
        source[20:22], source[22] = (100).to_bytes(2, "big"), 5  # level 2
        await client.call(congestion(0x16, bytes(source)), adapter.first.lid)
        row, _level, control = next(c for c in reversed(fabric.pulled("set_source_control")) if c[1] == 2)
        assert row == adapter.first.row and control.enabled and (control.increase, control.limit) == (5, 3)
        assert control.table[:4] == (0, 1, 2, 3)
        assert control.timer_us == pytest.approx(102.4)
        assert not next(c for c in reversed(fabric.pulled("set_source_control")) if c[1] == 1)[2].enabled
        client.close()

    served(check)


def test_a_link_that_fails_is_reported_by_the_switches_at_its_ends() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        manager = Client(base)
        await manager.connect(fabric.plan.adapters[0].name, manager=True)
        leaf, spine = fabric.plan.switches[0], fabric.plan.switches[2]
        server.subnet.nodes[leaf.index].ports[0].info[18:20] = server.subnet.nodes[spine.index].ports[0].info[18:20] = (
            server.subnet.nodes[fabric.plan.adapters[0].index].first.lid
        ).to_bytes(2, "big")
        rows = [fabric.plan.row(leaf, 16), fabric.plan.row(spine, 1)]
        fabric.counters.up = fabric.counters.up.copy()
        fabric.counters.up[rows] = False
        fabric.touch()
        traps = [(await manager.receive())[1] for _ in range(1)]
        assert traps[0][1] == 1 and traps[0][3] == 5 and traps[0][16:18] == b"\0\x02"
        assert int.from_bytes(traps[0][64 + 4 : 64 + 6], "big") == 128
        _status, mad = await manager.call(smp(0x15, 16, path=(1,)))
        while mad[3] == 5:  # the other end's trap
            _status, mad = await manager.receive()
        assert (mad[64 + 32] & 15, mad[64 + 33] >> 4) == (1, 2)
        manager.close()

    served(check)


def test_a_link_that_lost_lanes_shows_its_width() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        row = fabric.plan.row(fabric.plan.switches[0], 16)
        fabric.counters.gbps = fabric.counters.gbps.copy()
        fabric.counters.gbps[[row, fabric.plan.row_peer[row]]] = 100.0
        fabric.touch()
        for _ in range(100):
            _, mad = await client.call(smp(0x15, 16, path=(1,)))
            if mad[64 + 31] == 1:
                break
            await asyncio.sleep(0.02)
        assert mad[64 + 31] == 1 and mad[64 + 32] & 15 == 4  # 1X, still active
        client.close()

    served(check)


def test_a_subnet_without_manager_has_no_routes_and_waits_in_init() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        assert all(not any(egress) for _, egress in fabric.pulled("set_routes"))
        assert len(fabric.pulled("set_routes")) == len(fabric.plan.switches)
        client = Client(base)
        await client.connect()
        _, mad = await client.call(smp(0x15, 1, path=(1,)))
        assert mad[64 + 32] & 15 == 2
        client.close()

    served(check, configured=False)


def test_disabling_a_port_pulls_the_lever() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        client = Client(base)
        await client.connect()
        info = bytearray((await client.call(smp(0x15, 16, path=(1,))))[1][64:128])
        info[32] &= 0xF0
        info[33] = 3 << 4
        await client.call(smp(0x15, 16, bytes(info), path=(1,)))
        row = fabric.plan.row(fabric.plan.switches[0], 16)
        assert fabric.pulled("set_enabled") == [(row, False)]
        _, mad = await client.call(smp(0x15, 16, path=(1,)))
        assert mad[64 + 33] >> 4 == 3
        client.close()

    served(check)


def test_routes_of_the_model_show_in_the_tables_while_nobody_programs_them() -> None:
    async def check(fabric: StaticFabric, server: MadServer, base: str) -> None:
        routes = fabric.routes()
        routes[0, 5] = 15
        fabric.routes = lambda: np.array(routes)  # type: ignore[method-assign]
        fabric.touch()
        lid = server.subnet.nodes[fabric.plan.adapters[5].index].first.lid
        for _ in range(100):
            if server.subnet.nodes[0].lft[lid] == 15:
                break
            await asyncio.sleep(0.02)
        assert server.subnet.nodes[0].lft[lid] == 15

    served(check)
