"""The objects a twin's switch has, by MIB. Numbers after the vendors' published MIBs."""

from __future__ import annotations

from collections.abc import Callable

from fabricd.twin.face import Counters, Fabric, Marking, PlanNode
from fabricd.twin.snmp.agentx import Error, Oid, Type, Value
from fabricd.twin.snmp.table import Table, Writable
from fabricd.twin.wiring import interface

INTERFACES: Oid = (1, 3, 6, 1, 2, 1, 2)
IF_X_TABLE: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1)
DOT3_PAUSE: Oid = (1, 3, 6, 1, 2, 1, 10, 7, 10)
CISCO_PFC: Oid = (1, 3, 6, 1, 4, 1, 9, 9, 813, 1)
ONYX_QOS: Oid = (1, 3, 6, 1, 4, 1, 33049, 15)
ARISTA_ECN: Oid = (1, 3, 6, 1, 4, 1, 30065, 3, 13, 1, 8)
LLDP: Oid = (1, 0, 8802, 1, 1, 2, 1)
DCBX_ADMIN: Oid = (1, 3, 111, 2, 802, 1, 1, 13, 1, 5, 32962, 5, 1, 4)
FASTPATH: Oid = (1, 3, 6, 1, 4, 1, 674, 10895, 5000, 2, 6132, 1, 1)
FASTPATH_QOS, FASTPATH_PFC = (*FASTPATH, 3, 3, 2), (*FASTPATH, 47)

COMMON = (INTERFACES, IF_X_TABLE)
ETHERNET = (DOT3_PAUSE, CISCO_PFC, ONYX_QOS, ARISTA_ECN, LLDP, DCBX_ADMIN, FASTPATH_QOS, FASTPATH_PFC)
PRIORITIES = 8
UP, DOWN = 1, 2
TRUE, FALSE = 1, 2
ETHERNET_TYPE, INFINIBAND_TYPE = 6, 199
GAUGE_MAX = 0xFFFFFFFF
STRICT, ETS = 0, 2
WEIGHTED, WRED_MANAGED = 2, 2
NO_DROP, DROP = 2, 1
NS_PER_US, NS_PER_MS = 1000, 1_000_000


