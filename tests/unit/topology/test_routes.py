"""Route tables: sets of egress ports, what an ingress may use, minimal hops, size."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.model.topology import Topology
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import NO_ROUTE, Frame, RouteTable
from tests.fabrics import (
    HCA_GUID,
    LEAF_GUID,
    SPINE_GUID,
    Builder,
    dragonfly,
    plain_fat_tree,
    rail_fabric,
    three_tier,
    torus,
)


def ports_between(topology: Topology, a: int, b: int) -> list[int]:
    out = []
    for link in topology.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            if near[0] == a and far[0] == b:
                out.append(near[1])
    return sorted(out)


def test_fat_tree_sets_are_all_uplinks_and_the_host_port() -> None:
    topology = plain_fat_tree(leaves=3, spines=2, hosts=2, uplinks=2)
    routes = assumed_routes(topology)
    leaf, far_leaf = LEAF_GUID, LEAF_GUID + 2
    local, remote = HCA_GUID, HCA_GUID + 5
    assert routes.egress(leaf, local) == ports_between(topology, leaf, local)
    uplinks = sorted(ports_between(topology, leaf, SPINE_GUID) + ports_between(topology, leaf, SPINE_GUID + 1))
    assert routes.egress(leaf, remote) == uplinks
    assert routes.egress(SPINE_GUID, remote) == ports_between(topology, SPINE_GUID, far_leaf)
    assert routes.source == "assumed"


def test_ingress_of_a_spine_never_turns_back_to_its_leaf() -> None:
    topology = plain_fat_tree(leaves=3, spines=2, hosts=2)
    routes = assumed_routes(topology)
    for leaf in range(3):
        (ingress,) = ports_between(topology, SPINE_GUID, LEAF_GUID + leaf)
        expected = sorted(p for o in range(3) if o != leaf for p in ports_between(topology, SPINE_GUID, LEAF_GUID + o))
        assert routes.allowed_egress(SPINE_GUID, ingress) == expected


def test_from_spine_traffic_only_goes_down() -> None:
    topology = plain_fat_tree(leaves=3, spines=2, hosts=2)
    routes = assumed_routes(topology)
    (down,) = ports_between(topology, LEAF_GUID, SPINE_GUID)
    hosts = sorted(ports_between(topology, LEAF_GUID, HCA_GUID) + ports_between(topology, LEAF_GUID, HCA_GUID + 1))
    assert routes.allowed_egress(LEAF_GUID, down) == hosts
    (host,) = ports_between(topology, LEAF_GUID, HCA_GUID)
    assert host not in routes.allowed_egress(LEAF_GUID, host)
    assert set(hosts) - {host} <= set(routes.allowed_egress(LEAF_GUID, host))


def test_single_path_routes_exclude_what_no_host_sends_there() -> None:
    """Destination-based routes: spine 1 has an entry for host 0, but every leaf sends host 0's traffic to spine 0."""
    topology = plain_fat_tree(leaves=2, spines=2, hosts=2)
    spine_of = {HCA_GUID + n: SPINE_GUID + n % 2 for n in range(4)}
    tables: dict[int, dict[tuple[int, int], list[int]]] = {}
    for leaf in (LEAF_GUID, LEAF_GUID + 1):
        tables[leaf] = {
            (host, 1): ports_between(topology, leaf, host) or ports_between(topology, leaf, spine_of[host])
            for host in spine_of
        }
    for spine in (SPINE_GUID, SPINE_GUID + 1):
        tables[spine] = {
            (host, 1): ports_between(topology, spine, LEAF_GUID + number // 2) for number, host in enumerate(spine_of)
        }
    routes = RouteTable.build(topology, tables, "lft")
    (from_spine1,) = ports_between(topology, LEAF_GUID, SPINE_GUID + 1)
    assert routes.allowed_egress(LEAF_GUID, from_spine1) == ports_between(topology, LEAF_GUID, HCA_GUID + 1)
    assert routes.source == "lft"


def test_unknown_switch_destination_and_missing_route() -> None:
    topology = plain_fat_tree(leaves=2, spines=1, hosts=1)
    routes = RouteTable.build(topology, {LEAF_GUID: {(HCA_GUID, 1): [1], (0xDEAD, 1): [2]}, 0xBEEF: {}}, "config")
    assert routes.egress(LEAF_GUID, HCA_GUID + 1) == []
    assert (
        routes.group[routes.frame.switch_index[LEAF_GUID], routes.frame.destination_index[HCA_GUID + 1, 1]] == NO_ROUTE
    )
    with pytest.raises(KeyError):
        routes.egress(LEAF_GUID, 0xDEAD)
    with pytest.raises(KeyError):
        routes.egress(0xBEEF, HCA_GUID)


def test_known_switches_keep_their_routes_and_the_rest_is_assumed() -> None:
    topology = plain_fat_tree(leaves=2, spines=2, hosts=1)
    up = ports_between(topology, LEAF_GUID, SPINE_GUID + 1)
    known = RouteTable.build(topology, {LEAF_GUID: {(HCA_GUID + 1, 1): up, (HCA_GUID, 1): [1]}}, "lft")
    routes = assumed_routes(topology, known)
    assert routes.egress(LEAF_GUID, HCA_GUID + 1) == up
    assert len(routes.egress(LEAF_GUID + 1, HCA_GUID)) == 2
    assert routes.source == "mixed"
    assert routes.sources[routes.frame.switch_index[LEAF_GUID]] == "lft"


def test_disconnected_part_has_no_route() -> None:
    build = Builder()
    for number in range(2):
        build.cable(build.switch(LEAF_GUID + number, f"s{number}"), build.adapter(HCA_GUID + number, f"h{number}"))
    routes = assumed_routes(build.topology)
    assert routes.egress(LEAF_GUID, HCA_GUID + 1) == []
    assert routes.allowed_egress(LEAF_GUID, 1) == []
    assert routes.walk(0, 1) == []


def test_aggregation_nodes_are_no_destinations() -> None:
    topology = rail_fabric(units=1, hosts=2, rails=2, spines=1)
    assert len(Frame(topology).destinations) == 4


@pytest.mark.parametrize("topology", [plain_fat_tree(), three_tier(), dragonfly(), torus(), rail_fabric(2, 2, 2)])
def test_through_agrees_with_allowed_egress_and_sums_to_one(topology: Topology) -> None:
    routes = assumed_routes(topology)
    through = routes.through
    for row, guid in enumerate(routes.switches):
        part = through.of_switch(row)
        for ingress in np.unique(through.ingress[part]):
            mine = through.ingress[part] == ingress
            assert through.egress[part][mine].tolist() == routes.allowed_egress(int(guid), int(ingress))
            assert through.weight[part][mine].sum() == pytest.approx(1.0, abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_walk_ends_at_its_destination(data: st.DataObject) -> None:
    topology = data.draw(st.sampled_from([three_tier(), dragonfly(), torus(), plain_fat_tree()]))
    routes = assumed_routes(topology)
    count = len(routes.destinations)
    source, destination = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    crossed = routes.walk(source, destination)
    frame = routes.frame
    last = (int(frame.attach_switch[destination]), int(frame.attach_port[destination]))
    assert sum(share for row, port, share in crossed if (row, port) == last) == pytest.approx(1.0)
    hops_out_of_source = [share for row, _, share in crossed if row == int(frame.attach_switch[source])]
    assert sum(hops_out_of_source) == pytest.approx(1.0)


def test_a_routing_loop_ends() -> None:
    build = Builder()
    for number in range(2):
        build.cable(build.switch(LEAF_GUID + number, f"s{number}"), build.adapter(HCA_GUID + number, f"h{number}"))
    build.cable(LEAF_GUID, LEAF_GUID + 1)
    build.cable(LEAF_GUID + 1, build.adapter(HCA_GUID + 2, "h2"))
    looping = {LEAF_GUID: {(HCA_GUID + 2, 1): [2]}, LEAF_GUID + 1: {(HCA_GUID + 2, 1): [2]}}
    routes = RouteTable.build(build.topology, looping, "lft")
    assert 0 < len(routes.walk(0, 2)) <= 10
    assert routes.carried.any()


def test_a_table_takes_few_bytes_a_route() -> None:
    topology = rail_fabric(units=40, hosts=16, rails=8, spines=32, uplinks=1, sharp=False)
    start = time.process_time()
    routes = assumed_routes(topology)
    seconds = time.process_time() - start
    assert routes.group.shape == (352, 5120)
    assert routes.group.dtype == np.uint16
    bytes_per_cell = routes.nbytes / routes.group.size
    assert bytes_per_cell * 1000 * 5000 < 100e6  # a thousand switches, five thousand hosts
    assert seconds < 60
