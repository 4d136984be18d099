"""Seeded generators of fabrics as :class:`Topology`: rail-optimised fat trees, three-tier trees, dragonflies, tori."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from fabricd.model.topology import AGGREGATION, CA, SWITCH, Link, Node, Topology
from fabricd.topology.names import apply_names

LEAF_GUID, SPINE_GUID, CORE_GUID = 0xB8599F0300100000, 0xB8599F0300200000, 0xB8599F0300300000
HCA_GUID, SHARP_GUID = 0xB8599F0300400000, 0xB8599F0300500000


@dataclass
class Builder:
    """Adds nodes and cables, always on the next free port unless told which."""

    topology: Topology = field(default_factory=lambda: Topology(source="generated"))
    used: dict[int, set[int]] = field(default_factory=dict)

    def switch(self, guid: int, name: str, ports: int = 64) -> int:
        node = self.topology.nodes[guid] = Node(guid, SWITCH, name, ports)
        apply_names(node)
        return guid

    def adapter(self, guid: int, name: str, host: str = "", kind: str = CA) -> int:
        node = self.topology.nodes[guid] = Node(guid, kind, name, 1, port_guids={1: guid}, host=host)
        apply_names(node)
        return guid

    def free_port(self, guid: int) -> int:
        used = self.used.setdefault(guid, set())
        return next(port for port in range(1, 4096) if port not in used)

    def cable(self, a: int, b: int, port_a: int = 0, port_b: int = 0, rate: float = 400.0) -> Link:
        port_a = port_a or self.free_port(a)
        self.used.setdefault(a, set()).add(port_a)
        port_b = port_b or self.free_port(b)
        self.used.setdefault(b, set()).add(port_b)
        link = Link((a, port_a), (b, port_b), rate, 4, "NDR")
        self.topology.links.append(link)
        return link

    def with_lids(self) -> Topology:
        """Number the ports from LID 1 on, switches first."""
        lid = 1
        for guid, node in sorted(self.topology.nodes.items(), key=lambda item: (item[1].type != SWITCH, item[0])):
            node.lids = {0 if node.type == SWITCH else 1: lid}
            self.topology.nodes[guid] = node
            lid += 1
        return self.topology


def rail_fabric(
    units: int = 4, hosts: int = 8, rails: int = 8, spines: int = 4, uplinks: int = 2, sharp: bool = True
) -> Topology:
    """``units`` scalable units of ``hosts`` hosts; NIC k of each host on leaf k of its unit; every leaf ``uplinks`` to each spine."""
    build = Builder()
    leaves = {
        (unit, rail): build.switch(
            LEAF_GUID + unit * 256 + rail, f"MF0;LEAF-{unit + 1:02d}-{rail + 1:02d}:MQM9700/U1", 65
        )
        for unit in range(units)
        for rail in range(rails)
    }
    for (unit, rail), leaf in leaves.items():
        for number in range(hosts):
            host = f"gpu{unit * hosts + number + 1:03d}"
            guid = build.adapter(HCA_GUID + (unit * hosts + number) * 16 + rail, f"{host} mlx5_{rail}", host)
            build.cable(leaf, guid, number + 1, 1)
    for spine in range(spines):
        guid = build.switch(SPINE_GUID + spine, f"MF0;SPINE-{spine + 1:02d}:MQM9700/U1", 65)
        for number, leaf in enumerate(leaves.values()):
            for uplink in range(uplinks):
                build.cable(leaf, guid, 33 + spine * uplinks + uplink, number * uplinks + uplink + 1)
    if sharp:
        for number, guid in enumerate([guid for guid, node in build.topology.nodes.items() if node.type == SWITCH]):
            node = build.adapter(SHARP_GUID + number, "Mellanox Technologies Aggregation Node", kind=AGGREGATION)
            build.cable(guid, node, 65, 1)
    return build.with_lids()


def plain_fat_tree(leaves: int = 4, spines: int = 2, hosts: int = 4, uplinks: int = 1) -> Topology:
    """Two tiers, single-rail hosts, names as the switches and hosts of a lab: ``leaf00``, ``spine00``, ``h000``."""
    build = Builder()
    for leaf in range(leaves):
        build.switch(LEAF_GUID + leaf, f"leaf{leaf:02d}", 36)
        for number in range(hosts):
            name = f"h{leaf * hosts + number:03d}"
            build.cable(LEAF_GUID + leaf, build.adapter(HCA_GUID + leaf * hosts + number, name, name))
    for spine in range(spines):
        build.switch(SPINE_GUID + spine, f"spine{spine:02d}", 36)
        for leaf in range(leaves):
            for _ in range(uplinks):
                build.cable(LEAF_GUID + leaf, SPINE_GUID + spine)
    return build.with_lids()


def three_tier(pods: int = 2, leaves: int = 2, aggs: int = 2, cores: int = 2, hosts: int = 2) -> Topology:
    build = Builder()
    for core in range(cores):
        build.switch(CORE_GUID + core, f"core{core:02d}", 36)
    for pod in range(pods):
        for agg in range(aggs):
            guid = build.switch(SPINE_GUID + pod * 256 + agg, f"agg{pod:02d}x{agg:02d}", 36)
            for core in range(agg * cores // aggs, (agg + 1) * cores // aggs):
                build.cable(guid, CORE_GUID + core)
        for leaf in range(leaves):
            guid = build.switch(LEAF_GUID + pod * 256 + leaf, f"leaf{pod:02d}x{leaf:02d}", 36)
            for number in range(hosts):
                index = (pod * leaves + leaf) * hosts + number
                build.cable(guid, build.adapter(HCA_GUID + index, f"h{index:03d}", f"h{index:03d}"))
            for agg in range(aggs):
                build.cable(guid, SPINE_GUID + pod * 256 + agg)
    return build.with_lids()


def dragonfly(groups: int = 4, routers: int = 3, hosts: int = 2) -> Topology:
    """Routers of a group fully meshed; every pair of groups joined by one cable, dealt over the routers."""
    build = Builder()
    for group in range(groups):
        for router in range(routers):
            guid = build.switch(LEAF_GUID + group * 256 + router, f"g{group:02d}r{router:02d}", 36)
            for number in range(hosts):
                index = (group * routers + router) * hosts + number
                build.cable(guid, build.adapter(HCA_GUID + index, f"h{index:03d}", f"h{index:03d}"))
            for other in range(router):
                build.cable(guid, LEAF_GUID + group * 256 + other)
    for a in range(groups):
        for b in range(a):
            build.cable(LEAF_GUID + a * 256 + b % routers, LEAF_GUID + b * 256 + a % routers)
    return build.with_lids()


def torus(size: tuple[int, int, int] = (3, 3, 2), hosts: int = 1) -> Topology:
    build = Builder()
    x_size, y_size, z_size = size
    cells = [(x, y, z) for x in range(x_size) for y in range(y_size) for z in range(z_size)]
    guid_of = {cell: LEAF_GUID + number for number, cell in enumerate(cells)}
    for cell in cells:
        build.switch(guid_of[cell], "t{}{}{}".format(*cell), 36)
        for number in range(hosts):
            index = cells.index(cell) * hosts + number
            build.cable(guid_of[cell], build.adapter(HCA_GUID + index, f"h{index:03d}", f"h{index:03d}"))
    for x, y, z in cells:
        for near in (((x + 1) % x_size, y, z), (x, (y + 1) % y_size, z), (x, y, (z + 1) % z_size)):
            pair = {guid_of[x, y, z], guid_of[near]}
            if len(pair) == 2 and not (
                (x_size == 2 and near[0] < x) or (y_size == 2 and near[1] < y) or (z_size == 2 and near[2] < z)
            ):
                build.cable(guid_of[x, y, z], guid_of[near])
    return build.with_lids()


# --- random faults of a rail fabric; each returns what it did ---


def host_links(topology: Topology) -> list[Link]:
    return [link for link in topology.links if any(topology.nodes[guid].type == CA for guid, _ in (link.a, link.b))]


def _ends(topology: Topology, link: Link) -> tuple[tuple[int, int], tuple[int, int]]:
    """(adapter end, switch end)."""
    return (link.a, link.b) if topology.nodes[link.a[0]].type == CA else (link.b, link.a)


def ports_down(topology: Topology, random: Random, count: int) -> list[Link]:
    lost = random.sample(host_links(topology), count)
    for link in lost:
        topology.links.remove(link)
    return lost


def _swap(topology: Topology, one: Link, other: Link) -> None:
    """Each adapter into the other's socket."""
    (nic_a, leaf_a), (nic_b, leaf_b) = _ends(topology, one), _ends(topology, other)
    for link in (one, other):
        topology.links.remove(link)
    topology.links += [Link(nic_a, leaf_b, 400.0, 4, "NDR"), Link(nic_b, leaf_a, 400.0, 4, "NDR")]


