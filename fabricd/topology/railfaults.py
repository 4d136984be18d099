"""What is wrong with the wiring of the rails: crossed and missing rails, cables into another group, leaves short of uplinks."""

from __future__ import annotations

from collections import Counter, defaultdict

from fabricd.model.topology import CA, SWITCH, Fault, Topology
from fabricd.topology.names import short_name
from fabricd.topology.rails import HostPort, RailMap, recover_rails

USUAL = 3  # a mapping of adapters to rails that this many hosts share is a kind of host, not a mistake
MOST = 0.5  # a leaf misses a spine that more than this share of its peers reach


def check_rails(topology: Topology) -> RailMap:
    """Recover the rail groups and append every wiring fault to ``topology.faults``."""
    rails = recover_rails(topology)
    topology.faults.extend(crossed_rails(topology, rails))
    topology.faults.extend(missing_rails(topology, rails))
    topology.faults.extend(short_uplinks(topology, rails))
    return rails


def _by_host(rails: RailMap) -> dict[str, list[HostPort]]:
    out: dict[str, list[HostPort]] = defaultdict(list)
    for port in rails.ports:
        out[port.host].append(port)
    return out


def crossed_rails(topology: Topology, rails: RailMap) -> list[Fault]:
    """Adapters on another rail of their group than their number says, and adapters cabled into another group.

    A host's mapping that several hosts share is taken for their kind (adapters numbered otherwise), not for crossed cables.
    """
    shapes: dict[int, Counter[frozenset[tuple[int, int]]]] = defaultdict(Counter)
    shape_of: dict[str, frozenset[tuple[int, int]]] = {}
    faults: list[Fault] = []
    by_host = _by_host(rails)
    for host, ports in by_host.items():
        group = rails.group_of_host.get(host)
        if group is None or rails.groups[group].kind != "compute":
            continue
        pairs: set[tuple[int, int]] = set()
        for port in ports:
            at, rail = rails.rail_of_leaf.get(port.leaf, (group, -1))
            if at != group and rails.groups[at].kind == "compute" and port.leaf not in rails.shared_leaves:
                faults.append(
                    Fault(
                        "miscabled",
                        host,
                        f"{topology.port_name(*port.ref)} of {rails.groups[group].name} is cabled to "
                        f"{topology.port_name(port.leaf, port.leaf_port)} of {rails.groups[at].name}",
                        [port.ref, (port.leaf, port.leaf_port)],
                    )
                )
            elif at == group and port.hca is not None and rail >= 0:
                pairs.add((port.hca, rail))
        shape_of[host] = frozenset(pairs)
        shapes[group][frozenset(pairs)] += 1
    for host, shape in shape_of.items():
        group = rails.group_of_host[host]
        usual_shape = shapes[group].most_common(1)[0][0]
        if len({rail for _, rail in usual_shape}) < len({number for number, _ in usual_shape}):
            continue  # several adapters of a host share a leaf here: there are no rails to cross
        expected = {number: rail for (at, rail), number in rails.hca_of_rail.items() if at == group}
        right = set(expected.items())
        if shape <= right:
            continue
        if any(count >= USUAL and shape <= usual for usual, count in shapes[group].items()):
            continue
        wrong = shape - right
        ports = [p for p in by_host[host] if (p.hca, rails.rail_of_leaf.get(p.leaf, (-1, -1))[1]) in wrong]
        detail = ", ".join(
            f"{topology.port_name(*p.ref)} is on rail {rails.rail_of_leaf[p.leaf][1] + 1} "
            f"({topology.port_name(p.leaf, p.leaf_port)}) "
            + (f"instead of {expected[p.hca] + 1}" if p.hca in expected else "which is another adapter's")
            for p in ports
        )
        faults.append(
            Fault("crossed_rail", host, detail, [ref for p in ports for ref in (p.ref, (p.leaf, p.leaf_port))])
        )
    return sorted(faults, key=lambda fault: (fault.kind, fault.where))


def missing_rails(topology: Topology, rails: RailMap) -> list[Fault]:
    """Hosts of a compute group with no port on one of its rails that at least half of the group's hosts are on."""
    on: dict[str, set[int]] = defaultdict(set)
    for port in rails.ports:
        group, rail = rails.rail_of_leaf.get(port.leaf, (-1, -1))
        if rails.group_of_host.get(port.host) == group:
            on[port.host].add(rail)
    faults: list[Fault] = []
    for unit in rails.groups:
        if unit.kind != "compute":
            continue
        for rail, leaves in enumerate(unit.leaves):
            without = [host for host in unit.hosts if rail not in on[host]]
            if 2 * len(without) >= len(unit.hosts):
                continue
            name = ", ".join(short_name(topology.nodes[leaf]) for leaf in leaves)
            faults += [
                Fault("missing_rail", host, f"no port on rail {rail + 1} ({name}) of {unit.name}") for host in without
            ]
    return faults


def short_uplinks(topology: Topology, rails: RailMap) -> list[Fault]:
    """Leaves with fewer uplinks than most leaves of their kind, and spines they miss which most of their peers reach."""
    up: dict[int, Counter[int]] = {leaf: Counter() for leaf in rails.rail_of_leaf}
    hosts_on: Counter[int] = Counter()
    for link in topology.links:
        for near, far in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            if near not in up:
                continue
            if topology.nodes[far].type == SWITCH and far not in up:
                up[near][far] += 1
            elif topology.nodes[far].type == CA:
                hosts_on[near] += 1
    peers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for leaf, (group, _) in rails.rail_of_leaf.items():
        peers[rails.groups[group].kind, rails.groups[group].pod].append(leaf)
    faults: list[Fault] = []
    for leaves in peers.values():
        if len(leaves) < 3:
            continue  # two leaves that differ do not say which of them is wrong
        usual = Counter(up[leaf].total() for leaf in leaves).most_common(1)[0][0]
        usual = max(usual, int(sorted(up[leaf].total() for leaf in leaves)[len(leaves) // 2]))
        for leaf in sorted(leaves):
            if up[leaf].total() < usual:
                missed = _missed_spines(leaf, up, _same_plane(leaf, leaves, up))
                detail = f"{up[leaf].total()} uplinks, most leaves have {usual}"
                if missed:
                    detail += "; no link to " + ", ".join(short_name(topology.nodes[spine]) for spine in missed)
                faults.append(Fault("short_uplinks", short_name(topology.nodes[leaf]), detail, []))
    return faults


def _same_plane(leaf: int, leaves: list[int], up: dict[int, Counter[int]]) -> list[int]:
    """The leaves that share most of this leaf's spines (in a rail-only fabric each rail has spines of its own)."""
    mine = set(up[leaf])
    return [other for other in leaves if other != leaf and mine and len(mine & set(up[other])) * 2 >= len(mine)]


def _missed_spines(leaf: int, up: dict[int, Counter[int]], peers: list[int]) -> list[int]:
    reached = Counter(spine for peer in peers for spine in up[peer])
    return sorted(spine for spine, count in reached.items() if count > MOST * len(peers) and spine not in up[leaf])
