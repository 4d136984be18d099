"""The topology as placement sees it: hosts in arrays, rail groups, pods, separate fabrics, NVLink domains, wiring of each host.

Rail groups come from ``topology/`` (``Topology.rails``); this module adds what a solver and an exporter need: one group
per host, pods (given, or derived from shared upper switches), connected components (*roots*), and (device, port, rail) of
every adapter.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabricd.model.topology import CA, SWITCH, Node, RailGroup, Topology
from fabricd.topology.names import parse_adapter_name
from fabricd.topology.rails import natural_key as natural

Ints = NDArray[np.int64]
DOMAIN_LABELS = ("nvlink_domain", "nvidia.com/gpu.clique", "accelerator.topograph.run/domain")


@dataclass(frozen=True, slots=True)
class RailPort:
    """One adapter port of a host: the RDMA device, its port, the rail its cable is on (None: no leaf of the group)."""

    device: str
    port: int
    rail: int | None
    plane: int
    leaf: int


@dataclass(frozen=True, slots=True)
class Group:
    """A rail group: ``pod`` and ``root`` are indices, ``leaves[k]`` the leaf GUIDs of rail k."""

    name: str
    pod: int
    root: int
    leaves: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Fabric:
    """``group`` and ``domain`` are indexed by host; a domain of -1 means that the host has no multi-node NVLink."""

    name: str
    source: str
    digest: str
    hosts: list[str]
    group: Ints
    domain: Ints
    groups: list[Group]
    pods: list[str]
    roots: int
    domains: list[str]
    storage: list[str] = field(default_factory=list)
    management: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    wiring: dict[str, list[RailPort]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = {host: i for i, host in enumerate(self.hosts)}

    @property
    def group_pod(self) -> Ints:
        return np.array([group.pod for group in self.groups], dtype=np.int64)

    @property
    def group_root(self) -> Ints:
        return np.array([group.root for group in self.groups], dtype=np.int64)

    def members(self, group: int) -> list[str]:
        return [self.hosts[i] for i in np.flatnonzero(self.group == group)]


def device_of(node: Node) -> str:
    """RDMA device name of an adapter: ``HCA-5`` is ``mlx5_4`` (it counts from 1); "" when the description names none."""
    device = node.labels.get("device") or parse_adapter_name(node.name).device
    if device.startswith("HCA-"):
        return f"mlx5_{int(device[4:]) - 1}"
    return device


def compile_fabric(topology: Topology, nvlink: dict[str, str] | None = None) -> Fabric:
    """Build the placement view. ``nvlink`` maps host to NVLink domain and overrides the adapters' labels.

    A host listed in several compute groups stays in the one that holds most of its cables (ties: the first by name) and
    a note says so; hosts with adapters that no group lists are ``unplaced``.
    """
    compute = sorted((g for g in topology.rails if g.kind == "compute"), key=lambda g: natural(g.name))
    adapters = _adapters(topology)
    peers = topology.neighbours()
    notes: list[str] = []
    home = _homes(compute, adapters, peers, notes)
    root_of = _components(topology, compute)
    pods, group_pod, roots = _pods(topology, compute, root_of)
    groups = [
        Group(g.name, group_pod[i], roots[i], tuple(tuple(rail) for rail in g.leaves)) for i, g in enumerate(compute)
    ]
    hosts = sorted(home, key=natural)
    other = {kind: {h for g in topology.rails if g.kind == kind for h in g.hosts} for kind in ("storage", "management")}
    named = set(home) | other["storage"] | other["management"]
    domain_of = dict(nvlink or {})
    for host, nodes in adapters.items():
        for node in nodes:
            for key in DOMAIN_LABELS:
                if key in node.labels:
                    domain_of.setdefault(host, node.labels[key])
    domains = sorted({domain_of[h] for h in hosts if h in domain_of}, key=natural)
    domain_index = {name: i for i, name in enumerate(domains)}
    return Fabric(
        name=topology.fabric,
        source=topology.source,
        digest=topology_digest(topology),
        hosts=hosts,
        group=np.array([home[h] for h in hosts], dtype=np.int64),
        domain=np.array([domain_index.get(domain_of.get(h, ""), -1) for h in hosts], dtype=np.int64),
        groups=groups,
        pods=pods,
        roots=max(roots, default=-1) + 1,
        domains=domains,
        storage=sorted(other["storage"] - set(home), key=natural),
        management=sorted(other["management"] - other["storage"] - set(home), key=natural),
        unplaced=sorted(set(adapters) - named, key=natural),
        wiring={h: _wiring(adapters.get(h, []), compute[home[h]], peers) for h in hosts},
        notes=notes,
    )


def topology_digest(topology: Topology) -> str:
    """A short digest of who is in which group on which leaves, whatever the groups are called."""
    text = "\n".join(
        sorted(f"{g.kind}|{','.join(sorted(g.hosts))}|{sorted(map(sorted, g.leaves))}" for g in topology.rails)
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _adapters(topology: Topology) -> dict[str, list[Node]]:
    out: dict[str, list[Node]] = {}
    for _, node in sorted(topology.nodes.items()):
        if node.type == CA and node.host:
            out.setdefault(node.host, []).append(node)
    return out


def _homes(
    compute: list[RailGroup],
    adapters: dict[str, list[Node]],
    peers: dict[tuple[int, int], tuple[int, int]],
    notes: list[str],
) -> dict[str, int]:
    listed: dict[str, list[int]] = {}
    for i, group in enumerate(compute):
        for host in group.hosts:
            listed.setdefault(host, []).append(i)
    home: dict[str, int] = {}
    for host, options in listed.items():
        home[host] = options[0]
        if len(set(options)) > 1:
            leaves = {leaf: i for i in options for rail in compute[i].leaves for leaf in rail}
            votes = Counter(
                leaves[peers[node.guid, port][0]]
                for node in adapters.get(host, [])
                for port in range(1, node.num_ports + 1)
                if (node.guid, port) in peers and peers[node.guid, port][0] in leaves
            )
            home[host] = max(options, key=lambda i: (votes[i], -i))
            names = ", ".join(compute[i].name for i in options)
            notes.append(f"{host} is listed in {names}: kept in {compute[home[host]].name}")
    return home


def _components(topology: Topology, compute: list[RailGroup]) -> dict[int, int]:
    """Switch GUID -> representative of its connected fabric. The leaves of one group belong together by their hosts."""
    parent: dict[int, int] = {guid: guid for guid, node in topology.nodes.items() if node.type == SWITCH}
    for group in compute:
        for rail in group.leaves:
            for leaf in rail:
                parent.setdefault(leaf, leaf)

    def find(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for link in topology.links:
        if link.a[0] in parent and link.b[0] in parent:
            parent[find(link.a[0])] = find(link.b[0])
    for group in compute:
        leaves = [leaf for rail in group.leaves for leaf in rail]
        for leaf in leaves[1:]:
            parent[find(leaf)] = find(leaves[0])
    return {guid: find(guid) for guid in parent}


def _pods(
    topology: Topology, compute: list[RailGroup], root_of: dict[int, int]
) -> tuple[list[str], list[int], list[int]]:
    """Pod names, pod of each group, root of each group. Unnamed pods: groups that share a switch above their leaves."""
    leaf_group = {leaf: i for i, group in enumerate(compute) for rail in group.leaves for leaf in rail}
    linked = any(link.a[0] in leaf_group or link.b[0] in leaf_group for link in topology.links)
    roots: list[int] = []
    numbers: dict[int, int] = {}
    for group in compute:
        leaf = next((leaf for rail in group.leaves for leaf in rail), None)
        # Without any cable known (groups given by hand) everything is taken as one fabric.
        component = root_of[leaf] if linked and leaf is not None else -1
        roots.append(numbers.setdefault(component, len(numbers)))
    below: dict[int, set[int]] = {}
    for link in topology.links:
        for here, there in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            upper = topology.nodes.get(there)
            if here in leaf_group and there not in leaf_group and upper is not None and upper.type == SWITCH:
                below.setdefault(there, set()).add(leaf_group[here])
    parent = list(range(len(compute)))

    def find(x: int) -> int:
        while parent[x] != x:
            x = parent[x]
        return x

    for members in below.values():
        first, *rest = sorted(members)
        for other in rest:
            low, high = sorted((find(first), find(other)))
            parent[high] = low
    pods: list[str] = []
    index: dict[tuple[int, str], int] = {}
    taken = {g.pod for g in compute if g.pod}
    number = 0
    of_group: list[int] = []
    for i, group in enumerate(compute):
        key = (roots[i], group.pod or f"\0{find(i) if linked else 0}")
        if key not in index:
            name = group.pod
            if not name:
                number += 1
                while f"pod{number}" in taken:
                    number += 1
                name = f"pod{number}"
            index[key] = len(pods)
            pods.append(name)
        of_group.append(index[key])
    return pods, of_group, roots


def _wiring(nodes: list[Node], group: RailGroup, peers: dict[tuple[int, int], tuple[int, int]]) -> list[RailPort]:
    rail_of = {leaf: k for k, rail in enumerate(group.leaves) for leaf in rail}
    out: list[RailPort] = []
    for node in nodes:
        device = device_of(node)
        for port in range(1, max(node.num_ports, 1) + 1):
            peer = peers.get((node.guid, port))
            if peer is not None:
                out.append(RailPort(device, port, rail_of.get(peer[0]), node.plane, peer[0]))
    return sorted(out, key=lambda p: (natural(p.device), p.port, p.leaf))
