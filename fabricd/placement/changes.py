"""What changed between two topologies as a scheduler sees them, and why: the text of watch mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fabricd.jobs.hostlist import compress
from fabricd.model.topology import Fault, Topology
from fabricd.placement.fabric import Fabric


def membership_changes(before: Fabric, after: Fabric) -> list[dict[str, Any]]:
    """Hosts that joined, left or moved, by rail group; rail groups and pods that appeared or vanished."""
    old = {host: before.groups[int(before.group[i])].name for host, i in before.index.items()}
    new = {host: after.groups[int(after.group[i])].name for host, i in after.index.items()}
    moved: dict[tuple[str, str, str], list[str]] = {}
    for host in old.keys() | new.keys():
        was, now = old.get(host, ""), new.get(host, "")
        if was != now:
            what = "joined" if not was else "left" if not now else "moved"
            moved.setdefault((what, was, now), []).append(host)
    out: list[dict[str, Any]] = [
        {"what": what, "nodes": compress(hosts), **({"from": was} if was else {}), **({"to": now} if now else {})}
        for (what, was, now), hosts in sorted(moved.items())
    ]
    for what, names_before, names_after in (
        ("rail_group", {g.name for g in before.groups}, {g.name for g in after.groups}),
        ("pod", set(before.pods), set(after.pods)),
    ):
        out += [{"what": f"{what}_gone", "name": name} for name in sorted(names_before - names_after)]
        out += [{"what": f"{what}_new", "name": name} for name in sorted(names_after - names_before)]
    if before.roots != after.roots:
        out.append({"what": "separate_fabrics", "from": before.roots, "to": after.roots})
    return out


def causes(before: Topology, after: Topology, limit: int = 20) -> list[str]:
    """Why: faults that came or went, switches and cables that came or went; the first ``limit`` of them."""
    out = [f"new fault {_text(f)}" for f in _minus(after.faults, before.faults)]
    out += [f"fault gone {_text(f)}" for f in _minus(before.faults, after.faults)]
    for word, one, other in (("gone", before, after), ("new", after, before)):
        out += [
            f"{node.type} {word}: {node.name}" for guid, node in sorted(one.nodes.items()) if guid not in other.nodes
        ]
    cables = {(link.a, link.b) for link in before.links}, {(link.a, link.b) for link in after.links}
    for word, lost, source in (("gone", cables[0] - cables[1], before), ("new", cables[1] - cables[0], after)):
        out += [f"cable {word}: {source.port_name(*a)} - {source.port_name(*b)}" for a, b in sorted(lost)]
    return out if len(out) <= limit else [*out[:limit], f"and {len(out) - limit} more"]


def _minus(one: Sequence[Fault], other: Sequence[Fault]) -> list[Fault]:
    known = {(f.kind, f.where, f.detail) for f in other}
    return [f for f in one if (f.kind, f.where, f.detail) not in known]


def _text(fault: Fault) -> str:
    return f"{fault.kind} at {fault.where}: {fault.detail}"
