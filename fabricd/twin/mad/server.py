"""The simulator's side of libumad2sim's socket protocol: clients come and go, their MADs travel the twin's subnet.

Runs inside an asyncio loop; nothing blocks. A client's own queue holds only a few datagrams, so answers it cannot
take yet wait here until its socket is writable again.
"""

from __future__ import annotations

import asyncio
import logging
import socket

import numpy as np
from numpy.typing import NDArray

from fabricd.errors import FabricdError
from fabricd.twin.face import Fabric
from fabricd.twin.faults import TelemetryFaults
from fabricd.twin.mad import congestion, smp
from fabricd.twin.mad.clients import Client, Refused, cuts_datagrams, is_alive
from fabricd.twin.mad.pma import Pma
from fabricd.twin.mad.programming import Programming
from fabricd.twin.mad.subnet import ACTIVE, DISABLED, INIT, POLLING, Port, Subnet, preconfigure, write_routes
from fabricd.twin.mad.wire import (
    CLIENT,
    CONGESTION,
    CONTROL,
    DATA,
    DATAGRAM_SIZE,
    DIRECTION,
    ENVELOPE,
    ENVELOPE_SIZE,
    GET_RESPONSE,
    LENGTH,
    MAGIC,
    PATH_BACK,
    PERFORMANCE,
    PORT_STATE,
    SUBNET_DIRECTED,
    SUBNET_LID,
    TRAP_REPRESS,
    UNSUPPORTED,
    VENDOR,
    Control,
    get,
    put,
    socket_name,
)

log = logging.getLogger(__name__)
BURST = 256  # datagrams of one client in a row
BACKLOG = 20000  # answers kept for a client that does not read
OBSERVE_SECONDS = 0.05  # how often the model's links are looked at
SM_INFO_ANSWERED_BY_SM = smp.SM_INFO
TIMED_OUT = socket.htonl(110)


