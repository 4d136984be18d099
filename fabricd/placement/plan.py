"""The answer to a request: schema ``fabricd.plan/1`` (docs/placement.md describes every key)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabricd.config.placement import PlacementConfig
from fabricd.placement import ranks
from fabricd.placement.estimate import exposed
from fabricd.placement.exporters.labels import level_keys
from fabricd.placement.fabric import Fabric
from fabricd.placement.hints import scheduler_hints
from fabricd.placement.metrics import Metrics, hops, measure
from fabricd.placement.problem import HEAT_SCALE, SHARE_SCALE, Ints
from fabricd.placement.request import Request
from fabricd.placement.solve import Infeasible, Solution, solve

SCHEMA = "fabricd.plan/1"
PROOF = (
    "none proved; lower bound {pods} pods, {groups} rail groups",
    "pods and rail groups optimal",
    "pods, rail groups and heat optimal",
    "optimal",
)


def make_plan(
    fabric: Fabric,
    request: Request,
    flags: Mapping[str, Sequence[str]] | None = None,
    config: PlacementConfig | None = None,
) -> dict[str, Any]:
    """Solve and describe. ``flags`` are hosts to avoid with their reasons. An infeasible request gives ``feasible: false``."""
    config = config or PlacementConfig()
    flags = {**(flags or {})}
    for host, why in request.flagged.items():
        flags[host] = [*flags.get(host, []), why]
    allowed, unknown = _allowed(fabric, request)
    flagged = np.array([host in flags for host in fabric.hosts], dtype=bool)
    rule = request.constraints.flagged_nodes
    usable = allowed if rule == "allow" else allowed & ~flagged
    solution = solve(fabric, request, usable, config.refine_seconds)
    used_flagged = False
    if isinstance(solution, Infeasible) and rule == "if-needed" and flagged.any():
        retry = solve(fabric, request, allowed, config.refine_seconds)
        if isinstance(retry, Solution):
            solution, usable, used_flagged = retry, allowed, True
    avoided = {} if rule == "allow" or used_flagged else {h: flags[h] for h in flags if h in fabric.index}
    plan = _head(fabric, request, avoided, usable)
    notes = [f"{len(unknown)} free nodes are in no rail group and were left out: {_some(unknown)}"] if unknown else []
    notes += _unknown_names(fabric, request)
    if isinstance(solution, Infeasible):
        hidden = int((allowed & flagged).sum()) if rule != "allow" else 0
        if hidden:
            notes.append(
                f"{hidden} free nodes are flagged and were avoided; constraints.flagged_nodes = if-needed would use them"
            )
        return {**plan, "feasible": False, "reasons": [*solution.reasons, *notes]}
    notes += _reasons(fabric, request, solution, avoided)
    if used_flagged:
        chosen = [fabric.hosts[i] for i in solution.order if flagged[i]]
        notes.append(f"flagged nodes had to be used: {_some(chosen)}")
    return {
        **plan,
        "feasible": True,
        **_body(fabric, request, solution, usable, config),
        "alternatives": _alternatives(fabric, request, solution, usable),
        "reasons": notes + fabric.notes,
    }


def _allowed(fabric: Fabric, request: Request) -> tuple[NDArray[np.bool_], list[str]]:
    """Free and allowed hosts, and the free ones that the fabric does not know as compute hosts."""
    limit = request.constraints
    unknown: list[str] = []
    if request.free_nodes is None:
        mask = np.ones(len(fabric.hosts), dtype=bool)
    else:
        mask = np.zeros(len(fabric.hosts), dtype=bool)
        for host in request.free_nodes:
            if host in fabric.index:
                mask[fabric.index[host]] = True
            else:
                unknown.append(host)
    for host in [*request.busy_nodes, *request.excluded]:
        if host in fabric.index:
            mask[fabric.index[host]] = False
    if limit.rail_groups is not None:
        names = np.array([group.name in limit.rail_groups for group in fabric.groups], dtype=bool)
        mask &= names[fabric.group]
    if limit.pods is not None:
        pods = np.array([fabric.pods[group.pod] in limit.pods for group in fabric.groups], dtype=bool)
        mask &= pods[fabric.group]
    return mask, unknown


def _unknown_names(fabric: Fabric, request: Request) -> list[str]:
    """Names in the request that the fabric does not have: they are ignored, and said to be."""
    groups = {group.name for group in fabric.groups}
    asked = (
        ("heat", request.heat, groups),
        ("constraints.rail_groups", request.constraints.rail_groups or (), groups),
        ("constraints.pods", request.constraints.pods or (), set(fabric.pods)),
        ("nvlink_domains", request.nvlink_domains, set(fabric.hosts)),
    )
    out: list[str] = []
    for key, names, known in asked:
        strange = sorted(set(names) - known)
        if strange:
            out.append(f"{key}: this fabric has no {_some(strange)}")
    return out


def _head(
    fabric: Fabric, request: Request, avoided: Mapping[str, Sequence[str]], usable: NDArray[np.bool_]
) -> dict[str, Any]:
    excluded = [{"node": host, "why": "; ".join(why)} for host, why in sorted(avoided.items())]
    excluded += [{"node": host, "why": why} for host, why in sorted(request.excluded.items()) if host not in avoided]
    return {
        "schema": SCHEMA,
        "job": msgspec.to_builtins(request.job),
        "constraints": {k: v for k, v in msgspec.to_builtins(request.constraints).items() if v not in (None, [])},
        "fabric": {
            "name": fabric.name,
            "source": fabric.source,
            "digest": fabric.digest,
            "rail_groups": len(fabric.groups),
            "pods": len(fabric.pods),
            "separate_fabrics": fabric.roots,
            "nodes": len(fabric.hosts),
            "usable_nodes": int(usable.sum()),
            "excluded_nodes": excluded,
        },
    }


def _body(
    fabric: Fabric, request: Request, solution: Solution, usable: NDArray[np.bool_], config: PlacementConfig
) -> dict[str, Any]:
    job, order = request.job, solution.order
    nodes = [fabric.hosts[i] for i in order]
    metrics = plan_metrics(fabric, request, order)
    bound = PROOF[solution.proved].format(pods=solution.bounds.pods, groups=solution.bounds.groups)
    solver: dict[str, Any] = {
        "name": solution.solver,
        "ms": round(solution.milliseconds, 3),
        "bound": bound,
        "cost": solution.cost._asdict(),
        "greedy_cost": solution.greedy_cost._asdict(),
        "exchanges": solution.swaps,
    }
    if solution.refine_milliseconds:
        solver["refine_ms"] = round(solution.refine_milliseconds, 3)
    return {
        "placement": _placement(fabric, request, order, solution.unit),
        "groups": _group_summary(fabric, request, order, solution.unit),
        "rank_order": nodes,
        "launch": {
            "slurm_hostfile": ranks.slurm_hostfile(nodes, job.gpus_per_node),
            "openmpi_rankfile": ranks.openmpi_rankfile(nodes, job.gpus_per_node),
            "openmpi_hostfile": ranks.openmpi_hostfile(nodes, job.gpus_per_node),
            "torchrun": ranks.torchrun(nodes, job.gpus_per_node),
            "torchrun_env": ranks.torchrun_env(nodes, job.gpus_per_node),
        },
        "hints": scheduler_hints(
            request, level_keys(config), config.topology_name, metrics.pods_used, metrics.groups_used
        ),
        "score": _score(metrics, solution.cost.heat),
        "baseline": {"scheduler_order": _baseline(fabric, request, usable)},
        "solver": solver,
    }


def plan_metrics(fabric: Fabric, request: Request, order: Ints) -> Metrics:
    """Metrics of a rank order under the request's group sizes."""
    job = request.job
    return measure(
        fabric,
        order,
        request.unit,
        pp=job.pp,
        ep_nodes=job.ep * job.tp // job.gpus_per_node,
        cp_nodes=job.cp * job.tp // job.gpus_per_node,
    )


