"""The aggregator: broker → recording and columns → unix socket for the api process. Composition only."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricd import logs
from fabricd.config.root import Config
from fabricd.daemons.alert_feed import follow_verdicts
from fabricd.daemons.detector import DetectorFeed
from fabricd.daemons.doctor_feed import follow_doctors
from fabricd.daemons.http_server import bind_unix, serve
from fabricd.daemons.job_feed import follow_jobs
from fabricd.errors import UsageError
from fabricd.jobs.watch import JobWatch
from fabricd.outputs.doctor_view import DoctorReports
from fabricd.outputs.http_api import View, make_app
from fabricd.outputs.jobs_view import JobsView
from fabricd.outputs.webhooks import Alerts
from fabricd.store.ingest import Ingest
from fabricd.store.receiver import Receiver, client_id, rebuild
from fabricd.store.recording import Recording
from fabricd.store.store import Store

log = logging.getLogger(__name__)


class Aggregator:
    """Store, ingest and recording of one fabric. Raises FabricdError when the recording's directory cannot be used."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = Store(config.fabric.name)
        self.ingest = Ingest(self.store, config.fabric.name)
        settings = config.aggregator
        self.recording: Recording | None = None
        if settings.record:
            self.recording = Recording(Path(settings.recording_dir), settings.recording_mb << 20, self.ingest.preamble)
        self.receiver = Receiver(
            config.broker, config.aggregator, self.ingest, self.recording, client_id(config.fabric.name)
        )
        self.view = View(self.store, self.ingest, self.problems, lambda: self.config.aggregator.stale_after)
        watch = JobWatch()
        self.detector = DetectorFeed(config, self.store, lambda: list(watch.jobs.values()))
        self.jobs = JobsView(watch, self.detector.verdicts)
        self.doctors = DoctorReports(self.detector.faults)
        self.view.fleet = self.doctors.fleet
        self.alerts = Alerts(config.alerts)
        self.view.families += [self.detector.metric_families, self.doctors.metric_families, self.alerts.metric_families]
        self.view.verdicts = self.detector.verdicts
        self.app: Any = make_app(self.view, [*self.doctors.routes(), *self.jobs.routes(), *self.detector.routes()])

    def problems(self) -> list[str]:
        """What keeps it from doing its work, in words; empty when ready."""
        found = []
        if not self.receiver.connected:
            found.append(f"not connected to broker {self.config.broker.host}:{self.config.broker.port}")
        if self.ingest.disk_refuses:
            found.append(f"the disk refuses frames: {self.config.aggregator.recording_dir}")
        return found

    async def rebuild(self) -> None:
        """Read the recording of the last run, where there is one."""
        if self.recording is None:
            return
        count = await rebuild(self.ingest, self.recording)
        self.ingest.recording = self.recording
        if count:
            log.info("%d records read, %d nodes, %d rejects", count, len(self.store.nodes), self.ingest.rejects.total)

    async def run(self) -> None:
        """Receive until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.receiver.run())
            group.create_task(self._forget())
            group.create_task(self.detector.run())
            group.create_task(follow_doctors(self.config, self.doctors))
            group.create_task(follow_jobs(self.config, self.store, self.jobs))
            group.create_task(follow_verdicts(self.config, self.alerts))

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(min(60.0, self.config.aggregator.forget_after))
            for name in self.store.forget(int(self.config.aggregator.forget_after * 1e9)):
                log.info("node %s forgotten: nothing heard for %s s", name, self.config.aggregator.forget_after)

    def reload(self, load: Callable[[], Config]) -> None:
        """Take a new configuration. What needs a restart is named and left as it is; a wrong file changes nothing."""
        try:
            new = load()
        except UsageError as error:
            log.error("reload: %s; the old configuration stays", error)
            return
        for key in ("stale_after", "forget_after", "report_interval"):
            setattr(self.config.aggregator, key, getattr(new.aggregator, key))
        self.config.fabric.log_level, self.config.fabric.log_format = new.fabric.log_level, new.fabric.log_format
        logs.set_up(new.fabric.log_format, new.fabric.log_level)
        for section in ("fabric", "broker", "aggregator"):
            if getattr(new, section) != getattr(self.config, section):
                log.warning("reload: a change in [%s] needs a restart", section)
        log.info("configuration reloaded")


async def run_aggregator(config: Config, ready: Callable[[str], None], made: Callable[[Aggregator], None]) -> None:
    """The daemon. ``made`` gets the aggregator, for reloads."""
    aggregator = Aggregator(config)
    made(aggregator)
    listener = bind_unix(config.aggregator.socket)
    await aggregator.rebuild()
    ready(f"fabric {config.fabric.name}, broker {config.broker.host}:{config.broker.port}")
    async with asyncio.TaskGroup() as group:
        group.create_task(aggregator.run())
        group.create_task(serve(aggregator.app, listener))
