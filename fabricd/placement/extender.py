"""A Kubernetes scheduler extender (``filter``, ``prioritize``): keeps pods off flagged nodes, prefers cool rail groups.

Wire types: ExtenderArgs, ExtenderFilterResult and HostPriority of k8s.io/kube-scheduler/extender/v1; Go reads field names in any
case, so both cases are accepted. It fails open: switched off, or without a view of the fabric, every node passes and all
scores are equal, so that turning it off never needs the scheduler's configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fabricd.config.placement import PlacementConfig
from fabricd.errors import FabricdError
from fabricd.placement.avoid import Flags
from fabricd.placement.fabric import Fabric, compile_fabric
from fabricd.placement.live import LiveSource
from fabricd.placement.service import gather_flags

MAX_SCORE = 10  # MaxExtenderPriority


@dataclass(slots=True)
class View:
    """What scores are made from, held for ``extender_refresh_s``."""

    fabric: Fabric
    heat: dict[str, float]
    flags: Flags


@dataclass(slots=True)
class Extender:
    """Answers the two verbs; the view of the fabric is taken anew at most every ``extender_refresh_s``."""

    live: LiveSource
    config: PlacementConfig
    clock: Callable[[], float] = time.monotonic
    _view: View | None = field(default=None)
    _taken: float | None = field(default=None)

    def filter(self, arguments: Any) -> dict[str, Any]:
        """ExtenderFilterResult: flagged nodes fail with the reason, unless that would leave none."""
        names, nodes = _candidates(arguments)
        view = self._current()
        failed: dict[str, str] = {}
        if view is not None:
            failed = {name: "; ".join(view.flags[name]) for name in names if name in view.flags}
            if len(failed) == len(names):
                failed = {}
        kept = [name for name in names if name not in failed]
        result: dict[str, Any] = {"FailedNodes": failed, "FailedAndUnresolvableNodes": {}, "Error": ""}
        if nodes is None:
            return {**result, "Nodes": None, "NodeNames": kept}
        items = [node for node in nodes.get("items") or [] if _name(node) not in failed]
        return {**result, "Nodes": {**nodes, "items": items}, "NodeNames": None}

    def prioritize(self, arguments: Any) -> list[dict[str, Any]]:
        """HostPriorityList: 10 for the coolest rail groups down to 0 at full uplink load; unknown nodes in the middle."""
        names, _ = _candidates(arguments)
        view = self._current()
        if view is None:
            return [{"Host": name, "Score": 0} for name in names]
        return [{"Host": name, "Score": self._score(view, name)} for name in names]

    def _score(self, view: View, name: str) -> int:
        if name not in view.fabric.index or not view.heat:
            return MAX_SCORE // 2
        group = view.fabric.groups[int(view.fabric.group[view.fabric.index[name]])].name
        heat = view.heat.get(group)
        return MAX_SCORE // 2 if heat is None else round(MAX_SCORE * (1 - heat))

    def _current(self) -> View | None:
        if not self.config.extender_enabled:
            return None
        now = self.clock()
        if self._taken is not None and now - self._taken < self.config.extender_refresh_s:
            return self._view
        self._taken = now
        try:
            live = self.live()
        except FabricdError:
            self._view = None
            return None
        fabric = compile_fabric(live.topology)
        flags = gather_flags(live.topology, fabric, self.config, live.verdicts, live.doctor)
        self._view = View(fabric, live.heat, flags)
        return self._view


def _candidates(arguments: Any) -> tuple[list[str], dict[str, Any] | None]:
    """Candidate node names, and the NodeList when the scheduler sent whole nodes. Raises ValueError on anything else."""
    if not isinstance(arguments, Mapping):
        raise ValueError("ExtenderArgs must be an object")
    lower = {str(key).lower(): value for key, value in arguments.items()}
    names, nodes = lower.get("nodenames"), lower.get("nodes")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return names, None
    if isinstance(nodes, Mapping) and isinstance(nodes.get("items"), list):
        return [_name(node) for node in nodes["items"]], dict(nodes)
    raise ValueError("ExtenderArgs needs NodeNames or Nodes")


def _name(node: Any) -> str:
    metadata = node.get("metadata") if isinstance(node, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str):
        raise ValueError("a node without metadata.name")
    return name
