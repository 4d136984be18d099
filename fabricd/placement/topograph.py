"""The three endpoints of topograph's API for this fabric, so that its clients keep working (docs/api.md of that project).

``POST /v1/generate`` answers 202 with a request id, ``GET /v1/topology?uid=`` 202 while pending, 200 with the text, 404 for an
unknown id. The provider named in a request is not consulted: the topology is always the fabric that fabricd watches.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from fabricd.config.placement import PlacementConfig
from fabricd.errors import FabricdError, UsageError
from fabricd.model.topology import RailGroup, Topology
from fabricd.placement.exporters import export
from fabricd.placement.exporters.labels import accelerator_key, level_keys
from fabricd.placement.live import LiveSource

KEEP = 64
SLURM_PLUGINS = {"topology/tree": "slurm-tree", "topology/block": "slurm-block"}
ENGINES = ("slurm", "k8s", "slinky", "graph")


@dataclass(frozen=True, slots=True)
class Order:
    """A checked request of /v1/generate. ``hosts`` None: all of them."""

    format: str
    config: PlacementConfig
    hosts: frozenset[str] | None
    block_sizes: tuple[int, ...]


def parse_order(document: Any, config: PlacementConfig) -> Order:
    """Check a request body. Raises UsageError naming the key and value."""
    if not isinstance(document, Mapping):
        raise UsageError("request: must be a JSON object")
    engine = document.get("engine") or {}
    if not isinstance(engine, Mapping):
        raise UsageError(f"engine = {engine!r}: must be an object")
    name = engine.get("name") or "slurm"
    params = engine.get("params") or {}
    if name not in ENGINES or not isinstance(params, Mapping):
        raise UsageError(f"engine.name = {name!r}: one of {', '.join(ENGINES)}")
    if params.get("topologies"):
        raise UsageError("engine.params.topologies: not supported; use plugin, or fetch slurm-yaml from topo export")
    if name == "slurm":
        plugin = params.get("plugin") or "topology/tree"
        if plugin not in SLURM_PLUGINS:
            raise UsageError(f"engine.params.plugin = {plugin!r}: one of {', '.join(SLURM_PLUGINS)}")
        wanted = SLURM_PLUGINS[plugin]
    else:
        wanted = {"k8s": "k8s-labels", "slinky": "slurm-yaml", "graph": "graph"}[name]
    return Order(wanted, _labels(params, config), _hosts(document.get("nodes")), _sizes(params.get("blockSizes")))


def _sizes(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in value):
        raise UsageError(f"engine.params.blockSizes = {value!r}: a list of positive integers")
    for small, large in pairwise(value):
        if large % small or (large // small) & (large // small - 1):
            raise UsageError(f"engine.params.blockSizes = {value!r}: each size is the one before times a power of two")
    return tuple(value)


def _labels(params: Mapping[str, Any], config: PlacementConfig) -> PlacementConfig:
    keys, accelerator = params.get("fabricLabels"), params.get("acceleratorLabel")
    if keys is None and accelerator is None:
        return config
    if keys is not None and (not isinstance(keys, list) or not keys or not all(isinstance(k, str) for k in keys)):
        raise UsageError(f"engine.params.fabricLabels = {keys!r}: a list of label keys, closest level first")
    return msgspec.structs.replace(
        config,
        label_preset="custom",
        fabric_labels=keys or list(level_keys(config)),
        accelerator_label=accelerator_key(config) if accelerator is None else str(accelerator),
    )


def _hosts(value: Any) -> frozenset[str] | None:
    if not value:
        return None
    if not isinstance(value, list):
        raise UsageError(f"nodes = {value!r:.80}: a list of regions")
    hosts: set[str] = set()
    for region in value:
        instances = region.get("instances") if isinstance(region, Mapping) else None
        if not isinstance(instances, Mapping):
            raise UsageError(f"nodes = {region!r:.80}: a region needs instances")
        hosts.update(str(name) for name in instances.values())
    return frozenset(hosts)


def render(order: Order, topology: Topology) -> str:
    """The text of an order."""
    if order.hosts is not None:
        topology = restrict(topology, order.hosts)
    if order.format == "graph":
        return json.dumps(topology.to_json())
    return export(topology, order.format, order.config, block_sizes=order.block_sizes)


def restrict(topology: Topology, hosts: frozenset[str]) -> Topology:
    """The topology with only these hosts in its rail groups; groups keep their names."""
    rails = [RailGroup(g.name, [h for h in g.hosts if h in hosts], g.leaves, g.kind, g.pod) for g in topology.rails]
    return Topology(
        fabric=topology.fabric,
        nodes=topology.nodes,
        links=topology.links,
        rails=rails,
        faults=topology.faults,
        source=topology.source,
    )


@dataclass(slots=True)
class Desk:
    """Requests and their results, the newest KEEP of them."""

    live: LiveSource
    config: PlacementConfig
    _orders: OrderedDict[str, Order | str | FabricdError] = field(default_factory=OrderedDict)

    def accept(self, document: Any) -> str:
        """Take a request, return its id. Raises UsageError."""
        order = parse_order(document, self.config)
        uid = str(uuid.uuid4())
        self._orders[uid] = order
        while len(self._orders) > KEEP:
            self._orders.popitem(last=False)
        return uid

    def work(self, uid: str) -> None:
        """Do one accepted request (in a worker thread)."""
        order = self._orders.get(uid)
        if isinstance(order, Order):
            try:
                result: str | FabricdError = render(order, self.live().topology)
            except FabricdError as error:
                result = error
            if uid in self._orders:
                self._orders[uid] = result

    def result(self, uid: str) -> tuple[int, str]:
        """(HTTP status, body) of an id."""
        found = self._orders.get(uid)
        if found is None:
            return 404, f"request {uid} is not known"
        if isinstance(found, Order):
            return 202, ""
        if isinstance(found, FabricdError):
            return 500, str(found)
        return 200, found
