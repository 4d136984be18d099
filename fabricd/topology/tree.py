"""The fabric as a tree for people: pods, rail groups, leaves, hosts; then what is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fabricd.model.topology import AGGREGATION, CA, ROUTER, SWITCH, RailGroup, Topology
from fabricd.topology.names import short_name
from fabricd.topology.rails import natural_key

MANY = 40  # faults shown of one kind


def tiers(topology: Topology) -> dict[int, int]:
    """Switch GUID -> tier: 1 with hosts, 2 next to tier 1, ...; 0 for switches that reach no host."""
    near: dict[int, set[int]] = defaultdict(set)
    tier: dict[int, int] = {guid: 0 for guid, node in topology.nodes.items() if node.type == SWITCH}
    for link in topology.links:
        for (guid, _), (peer, _) in ((link.a, link.b), (link.b, link.a)):
            if guid in tier and peer in tier:
                near[guid].add(peer)
            elif guid in tier and topology.nodes[peer].type in (CA, ROUTER):
                tier[guid] = 1
    frontier = [guid for guid, level in tier.items() if level == 1]
    level = 1
    while frontier:
        level += 1
        after = {peer for guid in frontier for peer in near[guid] if tier[peer] == 0}
        for guid in after:
            tier[guid] = level
        frontier = sorted(after)
    return tier


def render_tree(topology: Topology, hosts: bool = True) -> str:
    """The whole tree; ``hosts=False`` leaves out the lines of single hosts."""
    return "\n".join(_lines(topology, hosts)) + "\n"


def summary(topology: Topology) -> str:
    """One line: what the fabric consists of."""
    kinds = Counter(node.type for node in topology.nodes.values())
    names = {node.host for node in topology.nodes.values() if node.host}
    rates = Counter(link.rate_gbps for link in topology.links)
    parts = [
        f"{kinds[SWITCH]} switches",
        f"{len(names)} hosts with {kinds[CA]} adapters",
        f"{len(topology.links)} links",
    ]
    if kinds[AGGREGATION]:
        parts.append(f"{kinds[AGGREGATION]} SHARP nodes")
    planes = {node.plane for node in topology.nodes.values()} - {0}
    if planes:
        parts.append(f"{len(planes)} planes")
    speeds = ", ".join(
        f"{count} at {rate:g} Gb/s" if rate else f"{count} of unknown rate" for rate, count in sorted(rates.items())
    )
    return ", ".join(parts) + (f" ({speeds})" if speeds else "")


def _lines(topology: Topology, hosts: bool) -> Iterator[str]:
    yield f"fabric {topology.fabric}: {summary(topology)}"
    level = tiers(topology)
    grouped = {leaf for group in topology.rails for rail in group.leaves for leaf in rail}
    up = _uplinks(topology, level)
    for tier in sorted({t for t in level.values() if t != 1}, reverse=True):
        title = f"tier {tier}" if tier else "switches that reach no host"
        members = sorted(
            (g for g, t in level.items() if t == tier), key=lambda g: natural_key(short_name(topology.nodes[g]))
        )
        yield f"{title}: " + ", ".join(short_name(topology.nodes[guid]) for guid in members)
    pods: dict[str, list[RailGroup]] = defaultdict(list)
    for group in topology.rails:
        pods[group.pod].append(group)
    for pod, groups in pods.items():
        yield pod or "no pod"
        for number, group in enumerate(groups):
            last = number == len(groups) - 1
            yield from _group(topology, group, "   " if last else "│  ", "└─ " if last else "├─ ", up, hosts)
    loose = [guid for guid, tier in level.items() if tier == 1 and guid not in grouped]
    if loose:
        yield "leaves of no group: " + ", ".join(
            sorted((short_name(topology.nodes[g]) for g in loose), key=natural_key)
        )
    yield from _faults(topology)


def _uplinks(topology: Topology, level: dict[int, int]) -> Counter[int]:
    up: Counter[int] = Counter()
    for link in topology.links:
        for near, far in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            if near in level and far in level and level[far] > level[near]:
                up[near] += 1
    return up


def _group(
    topology: Topology, group: RailGroup, indent: str, head: str, up: Counter[int], hosts: bool
) -> Iterator[str]:
    kind = "" if group.kind == "compute" else f" ({group.kind})"
    rails = f", {len(group.leaves)} rails" if len(group.leaves) > 1 else ""
    yield f"{head}{group.name}{kind}: {len(group.hosts)} host{'s' if len(group.hosts) != 1 else ''}{rails}"
    for number, leaves in enumerate(group.leaves, 1):
        names = ", ".join(
            f"{short_name(topology.nodes[leaf])} ({up[leaf]} up)" for leaf in leaves if leaf in topology.nodes
        )
        branch = "├─ " if hosts and group.hosts else ("└─ " if number == len(group.leaves) else "├─ ")
        yield f"{indent}{branch}rail {number}: {names}"
    if hosts and group.hosts:
        yield f"{indent}└─ hosts: {fold_hosts(group.hosts)}"


def fold_hosts(names: list[str]) -> str:
    """``gpu001 gpu002 gpu003 x`` -> ``gpu[001-003], x``."""
    runs: list[tuple[str, str, str]] = []  # (stem, first, last), digits as written
    for name in sorted(names, key=natural_key):
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        if runs and digits and runs[-1][0] == stem and _follows(runs[-1][2], digits):
            runs[-1] = (stem, runs[-1][1], digits)
        else:
            runs.append((stem, digits, digits))
    return ", ".join(f"{stem}{first}" if first == last else f"{stem}[{first}-{last}]" for stem, first, last in runs)


def _follows(before: str, after: str) -> bool:
    padded = before.startswith("0") or after.startswith("0")
    return bool(before) and (len(before) == len(after) or not padded) and int(after) == int(before) + 1


def _faults(topology: Topology) -> Iterator[str]:
    if not topology.faults and not topology.rejects.total:
        yield "nothing wrong was found"
        return
    by_kind: dict[str, list[str]] = defaultdict(list)
    for fault in topology.faults:
        by_kind[fault.kind].append(f"{fault.where}: {fault.detail}")
    for kind, lines in sorted(by_kind.items()):
        yield f"{len(lines)} × {kind.replace('_', ' ')}"
        yield from (f"   {line}" for line in lines[:MANY])
        if len(lines) > MANY:
            yield f"   ... and {len(lines) - MANY} more (--json lists all)"
    for kind, count in sorted(topology.rejects.counts.items()):
        yield f"{count} × not understood: {kind.replace('_', ' ')}"
