"""The sweeping process: it alone runs the hot loop, since any other Python beside it in one process would slow it several times.

It talks to the collector over a pipe. To it: ``Shards`` (what to sweep), ``Stop``. From it: ``Fabric`` (the port table, when it
changed), ``Swept`` (one sweep as arrays), ``Trouble``.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection

from fabricd import logs
from fabricd.config.root import Config
from fabricd.daemons.identity import digest64
from fabricd.daemons.sweeping import find_targets, limits_of, make_sweeper, open_transport
from fabricd.daemons.topology_keeper import TopologyKeeper
from fabricd.errors import FabricdError
from fabricd.ib.limits import TidSpace
from fabricd.ib.mad import CLASS_PMA, GMP_DATA_AT, Pma, pma_get
from fabricd.ib.scheduler import Request, Scheduler
from fabricd.ib.transport import DeviceGone, Transport, gmp_address
from fabricd.model.topology import PortRef, Topology
from fabricd.sources.pma_pace import Pace
from fabricd.sources.pma_reading import PortTable, Sweep
from fabricd.sources.pma_targets import Target
from fabricd.sources.sweeper import Sweeper

_QP1_AT = GMP_DATA_AT + 20
_QP1_DECLARED = 1 << 15
_REOPEN_FIRST_S, _REOPEN_MOST_S = 1.0, 30.0


@dataclass(frozen=True, slots=True)
class Shards:
    """Sweep the switches of these of so many shards; none: pause."""

    held: frozenset[int]
    of: int


@dataclass(frozen=True, slots=True)
class Stop:
    pass


@dataclass(frozen=True, slots=True)
class Fabric:
    """``ticks``: bytes of link time per tick of PortXmitWait, by (GUID, port), where known."""

    table: PortTable
    ticks: dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Swept:
    """``sweep.table`` is empty: it is that of the last ``Fabric``. ``silent``: names of targets without an answer."""

    sweep: Sweep
    silent: list[str]
    rejects: Counter[str]
    dropped: int
    slowed: int
    interval: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """Nothing can be swept just now."""

    text: str


def shard_of(guid: int, shards: int) -> int:
    """Which shard a switch belongs to: the same for every collector."""
    return digest64("shard", guid) % shards


def run(config: Config, pipe: Connection) -> None:
    """The body of the process; returns after ``Stop`` or when the collector is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the collector decides when this ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    try:
        _Loop(config, pipe).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Stopped(Exception):
    pass


class _Loop:
    def __init__(self, config: Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe
        self._shards = Shards(frozenset(), 1)
        self._changed = False

    def run(self) -> None:
        pause = _REOPEN_FIRST_S
        while True:
            began = time.monotonic()
            try:
                self._session()
            except _Stopped:
                return
            except FabricdError as error:
                self._pipe.send(Trouble(str(error)))
            if time.monotonic() - began > 2 * _REOPEN_MOST_S:
                pause = _REOPEN_FIRST_S
            try:
                self._wait(pause)
            except _Stopped:
                return
            pause = min(pause * 2, _REOPEN_MOST_S)

    def _wait(self, seconds: float) -> None:
        """Sleep, but take messages. Raises _Stopped."""
        until = time.monotonic() + seconds
        while self._pipe.poll(max(0.0, until - time.monotonic())):
            message = self._pipe.recv()
            if isinstance(message, Stop):
                raise _Stopped
            if isinstance(message, Shards):
                self._shards, self._changed = message, True
                return

    def _session(self) -> None:
        """With one open device, until it goes away. Raises FabricdError, _Stopped."""
        settings = self._config.collector
        while not self._shards.held:
            self._wait(60.0)
        transport = open_transport(settings)
        try:
            self._sweeps(transport)
        finally:
            if transport is not None:
                transport.close()

    def _sweeps(self, transport: Transport | None) -> None:
        settings = self._config.collector
        tids = TidSpace()
        keeper = TopologyKeeper(self._config, transport, tids)
        topology = keeper.look()
        sweeper = make_sweeper(settings, transport, self._mine(topology), tids)
        own = _OwnPort(transport, topology, keeper.here, tids)
        pace = Pace(limits_of(settings), settings.interval)
        table: PortTable | None = None
        while True:
            if self._changed:
                self._changed = False
                sweeper.set_targets(self._mine(topology))
            if not self._shards.held:
                self._wait(60.0)
                continue
            sweep = sweeper.sweep()
            if sweep.table is not table:
                table = sweep.table
                self._pipe.send(Fabric(table, _ticks(sweeper, table)))
            dropped = sweep.qp1_dropped + own.dropped()
            if pace.after_sweep(dropped):
                sweeper.set_limits(pace.limits)
            self._tell(sweep, sweeper, dropped, pace)
            keeper.after_sweep(sweep)
            if keeper.due():
                topology = self._look_again(keeper, topology)
                sweeper.set_targets(self._mine(topology))
            self._wait(_until_next(pace.interval))

    def _mine(self, topology: Topology) -> list[Target]:
        targets, _ = find_targets(self._config.collector, topology)
        shards = self._shards
        return [target for target in targets if shard_of(target.guid, shards.of) in shards.held]

    def _look_again(self, keeper: TopologyKeeper, old: Topology) -> Topology:
        """The fabric as it is now; as it was when it cannot be seen."""
        try:
            return keeper.look()
        except DeviceGone:
            raise
        except FabricdError as error:
            self._pipe.send(Trouble(str(error)))
            return old

    def _tell(self, sweep: Sweep, sweeper: Sweeper, dropped: int, pace: Pace) -> None:
        silent = [target.name or hex(target.guid) for target in sweeper.silent]
        rejects = sweeper.rejects.counts + sweep.rejects.counts
        light = replace(sweep, table=PortTable.empty())
        self._pipe.send(Swept(light, silent, rejects, dropped, pace.steps, pace.interval))


def _until_next(interval: float) -> float:
    """Seconds to the next multiple of the interval on the wall clock, so that sweeps fall together with the agents' readings."""
    now = time.time()
    return interval - now % interval


def _ticks(sweeper: Sweeper, table: PortTable) -> dict[tuple[int, int], int]:
    found = {}
    for target in table.targets:
        for port in target.ports:
            tick = sweeper.wait_tick_bytes(target, port)
            if tick is not None:
                found[target.guid, port] = tick
    return found


class _OwnPort:
    """Management datagrams that our own port dropped."""

    def __init__(self, transport: Transport | None, topology: Topology, here: PortRef | None, tids: TidSpace) -> None:
        self._last: int | None = None
        self._request: Request | None = None
        node = topology.nodes.get(here[0]) if here is not None else None
        if transport is None or here is None or node is None or here[1] not in node.lids:
            return
        self._scheduler = Scheduler(transport, tids=tids)
        lid = node.lids[here[1]]
        ask = partial(Request, address=gmp_address(lid, CLASS_PMA), destination=lid)
        info = self._scheduler.get(ask(pma_get(Pma.CLASS_PORT_INFO, 0)))
        if info.ok and int.from_bytes(info.data[2:4], "big") & _QP1_DECLARED:
            self._request = ask(pma_get(Pma.PORT_COUNTERS, here[1]))

    def dropped(self) -> int:
        """Since the last call; 0 where the port does not tell."""
        if self._request is None:
            return 0
        answer = self._scheduler.get(self._request)
        self._scheduler.forgive()
        if not answer.ok or answer.mad is None:
            return 0
        value = int.from_bytes(answer.mad[_QP1_AT : _QP1_AT + 2], "big")
        grown = max(0, value - self._last) if self._last is not None else 0
        self._last = value
        return grown
