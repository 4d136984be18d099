"""Rail groups from a dirty fabric: which hosts share which leaves, NIC k on rail k, in spite of miscabling and ports that are down.

Method: leaves with similar host sets are clustered (average linkage over Jaccard similarity, threshold 0.5); clusters whose hosts
belong to several other clusters are shared (storage) and do not vote; each host joins the group most of its ports lead to. One
wrong cable can neither split a group nor merge two, which it does under exact-set or connected-component rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import squareform

from fabricd.model.topology import CA, SWITCH, PortRef, RailGroup, Topology
from fabricd.topology.names import short_name

SIMILAR = 0.5  # Jaccard similarity from which two leaves belong together
SHARED = 0.2  # share of a cluster's hosts outside its main other group from which the cluster counts as shared
FEW_PORTS = 0.25  # a foreign-named host with at most this share of its group's rails is a management host


@dataclass(frozen=True, slots=True)
class HostPort:
    """One adapter port on a leaf."""

    host: str
    ref: PortRef  # adapter (GUID, port)
    leaf: int
    leaf_port: int
    hca: int | None  # number of the adapter in its host, from its name


@dataclass(slots=True)
class RailMap:
    """What was recovered. ``rail_of_leaf``: leaf GUID -> (group number, rail number)."""

    groups: list[RailGroup] = field(default_factory=list)
    rail_of_leaf: dict[int, tuple[int, int]] = field(default_factory=dict)
    group_of_host: dict[str, int] = field(default_factory=dict)
    ports: list[HostPort] = field(default_factory=list)
    hca_of_rail: dict[tuple[int, int], int] = field(
        default_factory=dict
    )  # (group, rail) -> adapter number expected there
    shared_leaves: set[int] = field(default_factory=set)


def host_ports(topology: Topology) -> list[HostPort]:
    """Every named adapter port that is cabled to a switch; aggregation nodes are none."""
    out: list[HostPort] = []
    for link in topology.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            node, switch = topology.nodes.get(near[0]), topology.nodes.get(far[0])
            if node is None or switch is None or node.type != CA or switch.type != SWITCH or not node.host:
                continue
            hca = node.labels.get("hca")
            out.append(HostPort(node.host, near, far[0], far[1], int(hca) if hca is not None else None))
    return sorted(out, key=lambda port: (port.host, port.ref))


def recover_rails(topology: Topology) -> RailMap:
    """The rail groups of a topology; also sets ``topology.rails`` and the hosts of adapters nobody named."""
    result = _recover(topology)
    if infer_hosts(topology, result):
        result = _recover(topology)
    topology.rails = result.groups
    return result


def _recover(topology: Topology) -> RailMap:
    ports = host_ports(topology)
    leaves_of: dict[str, Counter[int]] = defaultdict(Counter)
    hosts_of: dict[int, set[str]] = defaultdict(set)
    for port in ports:
        leaves_of[port.host][port.leaf] += 1
        hosts_of[port.leaf].add(port.host)
    shared: set[int] = set()
    clusters = _cluster(hosts_of)
    for _ in range(3):
        more = _shared_clusters(clusters, leaves_of, hosts_of)
        if not more:
            break
        shared |= more
        clusters = _cluster({leaf: hosts for leaf, hosts in hosts_of.items() if leaf not in shared})
    group_of_host = _vote(clusters, leaves_of)
    result = RailMap(ports=ports, shared_leaves=shared)
    _fill_groups(topology, result, clusters, group_of_host, leaves_of)
    _storage_groups(topology, result, leaves_of, group_of_host)
    _name_pods(topology, result)
    return result


def _cluster(hosts_of: dict[int, set[str]]) -> dict[int, int]:
    """Leaf -> cluster number."""
    leaves = sorted(hosts_of)
    if len(leaves) < 2:
        return dict.fromkeys(leaves, 0)
    numbers = {host: i for i, host in enumerate(sorted({host for hosts in hosts_of.values() for host in hosts}))}
    present = np.zeros((len(leaves), len(numbers)), np.float32)
    for row, leaf in enumerate(leaves):
        present[row, [numbers[host] for host in hosts_of[leaf]]] = 1
    both = present @ present.T
    size = present.sum(axis=1)
    similarity = both / np.maximum(size[:, None] + size[None, :] - both, 1)
    distance = np.clip(1.0 - similarity, 0, 1).astype(np.float64)
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), "average")
    labels = fcluster(tree, 1.0 - SIMILAR + 1e-9, "distance")
    return {leaf: int(label) for leaf, label in zip(leaves, labels, strict=True)}


def _shared_clusters(
    clusters: dict[int, int], leaves_of: dict[str, Counter[int]], hosts_of: dict[int, set[str]]
) -> set[int]:
    """Leaves of clusters whose hosts belong, by their other ports, to more than one group."""
    members: dict[int, list[int]] = defaultdict(list)
    for leaf, cluster in clusters.items():
        members[cluster].append(leaf)
    out: set[int] = set()
    for cluster, leaves in members.items():
        hosts = {host for leaf in leaves for host in hosts_of[leaf]}
        others: Counter[int] = Counter()
        for host in hosts:
            votes = Counter[int]()
            own = 0
            for leaf, count in leaves_of[host].items():
                if clusters.get(leaf, cluster) != cluster:
                    votes[clusters[leaf]] += count
                elif leaf in clusters:
                    own += count
            if votes and votes.most_common(1)[0][1] >= own:
                others[min(votes, key=lambda c: (-votes[c], c))] += 1
        elsewhere = others.total() - max(others.values(), default=0)
        if elsewhere >= SHARED * len(hosts) and elsewhere:
            out.update(leaves)
    return out


def _vote(clusters: dict[int, int], leaves_of: dict[str, Counter[int]]) -> dict[str, int]:
    """Host -> cluster most of its ports lead to. Hosts on shared leaves only have no vote."""
    size = Counter(clusters.values())
    out: dict[str, int] = {}
    for host, leaves in leaves_of.items():
        votes: Counter[int] = Counter()
        for leaf, count in leaves.items():
            if leaf in clusters:
                votes[clusters[leaf]] += count
        if votes:
            out[host] = min(votes, key=lambda cluster: (-votes[cluster], -size[cluster], cluster))
    return out


def _fill_groups(
    topology: Topology,
    result: RailMap,
    clusters: dict[int, int],
    group_of_host: dict[str, int],
    leaves_of: dict[str, Counter[int]],
) -> None:
    """One RailGroup a cluster with hosts, rails in the order of the adapters, groups in the order of their leaves' names."""
    leaves: dict[int, list[int]] = defaultdict(list)
    for leaf, cluster in clusters.items():
        leaves[cluster].append(leaf)
    hosts: dict[int, list[str]] = defaultdict(list)
    for host, cluster in group_of_host.items():
        hosts[cluster].append(host)
    by_group: dict[int, list[HostPort]] = defaultdict(list)
    for port in result.ports:
        if clusters.get(port.leaf, -1) == group_of_host.get(port.host, -2):
            by_group[clusters[port.leaf]].append(port)
    order = sorted(hosts, key=lambda c: natural_key(min(short_name(topology.nodes[leaf]) for leaf in leaves[c])))
    for unit, cluster in enumerate(order, 1):
        ordered, expected = _rail_order(topology, leaves[cluster], by_group[cluster])
        compute, management = _split_management(hosts[cluster], len(ordered), leaves_of, set(leaves[cluster]))
        number = len(result.groups)
        for rail, rail_leaves in enumerate(ordered):
            result.rail_of_leaf.update(dict.fromkeys(rail_leaves, (number, rail)))
            if rail in expected:
                result.hca_of_rail[number, rail] = expected[rail]
        result.groups.append(RailGroup(f"su{unit}", compute, ordered))
        result.group_of_host.update(dict.fromkeys(compute, number))
        if management:
            used = sorted({leaf for host in management for leaf in leaves_of[host]})
            result.groups.append(RailGroup(f"su{unit}-management", management, [[leaf] for leaf in used], "management"))
            result.group_of_host.update(dict.fromkeys(management, number + 1))