def _score(metrics: Metrics, heat: int) -> dict[str, Any]:
    return {
        "tp_pairs_across_groups": metrics.tp_pairs_across_groups,
        "tp_groups_across_groups": metrics.tp_groups_across_groups,
        "tp_groups_across_domains": metrics.tp_groups_across_domains,
        "groups_used": metrics.groups_used,
        "pods_used": metrics.pods_used,
        "ring_group_crossings": metrics.ring_group_crossings,
        "dp_ring_crossings": metrics.dp_ring_crossings,
        "ep_groups_across_groups": metrics.ep_groups_across_groups,
        "cp_groups_across_groups": metrics.cp_groups_across_groups,
        "mean_switch_hops_tp": round(metrics.mean_switch_hops_tp, 3),
        "mean_switch_hops_ring": round(metrics.mean_switch_hops_ring, 3),
        "hot_uplink_penalty": round(heat / (HEAT_SCALE * SHARE_SCALE), 6),
        "cross_pod_pairs": metrics.cross_pod_pairs,
    }


def _baseline(fabric: Fabric, request: Request, usable: NDArray[np.bool_]) -> dict[str, Any]:
    """The first free nodes by name: what a scheduler without topology gives."""
    metrics = plan_metrics(fabric, request, np.flatnonzero(usable)[: request.nodes])
    return {
        "mean_switch_hops_tp": round(metrics.mean_switch_hops_tp, 3),
        "mean_switch_hops_ring": round(metrics.mean_switch_hops_ring, 3),
        "tp_pairs_across_groups": metrics.tp_pairs_across_groups,
        "groups_used": metrics.groups_used,
    }


