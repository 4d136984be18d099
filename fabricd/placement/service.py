"""One placement from its parts: flags gathered, heat joined, the plan made. Used by the command line and by HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fabricd.config.placement import PlacementConfig
from fabricd.model.topology import Topology
from fabricd.model.verdict import Verdict
from fabricd.placement.avoid import Flags, from_doctor, from_faults, from_verdicts, merge
from fabricd.placement.fabric import Fabric, compile_fabric
from fabricd.placement.plan import make_plan
from fabricd.placement.request import Request


def gather_flags(
    topology: Topology,
    fabric: Fabric,
    config: PlacementConfig,
    verdicts: Iterable[Verdict] = (),
    doctor: Iterable[Any] = (),
) -> Flags:
    """Every reason known to keep new jobs off a host."""
    reports = [from_doctor(report, "doctor report") for report in doctor]
    return merge(from_faults(topology, config.avoid_faults), *reports, from_verdicts(topology, fabric, verdicts))


def place(
    topology: Topology,
    request: Request,
    config: PlacementConfig | None = None,
    *,
    verdicts: Iterable[Verdict] = (),
    doctor: Iterable[Any] = (),
    heat: Mapping[str, float] | None = None,
    compiled: Fabric | None = None,
) -> dict[str, Any]:
    """The plan for a request. Heat in the request overrides live heat, group by group.

    ``compiled`` is the topology's fabric where the caller has it; a request with NVLink domains of its own needs another.
    """
    config = config or PlacementConfig()
    fabric = compiled
    if fabric is None or request.nvlink_domains:
        fabric = compile_fabric(topology, request.nvlink_domains)
    request = msgspec.structs.replace(request, heat={**(heat or {}), **request.heat})
    return make_plan(fabric, request, gather_flags(topology, fabric, config, verdicts, doctor), config)
