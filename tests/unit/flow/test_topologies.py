"""Generated fabrics have the shape they say, and minimal routes reach everybody over every equal-cost port."""

from __future__ import annotations

import numpy as np
import pytest

from fabricd.errors import UsageError
from fabricd.flow.graph import compile_graph
from fabricd.flow.routing import minimal_routes, spread
from fabricd.flow.topologies import dragonfly, fat_tree, leaf_spine, rail_pods, ring
from fabricd.model.topology import CA, SWITCH, Link, Node, Topology

FABRICS = {
    "leaf-spine": (lambda: leaf_spine(4, 8, 4), 8, 32, 4 * 8 + 4 * 4),
    "leaf-spine, two cables": (lambda: leaf_spine(2, 2, 2, cables=2), 4, 4, 4 + 8),
    "fat tree": (lambda: fat_tree(6), 45, 54, 3 * 54),
    "rail pods": (lambda: rail_pods(2, 4, 4), 2 * 8 + 4, 64, 64 + 2 * 8 * 4),
    "dragonfly": (lambda: dragonfly(5, 4, 2), 20, 40, 40 + 5 * 6 + 10),
    "ring": (lambda: ring(5, 2), 5, 10, 15),
}


@pytest.mark.parametrize("name", FABRICS)
def test_counts_and_unique_cabling(name: str) -> None:
    make, switches, endpoints, cables = FABRICS[name]
    topology = make()
    kinds = [node.type for node in topology.nodes.values()]
    assert kinds.count(SWITCH) == switches
    assert kinds.count(CA) == endpoints
    assert len(topology.links) == cables
    ends = [end for link in topology.links for end in (link.a, link.b)]
    assert len(set(ends)) == len(ends)
    assert all(1 <= port <= topology.nodes[guid].num_ports for guid, port in ends)
    assert make().to_json() == topology.to_json()


@pytest.mark.parametrize("name", FABRICS)
def test_tables_lead_everywhere_without_loops(name: str) -> None:
    graph = compile_graph(FABRICS[name][0]())
    routes = minimal_routes(graph)
    for dst in range(len(graph.endpoints)):
        for src in range(0, len(graph.endpoints), 3):
            port = int(graph.endpoints[src])
            for _ in range(8):
                here = int(graph.peer[port])
                if graph.endpoint_of[here] >= 0:
                    break
                node = int(graph.node_of[here])
                port = int(graph.node_ports[node, routes.lft[node, dst]])
            assert int(graph.endpoint_of[graph.peer[port]]) == dst


def test_rail_pods_group_the_nics_of_a_host_by_rail() -> None:
    topology = rail_pods(2, 3, 2, rails=4)
    assert [len(group.hosts) for group in topology.rails] == [3, 3]
    neighbours = topology.neighbours()
    for group in topology.rails:
        for rail, leaves in enumerate(group.leaves):
            hanging = {topology.nodes[guid].host for (guid, _), (peer, _) in neighbours.items() if peer in leaves}
            assert set(group.hosts) <= hanging
            nics = [n for n in topology.nodes.values() if n.labels.get("rail") == str(rail) and n.host in group.hosts]
            assert {neighbours[nic.guid, 1][0] for nic in nics} == set(leaves)


def test_route_sets_shrink_when_a_cable_goes_and_vanish_with_the_last() -> None:
    graph = compile_graph(leaf_spine(2, 2, 2))
    leaf = graph.guids[0]
    node = graph.node_index[leaf]
    far = 2
    usable = np.ones(len(graph.ports), dtype=bool)
    assert minimal_routes(graph, usable).count[node, far] == 2
    usable[graph.port(leaf, 3)] = False
    assert minimal_routes(graph, usable).count[node, far] == 1
    usable[graph.port(leaf, 4)] = False
    routes = minimal_routes(graph, usable)
    assert routes.count[node, far] == 0
    assert routes.lft[node, far] == -1


def test_static_routes_share_the_uplinks_evenly() -> None:
    graph = compile_graph(fat_tree(6))
    routes = minimal_routes(graph)
    edge = next(n for n in range(len(graph.guids)) if graph.is_switch[n])
    remote = [h for h in range(54) if h >= 9]
    uses = np.bincount(routes.lft[edge, remote])
    assert sorted(uses[uses > 0].tolist()) == [15, 15, 15]


def test_the_hash_is_even_repeatable_and_different_per_switch() -> None:
    flows = np.random.default_rng(0).integers(0, 1 << 62, 4000)
    four = np.full(4000, 4)
    here, there = spread(flows, np.full(4000, 3), four), spread(flows, np.full(4000, 4), four)
    assert np.bincount(here, minlength=4).min() > 850
    assert 0.15 < (here == there).mean() < 0.35
    np.testing.assert_array_equal(here, spread(flows, np.full(4000, 3), four))


def test_bad_sizes_and_bad_cabling_are_refused() -> None:
    with pytest.raises(UsageError, match="even"):
        fat_tree(5)
    with pytest.raises(UsageError, match="leaves = 0"):
        leaf_spine(0, 1, 1)
    topology = leaf_spine(2, 1, 1)
    topology.links.append(topology.links[0])
    with pytest.raises(UsageError, match="cabled twice"):
        compile_graph(topology)
    lonely = Topology(nodes={1: Node(1, SWITCH, "s")})
    with pytest.raises(UsageError, match="no links"):
        compile_graph(lonely)
    lonely.links.append(Link((1, 1), (2, 1), 100))
    with pytest.raises(UsageError, match="no such node"):
        compile_graph(lonely)
