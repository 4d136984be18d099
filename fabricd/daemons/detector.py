"""The detector inside the aggregator: looks at the store every interval, publishes verdicts, answers ``/api/v1/verdicts``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fabricd.config.root import Config
from fabricd.control.state import State, from_window
from fabricd.detect.detector import Detector, Finding, Step
from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params
from fabricd.detect.store_windows import StoreWindows
from fabricd.detect.verdicts import VerdictMaker
from fabricd.detect.window import Window
from fabricd.errors import FabricdError
from fabricd.jobs.fabric_map import JobMap
from fabricd.jobs.job import Job
from fabricd.model import topics
from fabricd.model.ident import parse_guid
from fabricd.model.topology import CA, Fault
from fabricd.model.verdict import NodeId, Verdict
from fabricd.outputs.exposition import MoreFamily
from fabricd.outputs.state_view import state_route
from fabricd.store.store import Store
from fabricd.topology.cache import load_cache
from fabricd.topology.routes import ASSUMED
from fabricd.transport.post import post

log = logging.getLogger(__name__)


class DetectorFeed:
    """Open verdicts and a bounded history. Without a topology it waits and says so in ``problem``."""

    def __init__(self, config: Config, store: Store, jobs: Callable[[], list[Job]] = list) -> None:
        self.config = config
        self.store = store
        self._jobs = jobs
        self._known_jobs: list[Job] = []
        self._faults: list[Fault] = []
        self.problem = ""
        self.open: dict[str, Verdict] = {}
        self.history: deque[Verdict] = deque(maxlen=config.detector.history)
        self._detector: Detector | None = None
        self._window: Window | None = None
        self._abandoned: list[Verdict] = []
        self._seen: tuple[int, int] = (0, 0)  # (mtime of the topology, ports known) the detector was built for

    def verdicts(self) -> list[Verdict]:
        """The open ones."""
        return list(self.open.values())

    def faults(self) -> list[Fault]:
        """What the topology in use says is wrong with the fabric (crossed rails, missing links, …)."""
        return self._faults

    def metric_families(self) -> list[MoreFamily]:
        """(name, HELP, TYPE, samples) for the exposition."""
        active, victims, jobs = [], [], []
        for verdict in self.open.values():
            root = ", ".join(f"{node}/{port}" for node, port in verdict.roots[:4])
            labels = {"fabric": verdict.fabric, "verdict": verdict.id}
            priority = "" if verdict.priority is None else str(verdict.priority)
            active.append(({**labels, "cause": verdict.cause, "root": root, "priority": priority}, 1.0))
            victims.append((labels, float(len(verdict.victims))))
            jobs += [({**labels, "job": job}, 1.0) for job in verdict.jobs_hurt]
        ended: dict[tuple[str, str], int] = {}
        for verdict in self.history:
            key = (verdict.fabric, verdict.cause)
            ended[key] = ended.get(key, 0) + 1
        recent = [
            ({"fabric": fabric, "cause": cause}, float(count)) for (fabric, cause), count in sorted(ended.items())
        ]
        return [
            ("fabricd_verdict_active", "An open verdict of head-of-line blocking.", "gauge", active),
            ("fabricd_verdict_victim_ports", "Ports an open verdict holds back.", "gauge", victims),
            ("fabricd_verdict_job_hurt", "A job an open verdict hurts.", "gauge", jobs),
            ("fabricd_verdicts_ended", "Verdicts in the bounded history that have ended, by cause.", "gauge", recent),
        ]

    def routes(self) -> list[BaseRoute]:
        async def verdicts(request: Request) -> Response:
            found = [*self.history, *self.open.values()]
            wanted = request.query_params.get("id")
            if wanted:
                found = [verdict for verdict in found if verdict.id.startswith(wanted)]
            document = {"verdicts": [msgspec.to_builtins(v) for v in found], "problem": self.problem or None}
            return JSONResponse(document)

        return [Route("/api/v1/verdicts", verdicts), state_route(self.state)]

    def state(self) -> State | None:
        """The figures of the last interval, for the controller; None before the first."""
        if self._window is None:
            return None
        return from_window(self._window, self._fabric.ports, self._windows.priorities, self._fabric.rate)

    async def run(self) -> None:
        """Until cancelled."""
        if not self.config.detector.enabled:
            return
        interval = self.config.detector.interval
        due = time.monotonic() + interval
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + interval, time.monotonic())
            try:
                changed = self.look(time.time_ns())
            except FabricdError as error:
                if self.problem != str(error):
                    log.warning("detector: %s", error)
                self.problem = str(error)
                continue
            for verdict in changed:
                await self._publish(verdict)

    def look(self, now_ns: int) -> list[Verdict]:
        """One interval; returns the verdicts that were raised, told anew or ended. Raises FabricdError without a topology."""
        self._prepare()
        if self._detector is None:
            return []
        self._follow_jobs()
        interval_ns = self.config.detector.interval * 1e9
        stale_ns = max(self.config.aggregator.stale_after * 1e9, 2 * interval_ns)
        window = self._window = self._windows.window(now_ns, interval_ns, stale_ns)
        changed = self._abandoned + self._take(self._detector.step(window))
        self._abandoned = []
        for verdict in changed:
            if verdict.end is None and verdict.id not in self.open:
                verdict.end = now_ns
        return changed

    def _prepare(self) -> None:
        """Build the detector when the topology or the set of ports has changed; open verdicts end then, their evidence is gone."""
        path = Path(self.config.topology.cache)
        try:
            stamp = (path.stat().st_mtime_ns, len(self.store.ports))
        except OSError as error:
            raise FabricdError(f"no topology yet: {path}: {error.strerror}") from None
        if stamp == self._seen and self._detector is not None:
            return
        picture = load_cache(path).picture
        if picture.routes is None or not picture.topology.links:
            raise FabricdError(f"{path}: a topology without links or routes")
        self._seen = stamp
        self._window = None
        self._abandon()
        fabric = Fabric(picture.topology, picture.routes)
        params = Params()
        self._windows = StoreWindows(self.store, fabric, self.config.detector.wait_tick_bytes)
        self._detector = Detector(fabric, self._windows.priorities, None, params)
        self._fabric, self._params = fabric, params
        self._faults = list(picture.topology.faults)
        self._peers = picture.topology.neighbours()
        self._assumed = ASSUMED in picture.routes.sources
        self._use_jobs(self._jobs())
        self.problem = ""
        log.info("detector: %d ports, %d nodes", fabric.size, len(picture.topology.nodes))

    def _follow_jobs(self) -> None:
        jobs = self._jobs()
        if jobs != self._known_jobs:
            self._use_jobs(jobs)

    def _use_jobs(self, jobs: list[Job]) -> None:
        """Who talks to whom is known from the jobs that run; verdicts that are open are told anew with it."""
        self._known_jobs = jobs
        self._job_map = JobMap(self._fabric.topology, jobs)
        self._maker = VerdictMaker(
            self._fabric, self._windows.priorities, self._params, self._job_map.pairs(), assumed_routes=self._assumed
        )

    def _make(self, finding: Finding) -> Verdict:
        """The verdict with the jobs it hurts and those that contribute, by the pairs where they are known, else by the ports."""
        verdict = self._maker.make(finding)
        if self._known_jobs:
            hurt = {end for source, destination, _ in verdict.victim_pairs for end in (source, destination)}
            feeding = {end for source, destination, *_ in verdict.contributors for end in (source, destination)}
            roots = self._behind(verdict.roots)
            verdict.jobs_contributing = self._job_map.jobs_at(_guids(feeding) or roots)
            behind = self._job_map.jobs_at(_guids(hurt) or self._behind(verdict.victims) - roots)
            verdict.jobs_hurt = [job for job in behind if hurt or job not in verdict.jobs_contributing]
        return verdict

    def _behind(self, ports: Iterable[tuple[NodeId, int]]) -> set[int]:
        """Adapters at these ports: the port's own node, or the one at the other end of its cable."""
        nodes, found = self._fabric.topology.nodes, set()
        for node, port in ports:
            guid = parse_guid(str(node))
            peer = self._peers.get((guid, port))
            found |= {g for g in (guid, peer[0] if peer else guid) if g in nodes and nodes[g].type == CA}
        return found

    def _abandon(self) -> None:
        """The ports are numbered anew: what was open cannot be followed and ends here, which is said."""
        for verdict in self.open.values():
            verdict.blind.append("the topology changed: this verdict could not be followed any further")
            self.history.append(verdict)
            self._abandoned.append(verdict)
        self.open.clear()

    def _take(self, step: Step) -> list[Verdict]:
        changed: dict[str, Verdict] = {}
        for finding in step.ended:
            verdict = self._make(finding)
            self.open.pop(verdict.id, None)
            self.history.append(verdict)
            changed[verdict.id] = verdict
        for finding in step.raised:
            verdict = self._make(finding)
            self.open[verdict.id] = changed[verdict.id] = verdict
            log.warning("verdict %s: %s, %d ports affected", verdict.id, verdict.cause, len(verdict.victims))
        if self._detector is not None:
            for finding in self._detector.open():
                verdict = self._make(finding)
                if verdict.id in self.open:
                    self.open[verdict.id] = verdict
        return list(changed.values())

    async def _publish(self, verdict: Verdict) -> None:
        """Retained while open; an ended verdict is told once and then cleared."""
        topic = topics.verdict(self.config.fabric.name, verdict.id)
        try:
            await post(self.config.broker, topic, msgspec.json.encode(verdict))
            if verdict.end is not None:
                await post(self.config.broker, topic, b"")
        except FabricdError as error:
            log.warning("verdict %s: %s", verdict.id, error)


def _guids(ends: Iterable[NodeId]) -> set[int]:
    return {parse_guid(str(end)) for end in ends}