class SwitchObjects:
    """Builds the table of one switch. Interfaces are numbered as the ports (ifIndex = port)."""

    def __init__(self, fabric: Fabric, switch: PlanNode) -> None:
        self._fabric, self._switch = fabric, switch
        self._plan = fabric.plan
        self._ethernet = self._plan.technology == "ethernet"
        self._enabled = dict.fromkeys(range(1, switch.ports + 1), True)
        self.table = Table()
        for port in range(1, switch.ports + 1):
            self._interface(port)
            if self._ethernet:
                self._pause(port)
                self._marks(port)
                self._neighbour(port)
                self._dcbx(port)
                self._fastpath(port)
        self.table.constant((*INTERFACES, 1, 0), Type.INTEGER, switch.ports)
        if self._ethernet:
            self._identity()
        self.table.freeze()

    @property
    def subtrees(self) -> tuple[Oid, ...]:
        return COMMON + ETHERNET if self._ethernet else COMMON

    def _row(self, port: int) -> int:
        return self._plan.row(self._switch, port)

    def _name(self, port: int) -> str:
        return interface(self._switch, port) if self._ethernet else f"ib1/{port}"

    # -- interfaces ----------------------------------------------------------------------------------------------

    def _interface(self, port: int) -> None:
        row, table = self._row(port), self.table
        entry = (*INTERFACES, 2, 1)
        megabits = round(float(self._plan.row_gbps[row]) * 1000)

        def total(name: str) -> Callable[[Counters], Value]:
            return lambda counters: int(getattr(counters, name)[row].sum())

        def single(name: str) -> Callable[[Counters], Value]:
            return lambda counters: int(getattr(counters, name)[row])

        names = self._name(port).encode()
        table.constant((*entry, 1, port), Type.INTEGER, port)
        table.constant((*entry, 2, port), Type.OCTETS, names)
        table.constant((*entry, 3, port), Type.INTEGER, ETHERNET_TYPE if self._ethernet else INFINIBAND_TYPE)
        table.constant((*entry, 4, port), Type.INTEGER, 9216 if self._ethernet else 4096)
        table.constant((*entry, 5, port), Type.GAUGE32, min(megabits * 1_000_000, GAUGE_MAX))
        table.constant((*entry, 6, port), Type.OCTETS, mac(self._switch.guid + port))
        table.add((*entry, 7, port), Type.INTEGER, lambda _: UP if self._enabled[port] else DOWN, self._admin(port))
        table.add((*entry, 8, port), Type.INTEGER, lambda counters: UP if counters.up[row] else DOWN)
        for column, name in ((10, "rx_bytes"), (11, "rx_packets"), (16, "tx_bytes"), (17, "tx_packets"), (19, "drops")):
            table.add((*entry, column, port), Type.COUNTER32, total(name))
        table.constant((*entry, 13, port), Type.COUNTER32, 0)
        table.add((*entry, 14, port), Type.COUNTER32, single("rcv_errors"))
        table.constant((*entry, 20, port), Type.COUNTER32, 0)
        entry = (*IF_X_TABLE, 1)
        table.constant((*entry, 1, port), Type.OCTETS, names)
        for column, name in ((6, "rx_bytes"), (7, "rx_packets"), (10, "tx_bytes"), (11, "tx_packets")):
            table.add((*entry, column, port), Type.COUNTER64, total(name))
        table.add((*entry, 15, port), Type.GAUGE32, lambda counters: round(float(counters.gbps[row]) * 1000))
        table.constant((*entry, 18, port), Type.OCTETS, b"")

    def _admin(self, port: int) -> Writable:
        def write(values: dict[tuple[int, ...], int]) -> None:
            self._enabled[port] = values[()] == UP
            self._fabric.set_enabled(self._row(port), self._enabled[port])

        return self._single("admin", port, one_of(UP, DOWN), lambda: UP if self._enabled[port] else DOWN, write)

    # -- pause and marks -----------------------------------------------------------------------------------------

    def _lane(self, port: int, name: str, priority: int, divisor: int = 1) -> Callable[[Counters], Value]:
        row = self._row(port)
        if priority >= self._plan.lanes:
            return lambda counters: 0
        return lambda counters: int(getattr(counters, name)[row, priority]) // divisor

    def _lanes(self, port: int, name: str, divisor: int = 1) -> Callable[[Counters], Value]:
        row = self._row(port)
        return lambda counters: int(getattr(counters, name)[row].sum()) // divisor

    def _pause(self, port: int) -> None:
        add = self.table.add
        self.table.constant((*DOT3_PAUSE, 1, 2, port), Type.INTEGER, 1)  # 802.3x is off: priorities pause
        for column in (3, 4):
            self.table.constant((*DOT3_PAUSE, 1, column, port), Type.COUNTER32, 0)
        add((*CISCO_PFC, 1, 1, 1, port), Type.COUNTER64, self._lanes(port, "pause_tx_frames"))
        add((*CISCO_PFC, 1, 1, 2, port), Type.COUNTER64, self._lanes(port, "pause_rx_frames"))
        for column, name, divisor in ((3, "pause_rx_frames", 1), (4, "pause_rx_ns", NS_PER_MS),
                                      (5, "pause_tx_frames", 1), (6, "pause_tx_ns", NS_PER_MS)):  # fmt: skip
            add((*ONYX_QOS, 2, 1, column, port), Type.COUNTER64, self._lanes(port, name, divisor))
        row = self._row(port)
        add((*ONYX_QOS, 5, 1, 5, port), Type.COUNTER64, lambda counters: int(counters.port_wait_ns[row]) // NS_PER_US)
        for priority in range(PRIORITIES):
            sent = self._lane(port, "pause_tx_frames", priority)
            received = self._lane(port, "pause_rx_frames", priority)
            add((*CISCO_PFC, 2, 1, 2, port, priority), Type.COUNTER64, sent)
            add((*CISCO_PFC, 2, 1, 3, port, priority), Type.COUNTER64, received)
            add((*ONYX_QOS, 1, 1, 8, port, priority), Type.COUNTER64, received)
            lasted = self._lane(port, "pause_rx_ns", priority, NS_PER_MS)
            add((*ONYX_QOS, 1, 1, 9, port, priority), Type.COUNTER64, lasted)
            add((*ONYX_QOS, 1, 1, 15, port, priority), Type.COUNTER64, sent)
            depth = self._lane(port, "queue_bytes", priority)
            add((*ONYX_QOS, 4, 1, 6, port, priority), Type.COUNTER64, depth)
            add((*ONYX_QOS, 4, 1, 8, port, priority), Type.COUNTER64, self._lane(port, "drops", priority))
            add((*FASTPATH_PFC, 1, 3, 1, 1, port, priority), Type.COUNTER32, sent)
            add((*FASTPATH_PFC, 1, 3, 1, 2, port, priority), Type.COUNTER32, received)

    def _marks(self, port: int) -> None:
        for queue in range(PRIORITIES):
            self.table.add((*ARISTA_ECN, 1, 2, port, queue), Type.COUNTER64, self._lane(port, "marked", queue))

    # -- neighbours ----------------------------------------------------------------------------------------------

    def _identity(self) -> None:
        local = (*LLDP, 3)
        self.table.constant((*local, 1, 0), Type.INTEGER, 4)  # chassis id is a MAC address
        self.table.constant((*local, 2, 0), Type.OCTETS, mac(self._switch.guid))
        self.table.constant((*local, 3, 0), Type.OCTETS, self._switch.name.encode())
        for port in range(1, self._switch.ports + 1):
            self.table.constant((*local, 7, 1, 2, port), Type.INTEGER, 5)  # port id is an interface name
            self.table.constant((*local, 7, 1, 3, port), Type.OCTETS, self._name(port).encode())
            self.table.constant((*local, 7, 1, 4, port), Type.OCTETS, self._name(port).encode())

    def _neighbour(self, port: int) -> None:
        peer = int(self._plan.row_peer[self._row(port)])
        if peer < 0:
            return
        node, number = self._plan.node_of(peer), int(self._plan.row_port[peer])
        switch = node.kind == "switch"
        name = interface(node, number)
        remote = (*LLDP, 4, 1, 1)
        values: tuple[tuple[int, Type, Value], ...] = (
            (4, Type.INTEGER, 4),
            (5, Type.OCTETS, mac(node.guid)),
            (6, Type.INTEGER, 5),
            (7, Type.OCTETS, name.encode()),
            (8, Type.OCTETS, name.encode()),
            (9, Type.OCTETS, (node.name if switch else node.host).encode()),
        )
        for column, kind, value in values:
            self.table.constant((*remote, column, 0, port, 1), kind, value)

    # -- writable QoS --------------------------------------------------------------------------------------------

    def _single(
        self,
        name: str,
        number: int,
        check: Callable[[Value], Error],
        current: Callable[[], int],
        write: Callable[[dict[tuple[int, ...], int]], None],
    ) -> Writable:
        """An object that stands alone."""
        return Writable((name, number), (), check, lambda values: Error.NONE, write, lambda: {(): current()})

    def _dcbx(self, port: int) -> None:
        add, admin = self.table.add, DCBX_ADMIN
        self.table.constant((*admin, 1, 1, 1, 3, port), Type.INTEGER, FALSE)  # ETS and PFC willing: no
        self.table.constant((*admin, 3, 1, 1, 1, port), Type.INTEGER, FALSE)
        self.table.constant((*admin, 3, 1, 1, 3, port), Type.GAUGE32, PRIORITIES)
        for priority in range(PRIORITIES):
            pfc = self._pfc(port, priority, TRUE, FALSE)
            add((*admin, 3, 2, 1, 2, port, priority), Type.INTEGER, reading(pfc), pfc)
            self.table.constant((*admin, 1, 2, 1, 2, port, priority), Type.GAUGE32, priority)
            share = self._share(port, priority, exact=True)
            add((*admin, 1, 3, 1, 2, port, priority), Type.GAUGE32, reading(share), share)
            self.table.constant((*admin, 1, 4, 1, 2, port, priority), Type.INTEGER, ETS)

    def _pfc(self, port: int, priority: int, on: int, off: int) -> Writable:
        row = self._row(port)

        def current() -> int:
            return on if priority < self._plan.lanes and self._fabric.pfc(row, priority) else off

        def write(values: dict[tuple[int, ...], int]) -> None:
            self._fabric.set_pfc(row, priority, values[()] == on)

        allowed = one_of(on, off) if priority < self._plan.lanes else one_of(off)
        return self._single(f"pfc{on}", port << 8 | priority, allowed, current, write)

    def _share(self, port: int, priority: int, exact: bool) -> Writable:
        """Bandwidth shares of a port's classes: they are judged together (``exact``: they must add up to 100)."""
        row = self._row(port)

        def settle(values: dict[tuple[int, ...], int]) -> Error:
            total = sum(values.values())
            return Error.NONE if total == 100 or (total < 100 and not exact) else Error.INCONSISTENT

        def write(values: dict[tuple[int, ...], int]) -> None:
            self._fabric.set_shares(row, tuple(values[(p,)] for p in range(PRIORITIES)))

        def current() -> dict[tuple[int, ...], int]:
            return {(p,): share for p, share in enumerate(self._fabric.shares(row))}

        top = 100 if priority < self._plan.lanes else 0
        return Writable((f"shares{exact}", port), (priority,), between(0, top), settle, write, current)

    def _fastpath(self, port: int) -> None:
        add, qos = self.table.add, FASTPATH_QOS
        self.table.constant((*FASTPATH_PFC, 1, 1, 1, 2, port), Type.INTEGER, 1)  # PFC mode: enabled
        for priority in range(PRIORITIES):
            pfc = self._pfc(port, priority, NO_DROP, DROP)
            add((*FASTPATH_PFC, 1, 2, 1, 2, port, priority), Type.INTEGER, reading(pfc), pfc)
            share = self._share(port, priority, exact=False)
            self.table.constant((*qos, 4, 1, 2, port, priority), Type.INTEGER, WEIGHTED)
            add((*qos, 4, 1, 3, port, priority), Type.INTEGER, reading(share), share)
            self.table.constant((*qos, 4, 1, 4, port, priority), Type.INTEGER, 100)
            self.table.constant((*qos, 4, 1, 5, port, priority), Type.INTEGER, WRED_MANAGED)
            for column in (7, 8, 9):
                marks = self._wred(port, priority, column)
                add((*qos, 5, 1, column, port, priority, 1), Type.INTEGER, reading(marks), marks)

    def _wred(self, port: int, priority: int, column: int) -> Writable:
        """Marking of one queue: thresholds in percent of the switch's packet memory, probability in percent."""
        row, memory = self._row(port), self._fabric.buffer_bytes

        def current() -> dict[tuple[int, ...], int]:
            if priority >= self._plan.lanes:
                return {(7,): 0, (8,): 0, (9,): 0}
            now = self._fabric.marking(row, priority)
            return {
                (7,): round(100 * now.kmin / memory),
                (8,): round(100 * now.kmax / memory),
                (9,): round(100 * now.pmax) if now.enabled else 0,
            }

        def settle(values: dict[tuple[int, ...], int]) -> Error:
            return Error.NONE if values[(7,)] <= values[(8,)] else Error.INCONSISTENT

        def write(values: dict[tuple[int, ...], int]) -> None:
            low, high, top = (values[(key,)] / 100 for key in (7, 8, 9))
            marking = Marking(top > 0, round(low * memory), round(high * memory), top)
            self._fabric.set_marking(row, priority, marking)

        top = 100 if priority < self._plan.lanes else 0
        return Writable(("wred", port << 8 | priority), (column,), between(0, top), settle, write, current)


def reading(writable: Writable) -> Callable[[Counters], Value]:
    """What a writable object shows: the lever's present position."""
    return lambda counters: writable.current()[writable.key]


def one_of(*allowed: int) -> Callable[[Value], Error]:
    return lambda value: Error.NONE if value in allowed else Error.WRONG_VALUE


def between(low: int, high: int) -> Callable[[Value], Error]:
    return lambda value: Error.NONE if isinstance(value, int) and low <= value <= high else Error.WRONG_VALUE


def mac(guid: int) -> bytes:
    """A MAC address that belongs to a GUID."""
    raw = guid.to_bytes(8, "big")
    return raw[:3] + raw[5:]
