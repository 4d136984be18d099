"""Discovery where a simulator cannot go: silent and keyed nodes, lost answers, two devices with one GUID."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fabricd.config.topology import TopologyConfig
from fabricd.errors import FabricdError
from fabricd.ib.limits import Limits
from fabricd.model.topology import Topology
from fabricd.topology.discovery import Discoverer, to_topology
from fabricd.topology.live import take_picture
from tests.fabrics import HCA_GUID, LEAF_GUID, SPINE_GUID, dragonfly, plain_fat_tree, rail_fabric, three_tier, torus
from tests.unit.topology.fake_smps import FakeSmps

QUICK = Limits(timeout_ms=20)


def discover(fake: FakeSmps, m_key: int = 0) -> Topology:
    return to_topology(Discoverer(fake, QUICK, m_key=m_key).discover())


def wires(topology: Topology) -> list[tuple[object, ...]]:
    return sorted((link.a, link.b, link.rate_gbps, link.width, link.speed) for link in topology.links)


@pytest.mark.parametrize("build", [plain_fat_tree, three_tier, dragonfly, torus, rail_fabric])
def test_what_was_built_is_found(build: type[Topology]) -> None:
    topology = build()
    found = discover(FakeSmps(topology, HCA_GUID))
    assert wires(found) == wires(topology)
    assert {guid: (n.name, n.type, n.lids) for guid, n in found.nodes.items()} == {
        guid: (n.name, n.type, n.lids) for guid, n in topology.nodes.items()
    }


def test_a_silent_node_costs_itself_and_is_not_called_gone() -> None:
    topology = plain_fat_tree(leaves=3, spines=2, hosts=2)
    found = discover(FakeSmps(topology, HCA_GUID, silent={SPINE_GUID, HCA_GUID + 3}))
    assert set(topology.nodes) - set(found.nodes) == {SPINE_GUID, HCA_GUID + 3}
    silent = [fault for fault in found.faults if fault.kind == "silent_port"]
    assert len(silent) == 4  # three leaves to the spine, one to the adapter
    assert "refused, keyed, hung or lost" in silent[0].detail
    assert found.rejects.counts["silent_smp"] == 4


def test_behind_a_silent_leaf_nothing_is_invented() -> None:
    topology = plain_fat_tree(leaves=3, spines=1, hosts=2)
    found = discover(FakeSmps(topology, HCA_GUID, silent={LEAF_GUID + 2}))
    assert HCA_GUID + 4 not in found.nodes
    assert len(found.links) == 6


def test_keyed_nodes_answer_with_the_key_only() -> None:
    topology = plain_fat_tree()
    assert wires(discover(FakeSmps(topology, HCA_GUID, m_key=0x1234), m_key=0x1234)) == wires(topology)
    with pytest.raises(FabricdError, match="M_Key"):
        take_picture(TopologyConfig(), transport=FakeSmps(topology, HCA_GUID, m_key=0x1234), limits=QUICK)


def test_the_key_file(tmp_path: Path) -> None:
    path = tmp_path / "m_key"
    path.write_text("0x1234\n")
    topology = plain_fat_tree()
    config = TopologyConfig(m_key_file=str(path))
    picture = take_picture(config, transport=FakeSmps(topology, HCA_GUID, m_key=0x1234), limits=QUICK)
    assert wires(picture.topology) == wires(topology)


def test_two_adapters_with_one_guid_are_a_fault_and_lose_only_their_links() -> None:
    topology = plain_fat_tree(leaves=2, spines=1, hosts=2)
    found = discover(FakeSmps(topology, HCA_GUID, shown={HCA_GUID + 3: HCA_GUID + 1}))
    (fault,) = [fault for fault in found.faults if fault.kind == "duplicate_guid"]
    assert fault.where == f"0x{HCA_GUID + 1:016x}"
    assert found.nodes[HCA_GUID + 1].labels["duplicate_guid"] == "yes"
    assert len(found.links) == len(topology.links) - 2


@pytest.mark.parametrize("seed", range(5))
def test_lost_answers_are_asked_again_and_the_walk_ends(seed: int) -> None:
    topology = three_tier()
    started = time.monotonic()
    found = discover(FakeSmps(topology, HCA_GUID, loss=0.05, seed=seed))
    assert time.monotonic() - started < 60
    assert set(wires(found)) <= {
        (*wire[:2], rate, width, speed) for wire in wires(topology) for rate, width, speed in {wire[2:], (0.0, 0, "")}
    }
    assert len(found.links) >= len(topology.links) // 2


def test_routes_are_assumed_where_tables_are_not_told() -> None:
    topology = plain_fat_tree(leaves=2, spines=2, hosts=2)
    picture = take_picture(TopologyConfig(), transport=FakeSmps(topology, HCA_GUID), limits=QUICK)
    assert picture.routes is not None
    assert picture.topology.rails
    assert picture.snapshot is not None


def test_changed_ports_are_seen_without_a_walk() -> None:
    topology = plain_fat_tree(leaves=2, spines=2, hosts=2)
    fake = FakeSmps(topology, HCA_GUID)
    discoverer = Discoverer(fake, QUICK)
    snapshot = discoverer.discover()
    assert discoverer.changed_ports(snapshot) == []
    link = next(link for link in topology.links if HCA_GUID + 3 in (link.a[0], link.b[0]))
    leaf = max(link.a, link.b) if link.a[0] == HCA_GUID + 3 else link.a
    del fake.rates[leaf]
    assert discoverer.changed_ports(snapshot) == [leaf]
    fake.silent = {SPINE_GUID}
    behind = {(SPINE_GUID, 0), (LEAF_GUID + 1, 0)}  # the way to the second leaf led over that spine
    assert set(discoverer.changed_ports(snapshot)) == behind
    topology.nodes[LEAF_GUID].lids = {0: 99}
    assert (LEAF_GUID, 0) in discoverer.changed_ports(snapshot)