def _rail_order(topology: Topology, leaves: list[int], ports: list[HostPort]) -> tuple[list[list[int]], dict[int, int]]:
    """The leaves of each rail in rail order, and the adapter number expected there: the assignment most ports agree with.

    With more leaves than adapters (two planes) the leaves an adapter's ports lead to are one rail. Ties (two hosts, one of them
    crossed) go to the reading in which leaf names and adapter numbers ascend together.
    """
    by_name = sorted(leaves, key=lambda leaf: (natural_key(short_name(topology.nodes[leaf])), leaf))
    numbers = sorted({port.hca for port in ports if port.hca is not None})
    if not numbers:
        return [[leaf] for leaf in by_name], {}
    votes: npt.NDArray[np.float64] = np.zeros((len(by_name), len(numbers)))
    row_of = {leaf: row for row, leaf in enumerate(by_name)}
    for port in ports:
        if port.hca is not None:
            votes[row_of[port.leaf], numbers.index(port.hca)] += 1
    if len(by_name) > len(numbers):
        chosen = {row: numbers[int(votes[row].argmax())] for row in range(len(by_name)) if votes[row].any()}
    else:
        rows, columns = np.indices(votes.shape)
        tie_break = 1e-6 * (1 + rows) * (1 + columns) / votes.size
        pairs = zip(*linear_sum_assignment(votes + tie_break, maximize=True), strict=True)
        chosen = {int(row): numbers[int(column)] for row, column in pairs if votes[row, column] > 0}
    rails: dict[tuple[int, int], list[int]] = {}
    for row in sorted(range(len(by_name)), key=lambda row: (chosen.get(row, 1 << 30), row)):
        rails.setdefault((chosen[row], -1) if row in chosen else (-1, row), []).append(by_name[row])
    return list(rails.values()), {rail: number for rail, (number, _) in enumerate(rails) if number >= 0}


