"""The detector inside the aggregator: looks at the store every interval, publishes verdicts, answers ``/api/v1/verdicts``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fabricd.config.root import Config
from fabricd.detect.detector import Detector, Step
from fabricd.detect.fabric import Fabric
from fabricd.detect.params import Params
from fabricd.detect.store_windows import StoreWindows
from fabricd.detect.verdicts import VerdictMaker
from fabricd.errors import FabricdError
from fabricd.model import topics
from fabricd.model.verdict import Verdict
from fabricd.store.store import Store
from fabricd.topology.cache import load_cache
from fabricd.topology.routes import ASSUMED
from fabricd.transport.post import post

log = logging.getLogger(__name__)


class DetectorFeed:
    """Open verdicts and a bounded history. Without a topology it waits and says so in ``problem``."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config = config
        self.store = store
        self.problem = ""
        self.open: dict[str, Verdict] = {}
        self.history: deque[Verdict] = deque(maxlen=config.detector.history)
        self._detector: Detector | None = None
        self._abandoned: list[Verdict] = []
        self._seen: tuple[int, int] = (0, 0)  # (mtime of the topology, ports known) the detector was built for

    def verdicts(self) -> list[Verdict]:
        """The open ones."""
        return list(self.open.values())

    def routes(self) -> list[BaseRoute]:
        async def verdicts(request: Request) -> Response:
            found = [*self.history, *self.open.values()]
            wanted = request.query_params.get("id")
            if wanted:
                found = [verdict for verdict in found if verdict.id.startswith(wanted)]
            document = {"verdicts": [msgspec.to_builtins(v) for v in found], "problem": self.problem or None}
            return JSONResponse(document)

        return [Route("/api/v1/verdicts", verdicts)]

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
        interval_ns = self.config.detector.interval * 1e9
        stale_ns = max(self.config.aggregator.stale_after * 1e9, 2 * interval_ns)
        window = self._windows.window(now_ns, interval_ns, stale_ns)
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
        self._abandon()
        fabric = Fabric(picture.topology, picture.routes)
        params = Params()
        self._windows = StoreWindows(self.store, fabric, self.config.detector.wait_tick_bytes)
        self._detector = Detector(fabric, self._windows.priorities, None, params)
        assumed = ASSUMED in picture.routes.sources
        self._maker = VerdictMaker(fabric, self._windows.priorities, params, assumed_routes=assumed)
        self.problem = ""
        log.info("detector: %d ports, %d nodes", fabric.size, len(picture.topology.nodes))

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
            verdict = self._maker.make(finding)
            self.open.pop(verdict.id, None)
            self.history.append(verdict)
            changed[verdict.id] = verdict
        for finding in step.raised:
            verdict = self._maker.make(finding)
            self.open[verdict.id] = changed[verdict.id] = verdict
            log.warning("verdict %s: %s, %d ports affected", verdict.id, verdict.cause, len(verdict.victims))
        if self._detector is not None:
            for finding in self._detector.open():
                verdict = self._maker.make(finding)
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
