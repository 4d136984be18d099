"""After the start: does a job sit where its plan said, are its rails uncrossed, does its traffic stay in its groups?

Traffic is judged per rail leaf from byte counters of switch ports, by conservation. With J bytes received from the job's hosts,
L sent to all hosts of the leaf, D received from and U sent to the uplinks in the same interval: at most L - D bytes went from
host to host of this leaf, so at least J - (L - D) and at most min(J, U) bytes of the job left by the uplinks. A violation is
claimed from the lower bound only. Traffic inside an NVLink domain crosses no adapter and is not judged at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fabricd.errors import UsageError
from fabricd.model.ident import parse_guid
from fabricd.model.topology import AGGREGATION, CA, PortRef, Topology
from fabricd.placement.avoid import from_faults
from fabricd.placement.fabric import Fabric, compile_fabric
from fabricd.placement.plan import SCHEMA, plan_metrics
from fabricd.placement.request import Request, parse_request

TOLERANCE = 0.05  # of the job's bytes, above what the plan lets leave


class Traffic(NamedTuple):
    """Bytes of one switch port in the interval: sent towards the cable, received from it."""

    sent: int
    received: int


@dataclass(slots=True)
class Finding:
    """``verdict``: ok, fail or unknown."""

    check: str
    verdict: str
    why: str
    detail: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"check": self.check, "verdict": self.verdict, "why": self.why, **self.detail}


def check_plan(
    plan: Any,
    topology: Topology,
    running: Sequence[str],
    traffic: Mapping[PortRef, Traffic] | None = None,
    fault_kinds: Sequence[str] = ("crossed_rail", "missing_rail", "miscabled"),
    *,
    ordered: bool = True,
) -> list[Finding]:
    """Compare a plan with ``running`` (hosts in rank order), the topology's faults and counters.

    ``ordered`` False: the order of ``running`` means nothing (a scheduler's node list). Raises UsageError on a bad plan.
    """
    if not isinstance(plan, dict) or plan.get("schema") != SCHEMA or not isinstance(plan.get("rank_order"), list):
        raise UsageError(f"--plan: not a feasible plan of schema {SCHEMA}")
    request = parse_request({"job": plan.get("job"), "constraints": plan.get("constraints") or {}}, "--plan")
    fabric = compile_fabric(topology, _domains(plan))
    return [
        _position(plan, request, fabric, running, ordered),
        _rails(topology, running, fault_kinds),
        *_stay(plan, topology, fabric, running, traffic),
        *_nvlink(plan),
    ]


def _domains(plan: dict[str, Any]) -> dict[str, str]:
    return {
        host: entry["nvlink_domain"]
        for entry in plan.get("placement", [])
        if isinstance(entry, dict) and "nvlink_domain" in entry
        for host in entry.get("nodes", [])
    }


def _position(plan: dict[str, Any], request: Request, fabric: Fabric, running: Sequence[str], ordered: bool) -> Finding:
    planned = plan["rank_order"]
    if not ordered and sorted(running) == sorted(planned):
        return Finding("position", "ok", "the nodes are the planned ones; their rank order is not known", {})
    if list(running) == planned:
        return Finding("position", "ok", "every rank is where the plan put it", {})
    missing = sorted(set(planned) - set(running))
    extra = sorted(set(running) - set(planned))
    detail: dict[str, Any] = {"missing": missing, "unplanned": extra}
    if not ordered:
        return Finding(
            "position", "fail", f"{len(missing)} planned nodes are not in use, {len(extra)} others are", detail
        )
    moved = [i for i, (a, b) in enumerate(zip(planned, running, strict=False)) if a != b]
    detail["first_node_rank_that_differs"] = moved[0] if moved else min(len(planned), len(running))
    effect = ""
    if len(running) == len(planned) and all(h in fabric.index for h in [*planned, *running]):
        one, two = (
            plan_metrics(fabric, request, np.array([fabric.index[h] for h in hosts], dtype=np.int64))
            for hosts in (planned, running)
        )
        detail["effect"] = {
            key: [round(getattr(one, key), 3), round(getattr(two, key), 3)]
            for key in (
                "mean_switch_hops_tp",
                "mean_switch_hops_ring",
                "tp_groups_across_groups",
                "ring_group_crossings",
            )
        }
        effect = f"; switch hops of tensor-parallel pairs {one.mean_switch_hops_tp:.2f} planned, {two.mean_switch_hops_tp:.2f} now"
    what = (
        f"{len(extra)} nodes are not the planned ones"
        if extra
        else "the nodes are the planned ones, the rank order is not"
    )
    if missing and not extra:
        what = f"{len(missing)} planned nodes are not in use"
    return Finding("position", "fail", what + effect, detail)


def _rails(topology: Topology, running: Sequence[str], kinds: Sequence[str]) -> Finding:
    flags = from_faults(topology, kinds)
    bad = {host: flags[host] for host in dict.fromkeys(running) if host in flags}
    if not bad:
        return Finding("rails", "ok", "no node of the job has crossed, missing or miscabled rails", {})
    first = next(iter(bad))
    return Finding("rails", "fail", f"{len(bad)} nodes have rail faults: {first}: {bad[first][0]}", {"nodes": bad})


def _stay(
    plan: dict[str, Any],
    topology: Topology,
    fabric: Fabric,
    running: Sequence[str],
    traffic: Mapping[PortRef, Traffic] | None,
) -> list[Finding]:
    planned = {g["rail_group"]: float(g["planned_leaving_share"]) for g in plan.get("groups", [])}
    hosts = set(running)
    out: list[Finding] = []
    for index, group in enumerate(fabric.groups):
        if not hosts.intersection(fabric.members(index)):
            continue
        name = group.name
        where = {"rail_group": name}
        if traffic is None:
            out.append(Finding("traffic", "unknown", f"{name}: no counters given", where))
            continue
        allowed = planned.get(name)
        if allowed is None:
            out.append(Finding("traffic", "fail", f"{name}: the plan puts nothing here", where))
            continue
        out.append(_judge(name, allowed, _leaf_bounds(topology, group.leaves, hosts, traffic)))
    return out


def _nvlink(plan: dict[str, Any]) -> list[Finding]:
    domains = sorted({entry["nvlink_domain"] for entry in plan.get("placement", []) if "nvlink_domain" in entry})
    if not domains:
        return []
    why = "tensor-parallel traffic stays inside NVLink domains: no adapter counter shows it, so it is not judged"
    return [Finding("nvlink", "unknown", why, {"nvlink_domains": domains})]


def _judge(name: str, allowed: float, leaves: list[tuple[int, float, float] | str]) -> Finding:
    """The leaf with the highest lower bound decides; a leaf that cannot be judged leaves the group unknown."""
    blind = [leaf for leaf in leaves if isinstance(leaf, str)]
    seen = [leaf for leaf in leaves if not isinstance(leaf, str)]
    detail: dict[str, Any] = {"rail_group": name, "planned_leaving_share": allowed, "not_observable": blind}
    if seen:
        leaf, low, high = max(seen, key=lambda s: s[1])
        detail |= {"leaf": f"0x{leaf:016x}", "leaving_share": [round(low, 4), round(high, 4)]}
        if low > allowed + TOLERANCE:
            text = f"{name}: at least {low:.0%} of the job's traffic leaves by the uplinks of one rail, the plan lets {allowed:.0%}"
            return Finding("traffic", "fail", text, detail)
        if not blind and max(high for _, _, high in seen) <= allowed + TOLERANCE:
            return Finding("traffic", "ok", f"{name}: traffic stays as planned", detail)
    if blind:
        return Finding("traffic", "unknown", f"{name}: {blind[0]}", detail)
    if not seen:
        return Finding("traffic", "unknown", f"{name}: the job sent nothing by its rails in the interval", detail)
    return Finding(
        "traffic", "unknown", f"{name}: other traffic on the uplinks hides whether the job's own leaves", detail
    )


def _leaf_bounds(
    topology: Topology, rails: Sequence[Sequence[int]], hosts: set[str], traffic: Mapping[PortRef, Traffic]
) -> list[tuple[int, float, float] | str]:
    """(leaf, lower, upper share leaving) per leaf with traffic of the job, or why a leaf cannot be judged."""
    leaves = {leaf for rail in rails for leaf in rail}
    cables: dict[int, list[tuple[int, int]]] = {leaf: [] for leaf in leaves}
    for link in topology.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            if near[0] in leaves:
                cables[near[0]].append((near[1], far[0]))
    out: list[tuple[int, float, float] | str] = []
    for leaf in sorted(leaves):
        name = topology.nodes[leaf].name if leaf in topology.nodes else f"0x{leaf:016x}"
        job = to_hosts = up = down = 0
        problem = ""
        for port, peer in cables[leaf]:
            node = topology.nodes.get(peer)
            if node is not None and node.type == AGGREGATION:
                if any(traffic.get((leaf, port), (0, 0))):
                    problem = f"{name}: in-network reduction breaks conservation of bytes"
                continue
            if (leaf, port) not in traffic:
                problem = f"{name} port {port}: no counter"
                continue
            sent, received = traffic[leaf, port]
            if node is not None and node.type == CA:
                to_hosts += sent
                job += received if node.host in hosts else 0
            else:
                up, down = up + sent, down + received
        if problem:
            out.append(problem)
        elif job:
            local = max(0, to_hosts - down)
            out.append((leaf, max(0, job - local) / job, min(job, up) / job))
    return out


def parse_counters(document: Any, where: str) -> dict[PortRef, Traffic]:
    """``{"ports": [{"guid", "port", "sent_bytes", "received_bytes"}]}``: bytes within one interval. Raises UsageError.

    A port whose value is null is missing (not observed), not 0.
    """
    if not isinstance(document, dict) or not isinstance(document.get("ports"), list):
        raise UsageError(f'{where}: must be an object with a list "ports"')
    out: dict[PortRef, Traffic] = {}
    for number, row in enumerate(document["ports"]):
        try:
            values = row["sent_bytes"], row["received_bytes"]
            ref = parse_guid(str(row["guid"])), int(row["port"])
            if any(v is None for v in values):
                continue
            sent, received = (int(v) for v in values)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{where}: ports[{number}] = {row!r:.80}: {type(error).__name__} {error}") from None
        if sent < 0 or received < 0:
            raise UsageError(f"{where}: ports[{number}] = {row!r:.80}: bytes cannot be negative")
        out[ref] = Traffic(sent, received)
    return out