def _placement(fabric: Fabric, request: Request, order: Ints, unit: int) -> list[dict[str, Any]]:
    """One entry a tensor-parallel group: where it sits, its ranks, hops of its node pairs, exposed communication."""
    job = request.job
    per_node = max(1, job.gpus_per_node // job.tp)
    cache: dict[tuple[int, bool, bool, float], dict[str, Any]] = {}
    out: list[dict[str, Any]] = []
    for u in range(len(order) // unit):
        members = order[u * unit : (u + 1) * unit]
        groups = sorted({int(g) for g in fabric.group[members]})
        domains = {int(d) for d in fabric.domain[members]}
        in_domain = len(domains) == 1 and -1 not in domains and unit > 1
        heat = max(request.heat.get(fabric.groups[g].name, 0.0) for g in groups)
        key = (unit, len(groups) > 1, in_domain, heat)
        if key not in cache:
            cache[key] = exposed(request, unit, len(groups) > 1, in_domain, heat).to_json()
        i, j = np.triu_indices(unit, 1)
        pair = hops(fabric, members[i], members[j])
        entry: dict[str, Any] = {
            "tp_group": u,
            "rail_group": fabric.groups[groups[0]].name,
            "pod": fabric.pods[fabric.groups[groups[0]].pod],
            "nodes": [fabric.hosts[m] for m in members],
            "switch_hops": {"mean": round(float(pair.mean()), 3), "max": int(pair.max())}
            if len(pair)
            else {"mean": 0.0, "max": 0},
            "exposed_communication": cache[key],
        }
        if len(groups) > 1:
            entry["rail_groups"] = [fabric.groups[g].name for g in groups]
        if in_domain:
            entry["nvlink_domain"] = fabric.domains[next(iter(domains))]
        for part in range(per_node):
            first = (u * per_node + part) * job.tp
            out.append({**entry, "tp_group": u * per_node + part, "ranks": [first, first + job.tp - 1]})
    return out


def _group_summary(fabric: Fabric, request: Request, order: Ints, unit: int) -> list[dict[str, Any]]:
    """Per used rail group: nodes, and the share of the job's ring traffic that is planned to leave it by its uplinks."""
    groups = fabric.group[order]
    after = np.roll(groups, -1)
    out = []
    for g in dict.fromkeys(groups.tolist()):
        mine = groups == g
        out.append(
            {
                "rail_group": fabric.groups[g].name,
                "pod": fabric.pods[fabric.groups[g].pod],
                "nodes": int(mine.sum()),
                "tp_groups": int(mine.sum()) // unit,
                "planned_leaving_share": round(
                    _leaving(request, int(mine.sum()) // unit, int((mine & (after != g)).sum())), 4
                ),
                "heat": request.heat.get(fabric.groups[g].name, 0.0),
            }
        )
    return out


def _leaving(request: Request, units: int, edges_out: int) -> float:
    """Largest share of the group's own traffic that a plan lets leave: all of it ring traffic, or all-to-all of experts."""
    if units == 0 or edges_out == 0:
        return 0.0 if edges_out == 0 else 1.0
    ring = min(1.0, edges_out / units)
    if request.job.ep * request.job.tp > request.job.gpus_per_node and request.units > 1:
        return max(ring, (request.units - units) / (request.units - 1))
    return ring


def _reasons(fabric: Fabric, request: Request, solution: Solution, avoided: Mapping[str, Sequence[str]]) -> list[str]:
    cost, bounds = solution.cost, solution.bounds
    what = f"{request.units} units of {request.unit} node{'s' if request.unit > 1 else ''}"
    where = f"{cost.groups} rail group{'s' if cost.groups > 1 else ''} in {cost.pods} pod{'s' if cost.pods > 1 else ''}"
    out = [f"{what} in {where}"]
    if cost.tp_crossings:
        out.append(
            f"{cost.tp_crossings} tensor-parallel groups cross rail groups: no placement of these free nodes has fewer"
        )
    elif request.unit > 1:
        out.append("no tensor-parallel group leaves its rail group")
    if bounds.groups and (cost.pods, cost.groups) == tuple(bounds):
        out.append("fewer pods or rail groups are impossible with the free nodes")
    if cost.nvlink_breaks:
        out.append(
            f"{cost.nvlink_breaks} tensor-parallel groups leave their NVLink domain: the domains have no more whole places"
        )
    elif request.unit > 1 and fabric.domains and request.constraints.tp_in_nvlink_domain != "ignore":
        out.append(
            "tensor-parallel groups stay inside NVLink domains: that traffic uses no rail and no adapter counter shows it"
        )
    hot = [name for name, value in request.heat.items() if value > 0]
    if hot and cost.groups > 1:
        out.append(f"uplink heat of {len(hot)} rail groups was weighed by the share of traffic that leaves them")
    if avoided:
        named = _some([f"{host} ({why[0]})" for host, why in sorted(avoided.items())])
        out.append(f"{len(avoided)} node{'s' if len(avoided) > 1 else ''} avoided: {named}")
    return out


def _alternatives(
    fabric: Fabric, request: Request, solution: Solution, usable: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Other good places: without the rail groups, then without the pods of the plan and of the alternatives before."""
    out: list[dict[str, Any]] = []
    closed = np.zeros(len(fabric.groups), dtype=bool)
    order = solution.order
    wanted = [("without the rail groups used above", False), ("without the pods used above", True)]
    while len(out) < request.alternatives:
        step, whole_pods = wanted[min(len(out), 1)]
        used = np.unique(fabric.group[order])
        closed[used] = True
        if whole_pods:
            closed |= np.isin(fabric.group_pod, fabric.group_pod[used])
        other = solve(fabric, request, usable & ~closed[fabric.group])
        if isinstance(other, Infeasible):
            out.append({"what": step, "feasible": False, "reasons": other.reasons})
            break
        order = other.order
        metrics = plan_metrics(fabric, request, order)
        out.append(
            {
                "what": step,
                "feasible": True,
                "nodes": [fabric.hosts[i] for i in order],
                "groups": {g["rail_group"]: g["nodes"] for g in _group_summary(fabric, request, order, other.unit)},
                "score": _score(metrics, other.cost.heat),
                "cost": other.cost._asdict(),
            }
        )
    return out


def _some(items: Sequence[str], count: int = 5) -> str:
    more = f" and {len(items) - count} more" if len(items) > count else ""
    return ", ".join(items[:count]) + more
