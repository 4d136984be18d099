"""Placement inside the api process: routes over the aggregator's answers and the cached topology, and the heat it samples."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx
from starlette.routing import Route

from fabricd.config.root import Config
from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model.topology import Topology
from fabricd.placement.api_source import ApiSource
from fabricd.placement.exporters.names import load_names
from fabricd.placement.http import routes
from fabricd.topology.golden import topology_from_json
from fabricd.topology.load import complete, load_topology

log = logging.getLogger(__name__)

PATIENCE_S = 2.0  # a question in flight delays the end of the process by no more


class PlacementView:
    """Holds no secrets and writes nothing. The topology is read again when its file changes.

    ``url``: where the aggregator answers, when that is not its unix socket.
    """

    def __init__(self, config: Config, url: str = "") -> None:
        self.config = config
        self._client = httpx.Client(
            transport=None if url else httpx.HTTPTransport(uds=config.aggregator.socket),
            base_url=url or "http://aggregator",
            timeout=min(config.api.timeout, PATIENCE_S),
            trust_env=False,
        )
        self._held: tuple[tuple[str, int], Topology] | None = None
        self.source = ApiSource(self._get, self._topology, config.placement.heat_window_s)
        self.routes: list[Route] = routes(self.source, config.placement)

    def _get(self, path: str) -> Any:
        try:
            answer = self._client.get(path)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, *BAD_DOCUMENT) as error:
            raise FabricdError(f"aggregator{path}: {error or type(error).__name__}") from None

    def _topology(self) -> Topology:
        """The file of topology.source, else the cache the collector's discovery writes. Raises FabricdError when there is neither."""
        settings = self.config.topology
        path = settings.cache if settings.source == "smp" else settings.source
        try:
            key = path, Path(path).stat().st_mtime_ns
            if self._held is None or self._held[0] != key:
                self._held = key, self._load(path)
        except (OSError, *BAD_DOCUMENT, KeyError, TypeError) as error:
            raise FabricdError(f"no topology is known yet: {path}: {error}") from None
        return self._held[1]

    def _load(self, path: str) -> Topology:
        if self.config.topology.source != "smp":
            topology = load_topology(path)
        else:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            topology = complete(topology_from_json(document["topology"], path))
        if self.config.placement.names:
            load_names(self.config.placement.names).apply(topology)
        return topology

    async def run(self) -> None:
        """Sample the uplinks until cancelled; a failure costs one sample."""
        while True:
            try:
                await asyncio.to_thread(self.source.sample)
            except FabricdError as error:
                log.debug("uplink counters: %s", error)
            await asyncio.sleep(self.config.placement.heat_window_s / 2)
