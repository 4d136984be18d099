"""Generated fabrics as ``model.topology.Topology``: leaf-spine, three-tier fat tree, rail pods, dragonfly, ring.

GUIDs are fixed by position, so the same call gives the same fabric. Host ports come first on a switch (1..), up-links after.
"""

from __future__ import annotations

from fabricd.errors import UsageError
from fabricd.model.topology import CA, SWITCH, Link, Node, RailGroup, Topology

_SWITCH_BASE = 0xB83FD20300800000
_ADAPTER_BASE = 0xB83FD20300A00000


class _Builder:
    """Adds nodes and cables; the next free port of each node is used."""

    def __init__(self, fabric: str) -> None:
        self.topology = Topology(fabric=fabric, source="generated")
        self._used: dict[int, int] = {}
        self._switches = self._adapters = 0

    def switch(self, name: str, **labels: str) -> int:
        guid = _SWITCH_BASE + self._switches * 0x40
        self._switches += 1
        self.topology.nodes[guid] = Node(guid, SWITCH, name, system_guid=guid, labels=dict(labels))
        return guid

    def adapter(self, name: str, host: str, **labels: str) -> int:
        guid = _ADAPTER_BASE + self._adapters * 0x10
        self._adapters += 1
        node = Node(guid, CA, name, num_ports=1, system_guid=guid, port_guids={1: guid}, host=host, labels=dict(labels))
        self.topology.nodes[guid] = node
        return guid

    def cable(self, a: int, b: int, gbps: float) -> None:
        ends = []
        for guid in (a, b):
            self._used[guid] = port = self._used.get(guid, 0) + 1
            node = self.topology.nodes[guid]
            node.num_ports = max(node.num_ports, port)
            ends.append((guid, port))
        width, speed = _speed(gbps)
        self.topology.links.append(Link(ends[0], ends[1], gbps, width, speed))


def _speed(gbps: float) -> tuple[int, str]:
    names = {40.0: "QDR", 56.0: "FDR", 100.0: "EDR", 200.0: "HDR", 400.0: "NDR", 800.0: "XDR"}
    return 4, names.get(gbps, "")


def leaf_spine(
    leaves: int, hosts: int, spines: int, host_gbps: float = 400, up_gbps: float = 400, cables: int = 1
) -> Topology:
    """``leaves`` x ``hosts`` single-NIC hosts under ``spines``, ``cables`` parallel links per leaf and spine."""
    _positive(leaves=leaves, hosts=hosts, spines=spines, cables=cables)
    b = _Builder("leaf-spine")
    leaf = [b.switch(f"leaf{n}", role="leaf") for n in range(leaves)]
    spine = [b.switch(f"spine{n}", role="spine") for n in range(spines)]
    for n in range(leaves):
        for k in range(hosts):
            name = f"host{n * hosts + k}"
            b.cable(b.adapter(name, name), leaf[n], host_gbps)
    for n in range(leaves):
        for s in range(spines):
            for _ in range(cables):
                b.cable(leaf[n], spine[s], up_gbps)
    return b.topology


def fat_tree(k: int, gbps: float = 400) -> Topology:
    """Three tiers of k-port switches: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k^3/4 hosts."""
    if k < 4 or k % 2:
        raise UsageError(f"fat tree of {k}-port switches: k must be even and at least 4")
    half = k // 2
    b = _Builder(f"fat-tree-{k}")
    edges = [[b.switch(f"edge{p}-{n}", role="leaf", pod=str(p)) for n in range(half)] for p in range(k)]
    aggs = [[b.switch(f"agg{p}-{n}", role="spine", pod=str(p)) for n in range(half)] for p in range(k)]
    cores = [b.switch(f"core{n}", role="core") for n in range(half * half)]
    count = 0
    for p in range(k):
        for edge in edges[p]:
            for _ in range(half):
                b.cable(b.adapter(f"host{count}", f"host{count}"), edge, gbps)
                count += 1
        for edge in edges[p]:
            for agg in aggs[p]:
                b.cable(edge, agg, gbps)
        for n, agg in enumerate(aggs[p]):
            for c in range(half):
                b.cable(agg, cores[n * half + c], gbps)
    return b.topology


def rail_pods(pods: int, hosts: int, spines: int, rails: int = 8, gbps: float = 400, cables: int = 1) -> Topology:
    """Rail-optimised pods: NIC r of every host of a pod on rail leaf r; all leaves of rail r under the same spines."""
    _positive(pods=pods, hosts=hosts, spines=spines, rails=rails, cables=cables)
    b = _Builder("rail-pods")
    leaf = [
        [b.switch(f"pod{p}-rail{r}", role="leaf", pod=str(p), rail=str(r)) for r in range(rails)] for p in range(pods)
    ]
    spine = [b.switch(f"spine{n}", role="spine") for n in range(spines)]
    for p in range(pods):
        names = [f"host{p * hosts + h}" for h in range(hosts)]
        for name in names:
            for r in range(rails):
                b.cable(b.adapter(f"{name}-nic{r}", name, rail=str(r)), leaf[p][r], gbps)
        b.topology.rails.append(RailGroup(f"pod{p}", names, [[leaf[p][r]] for r in range(rails)], pod=str(p)))
    for p in range(pods):
        for r in range(rails):
            for s in range(spines):
                for _ in range(cables):
                    b.cable(leaf[p][r], spine[s], gbps)
    return b.topology


def dragonfly(groups: int, routers: int, hosts: int, gbps: float = 400) -> Topology:
    """``groups`` of ``routers`` fully meshed; one global cable between each two groups, spread over the routers."""
    _positive(groups=groups, routers=routers, hosts=hosts)
    b = _Builder("dragonfly")
    router = [[b.switch(f"g{g}-r{r}", role="leaf", group=str(g)) for r in range(routers)] for g in range(groups)]
    count = 0
    for g in range(groups):
        for r in range(routers):
            for _ in range(hosts):
                b.cable(b.adapter(f"host{count}", f"host{count}"), router[g][r], gbps)
                count += 1
    for g in range(groups):
        for r in range(routers):
            for other in range(r + 1, routers):
                b.cable(router[g][r], router[g][other], gbps)
    used = [0] * groups
    for g in range(groups):
        for other in range(g + 1, groups):
            b.cable(router[g][used[g] % routers], router[other][used[other] % routers], gbps)
            used[g] += 1
            used[other] += 1
    return b.topology


def ring(switches: int, hosts: int, gbps: float = 400) -> Topology:
    """Switches in a circle with ``hosts`` each: the smallest fabric that can lock up when routed one way round."""
    if switches < 3:
        raise UsageError(f"ring of {switches} switches: at least 3")
    _positive(hosts=hosts)
    b = _Builder("ring")
    nodes = [b.switch(f"sw{n}", role="leaf") for n in range(switches)]
    for n in range(switches):
        for k in range(hosts):
            name = f"host{n * hosts + k}"
            b.cable(b.adapter(name, name), nodes[n], gbps)
    for n in range(switches):
        b.cable(nodes[n], nodes[(n + 1) % switches], gbps)
    return b.topology


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise UsageError(f"{name} = {value}: must be at least 1")
