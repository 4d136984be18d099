"""What the controller sees: topology and routes from the cache on disk, present figures from the aggregator, pairs from a file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import httpx

from fabricd.config.root import Config
from fabricd.control.loop import Inputs
from fabricd.control.state import State, from_json
from fabricd.control.traffic import Pair
from fabricd.control.world import World
from fabricd.errors import FabricdError
from fabricd.model.ident import parse_guid
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Topology
from fabricd.model.verdict import NodeId, Verdict
from fabricd.outputs.pairs_file import read_pairs
from fabricd.topology.cache import load_cache
from fabricd.topology.load import load_topology
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import RouteTable

log = logging.getLogger(__name__)

STATE_PATH = "/api/v1/state"
TIMEOUT_S = 2.0


class ControllerView:
    """Reads files again when they changed. ``problems`` says, in words, what could not be seen at the last look."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.problems: list[str] = []
        self._client = httpx.Client(
            transport=httpx.HTTPTransport(uds=config.aggregator.socket),
            base_url="http://aggregator",
            timeout=TIMEOUT_S,
            trust_env=False,
        )
        self._stamp: tuple[str, int] | None = None
        self._topology = Topology()
        self._routes: RouteTable | None = None
        self._ethernet = False
        self._pairs: list[Pair] = []

    def look(self, verdicts: Mapping[str, Verdict]) -> Inputs:
        """Never raises: what is missing keeps the guard from admitting anything."""
        self.problems = []
        try:
            self._read_topology()
        except (FabricdError, OSError) as error:
            self.problems.append(f"topology: {error}")
        state: State | None = None
        try:
            state = self._state()
        except FabricdError as error:
            self.problems.append(str(error))
        contested = frozenset(
            guid for fault in self._topology.faults if fault.kind == "duplicate_guid" for guid, _ in fault.ports
        )
        world = World(self._topology, contested=contested)
        return Inputs(world, self._routes, state, verdicts, self._pairs, self._ethernet)

    def close(self) -> None:
        self._client.close()

    def _state(self) -> State:
        try:
            answer = self._client.get(STATE_PATH)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise FabricdError(f"aggregator{STATE_PATH}: {error or type(error).__name__}") from None
        return from_json(answer.content)

    def _read_topology(self) -> None:
        settings = self.config.topology
        path = settings.cache if settings.source == "smp" else settings.source
        stamp = path, Path(path).stat().st_mtime_ns
        if stamp == self._stamp:
            return
        if settings.source == "smp":
            picture = load_cache(path).picture
            topology, routes = picture.topology, picture.routes
        else:
            topology, routes = load_topology(path), None
        self._topology, self._routes = topology, routes or assumed_routes(topology)
        # Subnet managers give every port a LID; without any, it is Ethernet.
        self._ethernet = not any(node.lids for node in topology.nodes.values())
        self._pairs = self._known_pairs()
        self._stamp = stamp
        log.info("topology of %d nodes and %d links from %s", len(topology.nodes), len(topology.links), path)

    def _known_pairs(self) -> list[Pair]:
        """Pairs of hosts or adapters become pairs of adapter ports, each with each on the same rail where rails are known."""
        if not self.config.control.pairs_file:
            return []
        rejects = Rejects()
        named = read_pairs(Path(self.config.control.pairs_file), rejects)
        ends: dict[NodeId, list[int]] = {}
        for guid, node in self._topology.nodes.items():
            if node.type == "ca":
                for name in {node.host, node.name}:
                    ends.setdefault(name, []).append(guid)
        out = []
        for src, dst, level in named:
            for a in self._adapters(src, ends):
                for b in self._adapters(dst, ends):
                    out += [Pair((a, pa), (b, pb), level) for pa in self._ports(a) for pb in self._ports(b) if a != b]
        return out

    def _adapters(self, name: NodeId, ends: Mapping[NodeId, list[int]]) -> list[int]:
        if name in ends:
            return ends[name]
        try:
            guid = parse_guid(name) if isinstance(name, str) else name
        except ValueError:
            return []
        return [guid] if guid in self._topology.nodes else []

    def _ports(self, guid: int) -> list[int]:
        return sorted(ref[1] for link in self._topology.links for ref in (link.a, link.b) if ref[0] == guid)
