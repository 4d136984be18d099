"""The live fabric as placement needs it: topology, heat and open verdicts from a running api, or a discovery on the spot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fabricd.model.topology import Topology
from fabricd.model.verdict import Verdict


@dataclass(slots=True)
class LiveView:
    """What a daemon hands to placement. ``heat`` maps rail group to mean uplink load (0..1) of the last minutes."""

    topology: Topology
    heat: dict[str, float] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    doctor: list[dict[str, Any]] = field(default_factory=list)


# Raises FabricdError when nothing is known yet.
LiveSource = Callable[[], LiveView]
