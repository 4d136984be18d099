"""The node agent: a schedule aligned to the wall clock, one reading an interval, frames to the publisher. It writes to no device."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fabricd import __version__, logs
from fabricd.config.agent import AgentConfig
from fabricd.config.load import load_config
from fabricd.config.root import Config
from fabricd.daemons.agent_reader import NodeReader, Stream
from fabricd.daemons.agent_steps import LONGEST, SHORTEST, StepSampler
from fabricd.daemons.identity import node_id, run_id
from fabricd.daemons.lifecycle import run_daemon
from fabricd.errors import FabricdError, UsageError
from fabricd.model.frame import Schema, encode_frame
from fabricd.model.ident import format_guid, printable
from fabricd.model.rejects import Rejects
from fabricd.transport.publisher import Publisher

if TYPE_CHECKING:
    from fabricd.daemons.agent_metrics import AgentMetrics

log = logging.getLogger(__name__)

RECENT_REJECTS = 20  # in the status document


class Schedule:
    """Due times at multiples of the interval on the wall clock, so that all nodes read together.

    Missed ones are skipped and counted, not made up for: a burst would show a false rate.
    """

    def __init__(self, interval: float, wall: Callable[[], float] = time.time) -> None:
        self.interval = interval
        self._wall = wall
        self._index = int(wall() / interval)
        self.skipped = 0
        self.lateness = 0.0  # seconds after the due time at which the last reading began

    def delay(self) -> float:
        """Seconds until the next due time; at most one interval, also after the clock was set."""
        now = self._wall()
        index = int(now / self.interval)
        # A timer may wake a moment early, so one behind is in order; anything else means that the clock was set.
        if not -1 <= index - self._index < 3600 / self.interval:
            self._index = index
        return min((max(self._index, index) + 1) * self.interval - now, self.interval)

    def began(self) -> None:
        """A reading begins now: measure its lateness, count the due times that passed without one."""
        now = self._wall()
        index = max(int(now / self.interval), self._index + 1)
        self.skipped += index - self._index - 1
        self._index = index
        self.lateness = max(0.0, now - index * self.interval)


class Agent:
    """One node's readings and their publication. ``publisher`` None: read only (for the agent's own /metrics)."""

    def __init__(self, config: Config, *, node: str | None = None, boot: int | None = None) -> None:
        self.config = config
        self.node = node or node_id(config.agent.node)
        self.boot = boot if boot is not None else run_id()
        self.rejects = Rejects()
        self.publisher: Publisher | None = None
        self.metrics: AgentMetrics | None = None
        self.schedule = Schedule(config.agent.interval)
        self.reader = NodeReader(config.agent, self.node, self.rejects)
        self._schemas: list[tuple[Stream, Schema, int]] = []
        self._sequence = 0
        self._tick = 0
        self._took: int | None = None  # ns of the last reading
        self._rivals = 0
        self._status_due = 0.0
        self._steps: tuple[StepSampler, Schema, int] | None = None  # with its schema and the schema's id

    async def run(self, ready: Callable[[str], None]) -> None:
        """Read and publish until cancelled. Raises FabricdError when the spool or the metrics address cannot be used."""
        settings = self.config.agent
        if settings.publish:
            self.publisher = Publisher(
                self.config.broker, self.config.fabric.name, self.node, Path(settings.spool_dir), boot=self.boot
            )
        if settings.metrics_listen:
            from fabricd.daemons.agent_metrics import AgentMetrics

            self.metrics = AgentMetrics(self.config.fabric.name, self.node, settings.metrics_listen)
        elif not settings.publish:
            raise UsageError("agent.publish = false and agent.metrics_listen is empty: nothing would see the readings")
        try:
            self.step()
            ready(self.summary())
            log.info("%s", self.summary())
            async with asyncio.TaskGroup() as group:
                if self.publisher is not None:
                    group.create_task(self.publisher.run())
                group.create_task(self._tick_forever())
                if settings.step_sampling and self.publisher is not None:
                    group.create_task(self._sample_steps())
        finally:
            if self.metrics is not None:
                self.metrics.close()
            if self._steps is not None:
                self._steps[0].close()
            self.reader.close()

    async def _sample_steps(self) -> None:
        while True:
            await asyncio.sleep(self.config.agent.interval * random.uniform(SHORTEST, LONGEST))
            if self.publisher is None or self._steps is None:
                continue
            sampler, schema, schema_id = self._steps
            began, wall = time.monotonic_ns(), time.time_ns()
            values, flags = sampler.read()
            self._sequence += 1
            frame = encode_frame(schema, schema_id, self._sequence, began, wall, values, flags)
            self.publisher.publish_frame(self._sequence, frame)

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(self.schedule.delay())
            self.schedule.began()
            self.step()

    def step(self) -> None:
        """One reading of everything, its frames, and what is due of schemas and status."""
        with self.metrics.lock if self.metrics is not None else nullcontext():
            if self.reader.search_if_due():
                self._announce()
            if self.reader.node_row_due(self._tick):
                self._tell_about_self()
            began, wall = time.monotonic_ns(), time.time_ns()
            self.reader.read(self._tick, began)
        self._took = time.monotonic_ns() - began
        if self.publisher is not None:
            for stream, schema, schema_id in self._schemas:
                if self._tick % stream.every:
                    continue
                self._sequence += 1
                self.publisher.publish_frame(
                    self._sequence,
                    encode_frame(schema, schema_id, self._sequence, began, wall, stream.values, stream.flags),
                )
        self._tick += 1
        if time.monotonic() >= self._status_due:
            self._publish_status()

    def _announce(self) -> None:
        """Rows or columns are new: schemas go before the frames that need them."""
        self._schemas = []
        for stream in self.reader.streams:
            schema = stream.schema(self.node, self.config.fabric.name, self.boot)
            self._schemas.append((stream, schema, schema.id))
            if self.publisher is not None:
                self.publisher.publish_schema(schema)
        if self.metrics is not None:
            self.metrics.streams = self.reader.streams
        self._lay_out_steps()
        self._status_due = 0.0

    def _lay_out_steps(self) -> None:
        if self._steps is not None:
            self._steps[0].close()
            self._steps = None
        if not self.config.agent.step_sampling or self.publisher is None:
            return
        sampler = StepSampler((planned for stream in self.reader.streams for planned in stream.rows), self.reader.files)
        if sampler.rows:
            schema = sampler.schema(self.node, self.config.fabric.name, self.boot)
            self.publisher.publish_schema(schema)
            self._steps = sampler, schema, schema.id

    def _tell_about_self(self) -> None:
        stats = self.publisher.stats() if self.publisher is not None else {}
        rivals = stats.get("rivals", 0)
        if rivals > self._rivals:
            self.rejects.add("duplicate_node_id", self.node, "another agent publishes under this node id")
            self._rivals = rivals
            self._status_due = 0.0
        now = {
            "lateness": int(self.schedule.lateness * 1e9),
            "intervals_skipped": self.schedule.skipped,
            "rejects": self.rejects.total,
        }
        if self._took is not None:
            now["read_duration"] = self._took
        for name, key in (("spool_frames", "spool_frames"), ("spool_dropped", "dropped"), ("reconnects", "reconnects")):
            if key in stats:
                now[name] = stats[key]
        self.reader.self_counters.now = now

    def _publish_status(self) -> None:
        self._status_due = time.monotonic() + self.config.agent.status_interval
        if self.publisher is not None:
            self.publisher.publish_status(self.status())

    def status(self) -> dict[str, Any]:
        """What the retained status says of this node, beside what the publisher adds."""
        return {
            "version": __version__,
            "kind": "agent",
            "interval": self.config.agent.interval,
            "duplicate_node_id": self._rivals > 0,
            "devices": [
                {
                    "name": printable(device.name),
                    "driver": device.driver,
                    "node_guid": format_guid(device.node_guid) if device.node_guid is not None else None,
                    "fw_ver": device.fw_ver,
                    "board_id": device.board_id,
                    "role": device.role,
                    "ports": [
                        {
                            "port": port.number, "state": port.state, "phys_state": port.phys_state,
                            "rate_gbps": port.rate_gbps, "link_layer": port.link_layer,
                            "netdev": printable(port.netdev) if port.netdev else None,
                            "visible_only_from": self.reader.visible_only_from(port),
                        }
                        for port in device.ports
                    ],
                }
                for device in self.reader.devices
            ],
            "netdevs": [netdev.name for netdev in self.reader.netdevs],
            "files_refused": self.reader.refused_files,
            "rejects": {
                "counts": dict(self.rejects.counts),
                "recent": self.rejects.to_json()[-RECENT_REJECTS:],
            },
        }  # fmt: skip

    def summary(self) -> str:
        """One line for people: what is read here."""
        ports = sum(len(device.ports) for device in self.reader.devices)
        columns = sum(len(stream.rows) * len(stream.columns) for stream in self.reader.streams)
        what = f"{len(self.reader.devices)} RDMA devices with {ports} ports" if ports else "no RDMA device"
        if self.reader.netdevs:
            what += f", {len(self.reader.netdevs)} network interfaces"
        return f"node {self.node}: {what}, {columns} values each {self.config.agent.interval:g} s"

    def reload(self, load: Callable[[], Config]) -> None:
        """Take a new configuration; a wrong one changes nothing. Files that refused are asked again."""
        try:
            new = load()
        except UsageError as error:
            log.error("reload: %s; the old configuration stays", error)
            return
        for section in ("fabric", "broker"):
            if getattr(new, section) != getattr(self.config, section):
                log.warning("reload: a change in [%s] needs a restart", section)
        kept = {key: getattr(self.config.agent, key) for key in _NEEDS_RESTART}
        if any(getattr(new.agent, key) != value for key, value in kept.items()):
            log.warning("reload: %s need a restart", ", ".join(f"agent.{key}" for key in _NEEDS_RESTART))
        for key, value in kept.items():
            setattr(new.agent, key, value)
        logs.set_up(new.fabric.log_format, new.fabric.log_level)
        self._take(new.agent)
        log.info("configuration reloaded; %s", self.summary())

    def _take(self, settings: AgentConfig) -> None:
        self.config.agent = settings
        self.reader.close()
        self.reader = NodeReader(settings, self.node, self.rejects)
        if settings.interval != self.schedule.interval:
            self.schedule = Schedule(settings.interval)
        self.step()


_NEEDS_RESTART = ("node", "spool_dir", "publish", "metrics_listen")


def run_agent(config: Config, path: str | None, overrides: Mapping[str, Any]) -> int:
    """The daemon until a signal ends it. Returns the exit status; raises FabricdError."""
    logs.set_up(config.fabric.log_format, config.fabric.log_level)
    agent = Agent(config)
    try:
        asyncio.run(run_daemon(agent.run, lambda: agent.reload(lambda: load_config(path, overrides))))
    except* FabricdError as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None
    return 0