def miscable(topology: Topology, random: Random, count: int, unit_of: dict[str, int]) -> set[str]:
    """``count`` cables plugged into a free socket of a leaf of another unit; returns the hosts concerned."""
    links = host_links(topology)
    chosen = random.sample(links, count)
    used = {ref for link in topology.links for ref in (link.a, link.b)}
    hosts = set()
    for link in chosen:
        nic, leaf = _ends(topology, link)
        unit = unit_of[topology.nodes[nic[0]].host]
        others = sorted(
            {
                _ends(topology, other)[1][0]
                for other in links
                if unit_of[topology.nodes[_ends(topology, other)[0][0]].host] != unit
            }
        )
        target = random.choice([guid for guid in others if guid != leaf[0]])
        port = next(port for port in range(1, 65) if (target, port) not in used)
        used.add((target, port))
        topology.links.remove(link)
        topology.links.append(Link(nic, (target, port), 400.0, 4, "NDR"))
        hosts.add(topology.nodes[nic[0]].host)
    return hosts


def cross_rails(topology: Topology, random: Random, count: int) -> set[str]:
    """Two NICs of each of ``count`` hosts swapped."""
    hosts = random.sample(sorted({node.host for node in topology.nodes.values() if node.host}), count)
    for host in hosts:
        mine = [link for link in host_links(topology) if topology.nodes[_ends(topology, link)[0][0]].host == host]
        _swap(topology, *random.sample(mine, 2))
    return set(hosts)