class MadServer:
    """Serves one fabric under a socket base name (what tools take from ``IBSIM_SOCKNAME``).

    ``configured``: begin as a subnet manager would leave the subnet; else ports are in INIT and tables empty, and
    no traffic flows until a manager comes. ``faults``: what is wrong with the performance agents.
    """

    def __init__(
        self, fabric: Fabric, base: str, configured: bool = True, faults: TelemetryFaults | None = None
    ) -> None:
        self.base = base
        self.datagrams = 0
        self._fabric = fabric
        self._faults = faults
        self.subnet = Subnet(fabric.plan)
        self._programming = Programming(self.subnet, fabric, self._trap)
        self._subnet_agent = smp.Agent(self.subnet, self._programming)
        self._congestion_agent = congestion.Agent(self._programming)
        self._pma = Pma(fabric.plan, fabric.read)
        self._clients: dict[int, Client] = {}
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._observer: asyncio.Task[None] | None = None
        self._flushing = False
        self._programming.start(fabric.read())
        self._routes: NDArray[np.int16] | None = None  # as last shown, while the model routes by itself
        if configured:
            self._routes = fabric.routes()
            preconfigure(self.subnet, self._routes)
        else:
            self._programming.all_routes()
            self._programming.flush()

    async def start(self) -> None:
        """Bind the control socket. Raises FabricdError when the name is taken."""
        self._loop = asyncio.get_running_loop()
        try:
            self._control.bind(socket_name(self.base, "ctl"))
        except OSError as error:
            raise FabricdError(f"management socket {self.base}: {error.strerror}") from None
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._on_control)
        self._observer = asyncio.create_task(self._observe())

    async def stop(self) -> None:
        """Let go of every socket."""
        if self._observer is not None:
            self._observer.cancel()
        for client in list(self._clients.values()):
            self._detach(client)
        if self._loop is not None:
            self._loop.remove_reader(self._control)
        self._control.close()

    def operate(self, row: int, action: str) -> None:
        """Enable, disable or reset a port out of band (UFM, a switch's command line). Its registers follow."""
        port = self.subnet.by_row[row]
        if action == "disable":
            self._programming.link_asked(port, DISABLED)
            return
        self._programming.link_asked(port, POLLING)
        if self._routes is not None:  # nobody else brings the link to ACTIVE
            self._activate(port)

    def _activate(self, port: Port) -> None:
        for end in (port, port.peer):
            if end is not None and end.state == INIT:
                end.state = ACTIVE

    async def _observe(self) -> None:
        tick = -1
        while True:
            counters = self._fabric.read()
            if counters.tick != tick:
                tick = counters.tick
                self._programming.observe(counters)
                self._pma.observe(counters)
                cleared = self._faults.cleared(counters.clock_ns * 1e-9) if self._faults is not None else None
                if cleared is not None:
                    self._pma.reset(cleared)
                self._follow_routes()
            await asyncio.sleep(OBSERVE_SECONDS)

    def _follow_routes(self) -> None:
        """While nobody programs the tables, they show the routes the model finds by itself."""
        if self._routes is None or self._fabric.managed:
            return
        for port in self.subnet.by_row:
            if port.state == INIT:
                port.state = ACTIVE
        routes = self._fabric.routes()
        if not np.array_equal(routes, self._routes):
            self._routes = routes
            write_routes(self.subnet, routes)

    # -- control channel -----------------------------------------------------------------------------------------

    def _on_control(self) -> None:
        while True:
            try:
                message, sender = self._control.recvfrom(4096)
            except BlockingIOError:
                return
            if len(message) != CONTROL.size:
                continue
            magic, identity, kind, length, data = CONTROL.unpack(message)
            if magic != MAGIC:
                continue
            try:
                answer = self._connect(data) if kind == Control.CONNECT else self._ask(identity, kind, data)
            except Refused as refused:
                log.warning("management client refused: %s", refused)
                kind, answer = Control.ERROR, b""
            try:
                self._control.sendto(CONTROL.pack(MAGIC, identity, kind, length, answer), sender)
            except OSError as error:
                log.debug("management client gone before its answer: %s", error.strerror)

    def _connect(self, data: bytes) -> bytes:
        pid, queue_pair, is_sm, raw_name = CLIENT.unpack_from(data)
        name = raw_name.split(b"\0")[0].decode("ascii", "replace")
        node = self.subnet.named(name)
        if node is None:
            raise Refused(f"no node {name!r}")
        for client in list(self._clients.values()):
            if client.pid == pid or not is_alive(client):
                self._detach(client)
        index = next(i for i in range(len(self._clients) + 1) if i not in self._clients)
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        address = socket_name(self.base, f"in{pid}")
        try:
            channel.bind(socket_name(self.base, f"out{index}"))
            channel.connect(address)
        except OSError as error:
            channel.close()
            raise Refused(f"client {pid}: {error.strerror}") from None
        channel.setblocking(False)
        client = Client(index, pid, queue_pair, node.first, bool(is_sm), channel, address, cuts_datagrams(pid))
        self._clients[index] = client
        if self._loop is not None:
            self._loop.add_reader(channel, self._on_datagrams, client)
        return CLIENT.pack(index, queue_pair, is_sm, self.subnet.identifier(node).encode())

    def _detach(self, client: Client) -> None:
        if self._clients.pop(client.index, None) is None:
            return
        if self._loop is not None:
            self._loop.remove_reader(client.socket)
            self._loop.remove_writer(client.socket)
        client.socket.close()
        if client.is_sm and not any(c.is_sm and c.port is client.port for c in self._clients.values()):
            client.port.set_sm(False)

    def _ask(self, identity: int, kind: int, data: bytes) -> bytes:
        client = self._clients.get(identity)
        if client is None:
            raise Refused(f"client {identity} is not connected")
        port = client.port
        if kind == Control.DISCONNECT:
            self._detach(client)
            return b""
        if kind == Control.GET_PORT:
            return PORT_STATE.pack(port.lid, port.state)
        if kind == Control.GET_VENDOR:
            info = port.node.node_info(port)
            return VENDOR.pack(get(info, 37, 3), get(info, 30, 2), get(info, 32, 4), smp.firmware(port.node))
        if kind == Control.GET_GID:
            return bytes(port.info[8:16]) + port.guid.to_bytes(8, "big")
        if kind == Control.GET_GUID:
            return port.guid.to_bytes(8, "big")
        if kind == Control.GET_NODEINFO:
            return bytes(port.node.node_info(port))
        if kind == Control.GET_PORTINFO:
            asked = port.node.ports.get(data[0], port)
            return bytes(asked.info)
        if kind == Control.SET_ISSM:
            client.is_sm = any(data[:4])
            port.set_sm(client.is_sm)
            return b""
        if kind == Control.GET_PKEYS:
            return bytes(port.pkeys[:64])
        raise Refused(f"unknown message type {kind}")

    # -- management datagrams ------------------------------------------------------------------------------------

    def _on_datagrams(self, client: Client) -> None:
        receive = client.socket.recv
        for _ in range(BURST):
            try:
                message = receive(512)
            except BlockingIOError:
                break
            except OSError:
                self._detach(client)
                return
            if len(message) == DATAGRAM_SIZE:
                self.datagrams += 1
                self._route(client, message)
        if not self._flushing and self._loop is not None:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._programming.flush()

    def _route(self, client: Client, message: bytes) -> None:
        dlid, slid, dqp, sqp, _, _ = ENVELOPE.unpack_from(message)
        mad = bytearray(message[ENVELOPE_SIZE:])
        management_class, method = mad[1], mad[3]
        if method == TRAP_REPRESS:
            return
        port = client.port
        response = bool(method & 0x80)
        directed = management_class == SUBNET_DIRECTED
        if not directed and slid == 0:
            slid = socket.htons(port.lid)
        back: bytes | None = None
        target: Port | None
        if not directed:
            target = self.subnet.by_lid(port, socket.ntohs(dlid & 0xFFFF))
        elif response:
            target = self.subnet.return_path(port, mad, mad[7])
        else:
            found = self.subnet.by_path(port, mad, mad[7])
            target, back = found if found is not None else (None, None)
        if target is None:
            self._reply(client, ENVELOPE.pack(dlid, slid, dqp, sqp, TIMED_OUT, LENGTH) + mad)
            return
        if management_class == PERFORMANCE and self._faults is not None and self._faults.unanswered(target.node.plan):
            return
        answer = None if response else self._answer(target, management_class, method, mad, not client.cut)
        if answer is None:
            self._forward(client, target, (dlid, slid, dqp, sqp), mad, back, response)
            return
        status, data = answer
        mad[3] = GET_RESPONSE
        put(mad, 4, 2, status | (DIRECTION if directed else 0))
        if data is not None:
            mad[DATA : DATA + len(data)] = data
        if back is not None:
            mad[PATH_BACK : PATH_BACK + 64] = back
        self._reply(client, ENVELOPE.pack(slid, dlid, sqp, dqp, 0, LENGTH) + mad)

    def _answer(
        self, port: Port, management_class: int, method: int, mad: bytearray, wide: bool
    ) -> tuple[int, bytes | bytearray | None] | None:
        """The agent's answer, or None when the MAD is for a program attached there."""
        attribute = mad[16] << 8 | mad[17]
        data = bytes(mad[DATA:])
        node = port.node
        if management_class == PERFORMANCE:
            return self._pma.answer(method, attribute, data, node.plan, port.number, wide)
        if management_class in (SUBNET_LID, SUBNET_DIRECTED):
            if attribute == SM_INFO_ANSWERED_BY_SM:
                return None if self._manager_at(port) is not None else (UNSUPPORTED, None)
            return self._subnet_agent.answer(port, method, attribute, get(mad, 20, 4), data)
        if management_class == CONGESTION:
            return self._congestion_agent.answer(node, method, attribute, get(mad, 20, 4), data)
        return None

    def _manager_at(self, port: Port) -> Client | None:
        return next((c for c in self._clients.values() if c.is_sm and c.port is port), None)

    def _forward(
        self,
        client: Client,
        target: Port,
        envelope: tuple[int, int, int, int],
        mad: bytearray,
        back: bytes | None,
        response: bool,
    ) -> None:
        """Hand a MAD to the program attached at ``target``: requests to the manager there, responses to who asked."""
        receiver: Client | None
        if response:
            receiver = self._clients.get(get(mad, 8, 2))
            if receiver is None or receiver.port is not target:
                receiver = next((c for c in self._clients.values() if c.port is target), None)
        else:
            put(mad, 8, 2, client.index)  # the library leaves these bits to the simulator to find the way back
            receiver = self._manager_at(target)
        if receiver is None:
            self._reply(client, ENVELOPE.pack(*envelope, TIMED_OUT, LENGTH) + mad)
            return
        if back is not None:
            mad[PATH_BACK : PATH_BACK + 64] = back
        self._reply(receiver, ENVELOPE.pack(*envelope, 0, LENGTH) + mad)

    def _trap(self, port: Port, mad: bytes) -> None:
        """Send a trap to the manager that ``port`` was told of."""
        target = self.subnet.by_lid(port, port.sm_lid)
        receiver = self._manager_at(target) if target is not None else None
        if receiver is not None:
            lids = socket.htons(port.sm_lid), socket.htons(port.lid)
            self._reply(receiver, ENVELOPE.pack(*lids, 0, 0, 0, LENGTH) + mad)

    def _reply(self, client: Client, message: bytes) -> None:
        if client.waiting:
            if len(client.waiting) < BACKLOG:
                client.waiting.append(message)
            return
        try:
            client.socket.send(message)
        except BlockingIOError:
            client.waiting.append(message)
            if self._loop is not None:
                self._loop.add_writer(client.socket, self._drain, client)
        except OSError:
            self._detach(client)

    def _drain(self, client: Client) -> None:
        while client.waiting:
            try:
                client.socket.send(client.waiting[0])
            except BlockingIOError:
                return
            except OSError:
                self._detach(client)
                return
            client.waiting.popleft()
        if self._loop is not None:
            self._loop.remove_writer(client.socket)