def _split_management(
    hosts: list[str], rails: int, leaves_of: dict[str, Counter[int]], leaves: set[int]
) -> tuple[list[str], list[str]]:
    """Hosts of a group, and those among them that only borrow a port of it: few rails, and a name unlike the others'."""
    stems = Counter(_stem(host) for host in hosts)
    usual = stems.most_common(1)[0][0] if stems else ""
    management = [
        host
        for host in hosts
        if rails >= 4
        and sum(1 for leaf in leaves_of[host] if leaf in leaves) <= FEW_PORTS * rails
        and _stem(host) != usual
        and stems[_stem(host)] < len(hosts) / 2
    ]
    compute = sorted(set(hosts) - set(management), key=natural_key)
    return compute, sorted(management, key=natural_key)


def _storage_groups(
    topology: Topology, result: RailMap, leaves_of: dict[str, Counter[int]], group_of_host: dict[str, int]
) -> None:
    """One group of kind storage for the shared leaves: its hosts are those seen nowhere else."""
    if not result.shared_leaves:
        return
    ordered = sorted(result.shared_leaves, key=lambda leaf: (natural_key(short_name(topology.nodes[leaf])), leaf))
    hosts = sorted((host for host in leaves_of if host not in group_of_host), key=natural_key)
    number = len(result.groups)
    for rail, leaf in enumerate(ordered):
        result.rail_of_leaf[leaf] = (number, rail)
    result.groups.append(RailGroup("storage", hosts, [[leaf] for leaf in ordered], "storage"))
    result.group_of_host.update(dict.fromkeys(hosts, number))


def _name_pods(topology: Topology, result: RailMap) -> None:
    """Groups whose leaves, or hosts, meet below the top of the fabric are one pod: they share a second-tier switch."""
    parent = list(range(len(result.groups)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[int, int] = {}
    for link in topology.links:
        for near, far in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            switch = topology.nodes[far]
            if near in result.rail_of_leaf and switch.type == SWITCH and far not in result.rail_of_leaf:
                group = result.rail_of_leaf[near][0]
                parent[root(group)] = root(first.setdefault(far, group))
    numbers: dict[int, int] = {}
    for i, unit in enumerate(result.groups):
        if unit.kind == "management":
            parent[i] = root(i - 1)
        unit.pod = f"pod{numbers.setdefault(root(i), len(numbers) + 1)}"


def infer_hosts(topology: Topology, result: RailMap) -> int:
    """Give adapters with no host name one, where the wiring pattern names it: the host that has the same port number on most
    other leaves of the group and nothing on this rail. Returns how many; each is labelled ``host_from=wiring``."""
    at: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)  # (group, leaf port) -> hosts there
    rails_of: dict[str, set[int]] = defaultdict(set)
    for port in result.ports:
        group, rail = result.rail_of_leaf.get(port.leaf, (-1, -1))
        if group >= 0 and result.group_of_host.get(port.host) == group:
            at[group, port.leaf_port][port.host] += 1
            rails_of[port.host].add(rail)
    named: dict[tuple[str, int], list[int]] = defaultdict(list)
    for link in topology.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            node = topology.nodes[near[0]]
            if node.type != CA or node.host or far[0] not in result.rail_of_leaf:
                continue
            group, rail = result.rail_of_leaf[far[0]]
            candidates = at[group, far[1]].most_common(2)
            if not candidates or (len(candidates) == 2 and candidates[0][1] == candidates[1][1]):
                continue
            host, count = candidates[0]
            if rail not in rails_of[host] and 2 * count >= len(rails_of[host]) and count >= 2:
                named[host, rail].append(node.guid)
    found = 0
    for (host, _), guids in named.items():
        if len(guids) == 1:
            topology.nodes[guids[0]].host = host
            topology.nodes[guids[0]].labels["host_from"] = "wiring"
            found += 1
    return found


def _stem(name: str) -> str:
    return name.rstrip("0123456789").rstrip("-_.")


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts ``gpu2`` before ``gpu10``."""
    parts: list[tuple[int, int, str]] = []
    number = ""
    for char in name + "\0":
        if char.isdecimal() and char.isascii():
            number += char
            continue
        if number:
            parts.append((0, int(number), ""))
            number = ""
        parts.append((1, 0, char))
    return tuple(parts)