def forget_names(topology: Topology, random: Random, share: float) -> dict[int, str]:
    """This share of the adapters says what the factory wrote; returns GUID -> the true host."""
    adapters = sorted(guid for guid, node in topology.nodes.items() if node.type == CA)
    chosen = random.sample(adapters, round(share * len(adapters)))
    truth = {}
    for guid in chosen:
        node = topology.nodes[guid]
        truth[guid] = node.host
        node.name, node.host, node.labels = "MT4129 ConnectX7   Mellanox Technologies", "", {}
    return truth


def add_storage(topology: Topology, leaves: int = 2, servers: int = 4, spines: int = 4) -> Topology:
    """Storage leaves every GPU host has one more NIC on, and storage servers."""
    build = Builder(topology)
    for link in topology.links:
        for guid, port in (link.a, link.b):
            build.used.setdefault(guid, set()).add(port)
    hosts = sorted({node.host for node in topology.nodes.values() if node.host})
    storage = [
        build.switch(CORE_GUID + number, f"MF0;STORAGE-{number + 1:02d}:MQM9700/U1", 250) for number in range(leaves)
    ]
    for number, guid in enumerate(storage):
        for index, host in enumerate(hosts):
            build.cable(
                guid, build.adapter(CORE_GUID + 0x10000 * (number + 1) + index, f"{host} mlx5_{8 + number}", host)
            )
        for server in range(servers):
            name = f"store{server + 1:02d}"
            build.cable(guid, build.adapter(CORE_GUID + 0x8000 + 16 * server + number, f"{name} mlx5_{number}", name))
        for spine in range(spines):
            build.cable(guid, SPINE_GUID + spine)
    return topology
