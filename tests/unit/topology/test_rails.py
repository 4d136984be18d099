"""Rail groups recovered from generated fabrics with random faults: a hundred seeded trials of every kind."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fabricd.model.topology import CA, Node, Topology
from fabricd.topology.assemble import label_everything
from fabricd.topology.ibnetdiscover import parse_ibnetdiscover
from fabricd.topology.railfaults import check_rails
from fabricd.topology.rails import natural_key, recover_rails
from tests.fabrics import (
    LEAF_GUID,
    SPINE_GUID,
    Builder,
    add_storage,
    cross_rails,
    forget_names,
    miscable,
    plain_fat_tree,
    ports_down,
    rail_fabric,
)

DATA = Path(__file__).parents[2] / "data" / "topology"
UNITS, HOSTS, RAILS = 4, 12, 8
TRIALS = 100


CLEAN = pickle.dumps(rail_fabric(UNITS, HOSTS, RAILS, spines=4, uplinks=1))


def fabric() -> Topology:
    topology: Topology = pickle.loads(CLEAN)
    return topology


def unit_of() -> dict[str, int]:
    return {f"gpu{number + 1:03d}": number // HOSTS for number in range(UNITS * HOSTS)}


def partition(topology: Topology, kind: str = "compute") -> set[frozenset[str]]:
    return {frozenset(group.hosts) for group in topology.rails if group.kind == kind}


TRUTH = {frozenset(host for host, unit in unit_of().items() if unit == number) for number in range(UNITS)}

Break = Callable[[Topology, Random], object]
KINDS: dict[str, Break] = {
    "one port down": lambda t, r: ports_down(t, r, 1),
    "five ports down": lambda t, r: ports_down(t, r, 5),
    "twenty ports down": lambda t, r: ports_down(t, r, 20),
    "one miscable": lambda t, r: miscable(t, r, 1, unit_of()),
    "five miscables": lambda t, r: miscable(t, r, 5, unit_of()),
    "five crossed hosts": lambda t, r: cross_rails(t, r, 5),
    "one name in eight missing": lambda t, r: forget_names(t, r, 1 / 8),
    "storage leaves": lambda t, r: add_storage(t),
    "five of each": lambda t, r: (
        miscable(t, r, 5, unit_of()),
        cross_rails(t, r, 5),
        ports_down(t, r, 5),
        add_storage(t),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_exact_in_99_of_100_trials(kind: str) -> None:
    exact = 0
    for seed in range(TRIALS):
        topology = fabric()
        KINDS[kind](topology, Random(seed))
        recover_rails(topology)
        exact += partition(topology) == TRUTH
    assert exact >= 99


def test_the_rails_of_a_clean_fabric_are_in_order_and_nothing_is_wrong() -> None:
    topology = fabric()
    rails = check_rails(topology)
    assert topology.faults == []
    for number, group in enumerate(topology.rails):
        assert group.leaves == [[LEAF_GUID + number * 256 + rail] for rail in range(RAILS)]
        assert group.hosts == sorted(group.hosts)
        assert group.pod == "pod1"
    assert rails.shared_leaves == set()


def test_crossed_hosts_are_named_and_nobody_else() -> None:
    for seed in range(TRIALS):
        topology = fabric()
        crossed = cross_rails(topology, Random(seed), 5)
        check_rails(topology)
        assert {fault.where for fault in topology.faults} == crossed
        assert {fault.kind for fault in topology.faults} == {"crossed_rail"}


def test_miscabled_hosts_are_named_and_lack_that_rail() -> None:
    for seed in range(TRIALS):
        topology = fabric()
        hosts = miscable(topology, Random(seed), 5, unit_of())
        check_rails(topology)
        assert {fault.where for fault in topology.faults if fault.kind == "miscabled"} == hosts
        assert {fault.where for fault in topology.faults if fault.kind == "missing_rail"} == hosts


def test_ports_that_are_down_are_missing_rails() -> None:
    for seed in range(TRIALS):
        topology = fabric()
        lost = ports_down(topology, Random(seed), 5)
        hosts = {topology.nodes[ref[0]].host for link in lost for ref in (link.a, link.b)} - {""}
        check_rails(topology)
        assert {fault.where for fault in topology.faults} == hosts
        assert len(topology.faults) == len(lost)


def test_unnamed_adapters_get_the_host_the_wiring_shows_and_never_a_wrong_one() -> None:
    found = total = 0
    for seed in range(20):
        topology = fabric()
        truth = forget_names(topology, Random(seed), 1 / 8)
        recover_rails(topology)
        for guid, host in truth.items():
            total += 1
            named = topology.nodes[guid].host
            assert named in ("", host)
            found += named == host
    assert found / total > 0.95


def test_storage_leaves_are_a_group_of_their_own() -> None:
    topology = add_storage(fabric())
    label_everything(topology)
    rails = recover_rails(topology)
    (storage,) = [group for group in topology.rails if group.kind == "storage"]
    assert storage.hosts == [f"store{number:02d}" for number in range(1, 5)]
    assert len(rails.shared_leaves) == 2
    assert all(len(group.leaves) == RAILS for group in topology.rails if group.kind == "compute")


def test_a_storage_adapter_swapped_with_a_compute_adapter_is_named() -> None:
    topology = add_storage(fabric())
    label_everything(topology)
    number = {node.labels.get("hca"): guid for guid, node in topology.nodes.items() if node.host == "gpu020"}
    three, eight = number["3"], number["8"]
    swap = {three: eight, eight: three}
    for link in topology.links:
        link.a, link.b = sorted((swap.get(guid, guid), port) for guid, port in (link.a, link.b))
    check_rails(topology)
    (fault,) = topology.faults
    assert (fault.kind, fault.where) == ("crossed_rail", "gpu020")
    assert "mlx5_8 is on rail 4" in fault.detail


def test_a_leaf_without_some_uplinks_and_a_spine_out_of_reach_are_named() -> None:
    topology = fabric()
    leaf = LEAF_GUID + 256 + 3
    topology.links = [link for link in topology.links if {link.a[0], link.b[0]} != {leaf, SPINE_GUID + 2}]
    check_rails(topology)
    (fault,) = topology.faults
    assert (fault.kind, fault.where) == ("short_uplinks", "LEAF-02-04")
    assert "3 uplinks, most leaves have 4" in fault.detail
    assert "SPINE-03" in fault.detail


def test_a_whole_rail_missing_at_many_hosts_is_named_for_each() -> None:
    topology = fabric()
    lacking = [f"gpu{number:03d}" for number in range(1, 6)]
    gone = {guid for guid, node in topology.nodes.items() if node.host in lacking and node.labels["hca"] == "5"}
    topology.links = [link for link in topology.links if not {link.a[0], link.b[0]} & gone]
    check_rails(topology)
    assert partition(topology) == TRUTH
    assert sorted(fault.where for fault in topology.faults if fault.kind == "missing_rail") == lacking


def test_a_management_host_on_one_rail_is_no_compute_host() -> None:
    topology = fabric()
    build = Builder(topology)
    build.used = {LEAF_GUID + 2: set(range(1, 60))}
    build.cable(LEAF_GUID + 2, build.adapter(0xABC, "ufm01 mlx5_0", "ufm01"))
    label_everything(topology)
    check_rails(topology)
    assert partition(topology) == TRUTH
    (group,) = [group for group in topology.rails if group.kind == "management"]
    assert group.hosts == ["ufm01"]
    assert topology.faults == []


def test_a_kind_of_host_that_numbers_its_adapters_otherwise_is_not_crossed() -> None:
    topology = fabric()
    for node in topology.nodes.values():
        if node.type == CA and node.host in {f"gpu{number:03d}" for number in range(1, 6)}:
            node.name = f"{node.host} HCA-{RAILS - int(node.labels.pop('hca'))}"
    label_everything(topology)
    check_rails(topology)
    assert topology.faults == []


def test_hca_n_counts_from_one() -> None:
    topology = fabric()
    for node in topology.nodes.values():
        if node.type == CA and node.host.endswith(("1", "2", "3")):
            node.name = f"{node.host} HCA-{int(node.labels.pop('hca')) + 1}"
    label_everything(topology)
    check_rails(topology)
    assert topology.faults == []


def test_two_planes_make_one_rail_of_two_leaves() -> None:
    build = Builder()
    leaves = {
        (rail, plane): build.switch(LEAF_GUID + rail * 2 + plane, f"leaf-r{rail}p{plane}")
        for rail in range(2)
        for plane in range(2)
    }
    for host in range(4):
        for rail in range(2):
            guid = 0x1000 + host * 16 + rail
            build.topology.nodes[guid] = Node(guid, CA, f"n{host} mlx5_{rail}", 2)
            for plane in range(2):
                build.cable(leaves[rail, plane], guid)
    label_everything(build.topology)
    recover_rails(build.topology)
    (group,) = build.topology.rails
    assert group.leaves == [[LEAF_GUID, LEAF_GUID + 1], [LEAF_GUID + 2, LEAF_GUID + 3]]


def test_hosts_with_all_adapters_on_one_leaf_have_no_rails_to_cross() -> None:
    build = Builder()
    for leaf in range(4):
        build.switch(LEAF_GUID + leaf, f"leaf{leaf}")
        for host in range(2):
            for hca in range(4):
                name = f"n{leaf * 2 + host}"
                build.cable(
                    LEAF_GUID + leaf, build.adapter(0x1000 + leaf * 64 + host * 16 + hca, f"{name} mlx5_{hca}", name)
                )
    label_everything(build.topology)
    check_rails(build.topology)
    assert build.topology.faults == []
    assert [len(group.hosts) for group in build.topology.rails] == [2] * 4


def test_small_units_survive_a_miscable_and_a_port_that_is_down() -> None:
    """Two hosts a unit and four rails: the least there can be to vote with."""
    for seed in range(TRIALS):
        topology = rail_fabric(4, 2, 4, spines=2, uplinks=1)
        label_everything(topology)
        units = {f"gpu{number + 1:03d}": number // 2 for number in range(8)}
        random = Random(seed)
        miscable(topology, random, 1, units)
        recover_rails(topology)
        assert partition(topology) == {frozenset({f"gpu{n:03d}", f"gpu{n + 1:03d}"}) for n in (1, 3, 5, 7)}


def test_a_plain_fat_tree_has_one_group_a_leaf() -> None:
    topology = plain_fat_tree(leaves=4, spines=2, hosts=3)
    check_rails(topology)
    assert [len(group.hosts) for group in topology.rails] == [3] * 4
    assert all(len(group.leaves) == 1 for group in topology.rails)
    assert topology.faults == []


def test_nothing_at_all() -> None:
    topology = Topology()
    check_rails(topology)
    assert topology.rails == []


def test_the_dump_with_traps() -> None:
    topology = parse_ibnetdiscover((DATA / "ibnetdiscover_traps.txt").read_text())
    check_rails(topology)
    assert [(group.hosts, len(group.leaves)) for group in topology.rails] == [
        (["gpu001", "gpu002"], 2),
        (["gpu005"], 2),
    ]
    faults = {(fault.kind, fault.where) for fault in topology.faults}
    assert ("crossed_rail", "gpu002") in faults
    assert ("factory_name", "0xb8599f030000010c") in faults
    assert ("short_uplinks", "IBLEAF-02-02") in faults
    assert len(faults) == 3


def test_natural_order() -> None:
    assert sorted(["gpu10", "gpu2", "gpu02b", "a"], key=natural_key) == ["a", "gpu2", "gpu02b", "gpu10"]
