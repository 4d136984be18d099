"""The collector: sweeps switch ports in a process of its own, publishes the frames, answers typed Gets, shares work by leases."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabricd import __version__, logs
from fabricd.config.root import Config
from fabricd.daemons.get_server import GetServer
from fabricd.daemons.identity import node_id, run_id
from fabricd.daemons.lifecycle import run_daemon
from fabricd.daemons.sweep_process import Fabric, Shards, Stop, Swept, Trouble, run
from fabricd.daemons.sweeping import limits_of, open_device
from fabricd.errors import FabricdError
from fabricd.ib.keys import read_keys
from fabricd.sources.pma_frames import FrameMaker
from fabricd.sources.pma_reading import PortTable
from fabricd.transport.leases import FileLeases, Leases, MqttLeases, NoLeases
from fabricd.transport.publisher import Publisher

log = logging.getLogger(__name__)

STATUS_S = 10.0
_HEADLINE = (
    "ports",
    "answered",
    "silent_count",
    "slowed",
    "shards",
    "other_sweepers",
    "trouble",
)  # told when they change
NAMED_SILENT = 50  # in the status document
_FIRST_SWEEP_S = 20.0  # ready is said after so long even if the fabric does not answer yet


class Collector:
    """One collector. ``status`` is what it publishes of itself."""

    def __init__(self, config: Config) -> None:
        self.config = config
        settings = config.collector
        self.node = settings.node or f"sweep-{node_id()}"
        self.boot = run_id()
        self._table: PortTable | None = None
        self._maker: FrameMaker | None = None
        self._last: Swept | None = None
        self._trouble = ""
        self._totals = {"sweeps": 0, "resets": 0, "qp1_dropped": 0, "late": 0, "timeouts": 0, "retried": 0}
        self._first = asyncio.Event()
        self._leases = self._make_leases()
        self._rivals: dict[int, str] = {}
        self._gets = GetServer(
            lambda: open_device(settings),
            limits_of(settings),
            read_keys(settings.m_key_file),
            read_keys(settings.pm_key_file),
        )

    def _make_leases(self) -> Leases:
        settings = self.config.collector
        if settings.lease == "none":
            return NoLeases(settings.shards)
        if settings.lease == "file":
            return FileLeases(Path(settings.lease_dir), self.node, settings.shards)
        return MqttLeases(
            self.config.broker, self.config.fabric.name, self.node, settings.shards, settings.lease_seconds
        )

    async def run(self, ready: Callable[[str], None]) -> None:
        """Until cancelled. Raises FabricdError when the spool, the socket or the lease directory cannot be used."""
        settings = self.config.collector
        publisher = Publisher(
            self.config.broker, self.config.fabric.name, self.node, Path(settings.spool), boot=self.boot
        )
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        child = context.Process(target=run, args=(self.config, theirs), name="fabricd-sweep", daemon=True)
        child.start()
        theirs.close()

        def changed(held: frozenset[int]) -> None:
            log.info("sweeping %d of %d shards", len(held), settings.shards)
            ours.send(Shards(held, settings.shards))

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(publisher.run())
                group.create_task(self._leases.run(changed))
                group.create_task(self._gets.serve(settings.socket))
                group.create_task(self._receive(ours, publisher))
                group.create_task(self._report(publisher))
                group.create_task(self._say_ready(ready))
        finally:
            try:
                ours.send(Stop())
            except OSError:
                log.debug("the sweeping process is gone already")
            await asyncio.to_thread(child.join, 2.0)
            if child.is_alive():
                child.kill()
            ours.close()

    async def _say_ready(self, ready: Callable[[str], None]) -> None:
        try:
            await asyncio.wait_for(self._first.wait(), _FIRST_SWEEP_S)
        except TimeoutError:
            pass
        ready(self.summary())
        log.info("%s", self.summary())

    async def _receive(self, pipe: Any, publisher: Publisher) -> None:
        """Messages of the sweeping process; its end is ours."""
        while True:
            try:
                message = await asyncio.to_thread(pipe.recv)
            except (EOFError, OSError):
                raise FabricdError("the sweeping process ended") from None
            if isinstance(message, Fabric):
                self._take_fabric(message)
            elif isinstance(message, Swept):
                self._take_sweep(message, publisher)
            elif isinstance(message, Trouble):
                if message.text != self._trouble:
                    log.warning("%s", message.text)
                self._trouble = message.text
                self._first.set()

    def _take_fabric(self, fabric: Fabric) -> None:
        settings = self.config.collector
        if self._maker is None:
            self._maker = FrameMaker(
                self.node, self.config.fabric.name, self.boot, rows_per_frame=settings.rows_per_frame
            )
        self._maker.ticks = fabric.ticks
        self._table = fabric.table
        log.info("%d ports of %d switches", len(fabric.table), len(fabric.table.targets))

    def _take_sweep(self, swept: Swept, publisher: Publisher) -> None:
        if self._maker is None or self._table is None:
            return
        self._trouble = ""
        sweep = replace(swept.sweep, table=self._table)
        for schema in self._maker.schemas(self._table):
            publisher.publish_schema(schema)
        for fresh, sequence, frame in self._maker.frames(sweep):
            if fresh is not None:
                publisher.publish_schema(fresh)
            publisher.publish_frame(sequence, frame)
        self._totals["sweeps"] += 1
        self._totals["qp1_dropped"] += swept.dropped
        for name in ("resets", "late", "timeouts", "retried"):
            self._totals[name] += sweep.counts[name]
        if self._last is None or self._last.slowed != swept.slowed:
            if swept.slowed:
                log.warning("devices drop management datagrams: now every %g s, fewer in flight", swept.interval)
            elif self._last is not None:
                log.info("back to every %g s", swept.interval)
        self._last = swept
        self._first.set()

    async def _report(self, publisher: Publisher) -> None:
        """The retained status, and a word when another sweeper appears."""
        due, told = 0.0, None
        while True:
            rivals = self._leases.others
            for holder in sorted(set(rivals.values()) - set(self._rivals.values())):
                log.warning("%s sweeps this fabric too: its shards are left to it", holder)
            self._rivals = rivals
            status = self.status()
            headline = {key: status[key] for key in _HEADLINE}
            if headline != told or time.monotonic() >= due:
                publisher.publish_status(status)
                due, told = time.monotonic() + STATUS_S, headline
            await asyncio.sleep(1.0)

    def status(self) -> dict[str, Any]:
        swept = self._last
        rivals = sorted(set(self._leases.others.values()))
        return {
            "version": __version__,
            "kind": "collector",
            "interval": swept.interval if swept is not None else self.config.collector.interval,
            "ports": len(self._table) if self._table is not None else 0,
            "switches": len(self._table.targets) if self._table is not None else 0,
            "answered": swept.sweep.answered if swept is not None else 0,
            "seconds": round(swept.sweep.seconds, 4) if swept is not None else None,
            "silent": swept.silent[:NAMED_SILENT] if swept is not None else [],
            "silent_count": len(swept.silent) if swept is not None else 0,
            "slowed": swept.slowed if swept is not None else 0,
            "shards": sorted(self._leases.held),
            "shards_of": self.config.collector.shards,
            "other_sweepers": rivals,
            "trouble": self._trouble,
            "totals": dict(self._totals),
            "gets": dict(self._gets.counts),
            "rejects": {"counts": dict(swept.rejects) if swept is not None else {}},
        }

    def summary(self) -> str:
        """One line for people."""
        if self._trouble:
            return f"collector {self.node}: {self._trouble}"
        if self._last is None:
            others = ", ".join(sorted(set(self._leases.others.values())))
            return f"collector {self.node}: " + (f"standing by, {others} sweeps" if others else "no sweep yet")
        return (
            f"collector {self.node}: {self._last.sweep.answered} ports each {self._last.interval:g} s, "
            f"a sweep takes {self._last.sweep.seconds:.3f} s"
        )


def run_collector(config: Config) -> int:
    """The daemon until a signal ends it. Returns the exit status; raises FabricdError."""
    logs.set_up(config.fabric.log_format, config.fabric.log_level)

    async def main() -> None:
        await run_daemon(Collector(config).run)

    try:
        asyncio.run(main())
    except* FabricdError as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return 0
