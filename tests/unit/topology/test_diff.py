"""Comparison with a golden file: every cable and device named once, by the right word."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from fabricd.model.topology import CA, Link, Topology
from fabricd.topology.assemble import label_everything
from fabricd.topology.diff import compare
from fabricd.topology.golden import full_json, golden_json, topology_from_json
from fabricd.topology.ibnetdiscover import parse_ibnetdiscover
from fabricd.topology.railfaults import check_rails
from tests.fabrics import HCA_GUID, LEAF_GUID, SPINE_GUID, Builder, host_links, plain_fat_tree, rail_fabric


def fabric() -> Topology:
    topology = rail_fabric(units=2, hosts=4, rails=4, spines=2, uplinks=2)
    label_everything(topology)
    topology.faults.clear()
    return topology


def kinds(golden: Topology, now: Topology) -> list[tuple[str, str]]:
    return [(difference.kind, difference.where) for difference in compare(golden, now).differences]


def link_of(topology: Topology, guid: int, port: int) -> Link:
    return next(link for link in topology.links if (guid, port) in (link.a, link.b))


def rename_guid(topology: Topology, old: int, new: int) -> None:
    node = topology.nodes.pop(old)
    node.guid = new
    node.port_guids = dict.fromkeys(node.port_guids, new)
    topology.nodes[new] = node
    for link in topology.links:
        link.a, link.b = sorted((new if guid == old else guid, port) for guid, port in (link.a, link.b))


def test_the_same_fabric_has_no_differences() -> None:
    assert kinds(fabric(), fabric()) == []


def test_a_golden_file_read_back_is_the_same_fabric() -> None:
    topology = fabric()
    check_rails(topology)
    again = topology_from_json(json.loads(golden_json(topology)))
    assert again.rejects.total == 0
    assert kinds(again, topology) == kinds(topology, again) == []
    assert again.rails == topology.rails
    assert again.port_labels == topology.port_labels
    assert golden_json(again) == golden_json(topology)
    assert topology_from_json(full_json(topology)).to_json()["nodes"] == topology.to_json()["nodes"]


def test_missing_and_added() -> None:
    golden, now = fabric(), fabric()
    lost = link_of(now, LEAF_GUID, 33)
    now.links.remove(lost)
    assert kinds(golden, now) == [("missing_link", "LEAF-01-01 33 - SPINE-01 1")]
    assert kinds(now, golden) == [("added_link", "LEAF-01-01 33 - SPINE-01 1")]


def test_slower_and_narrower() -> None:
    golden, now = fabric(), fabric()
    slow, narrow = link_of(now, LEAF_GUID, 33), link_of(now, LEAF_GUID, 34)
    slow.rate_gbps, slow.speed = 200.0, "HDR"
    narrow.rate_gbps, narrow.width = 200.0, 2
    assert kinds(golden, now) == [
        ("slower_link", "LEAF-01-01 33 - SPINE-01 1"),
        ("narrower_link", "LEAF-01-01 34 - SPINE-01 2"),
    ]
    assert [kind for kind, _ in kinds(now, golden)] == ["faster_link", "faster_link"]


def test_an_unknown_rate_is_no_difference() -> None:
    golden, now = fabric(), fabric()
    link_of(now, LEAF_GUID, 33).rate_gbps = 0.0
    assert kinds(golden, now) == []


def test_a_cable_moved_at_one_end_is_moved_and_named_by_the_end_that_stayed() -> None:
    golden, now = fabric(), fabric()
    link = link_of(now, HCA_GUID, 1)
    now.links.remove(link)
    now.links.append(Link((HCA_GUID, 1), (LEAF_GUID + 1, 40), 400.0, 4, "NDR"))
    (difference,) = compare(golden, now).differences
    assert (difference.kind, difference.where) == ("moved_link", "gpu001 mlx5_0")
    assert difference.detail == "now at LEAF-01-02 40, should be at LEAF-01-01 1"


def test_two_crossed_cables_are_two_moves() -> None:
    golden, now = fabric(), fabric()
    one, other = link_of(now, HCA_GUID, 1), link_of(now, HCA_GUID + 1, 1)
    for link in (one, other):
        now.links.remove(link)
    now.links += [Link((HCA_GUID, 1), (LEAF_GUID + 1, 1), 400.0, 4), Link((HCA_GUID + 1, 1), (LEAF_GUID, 1), 400.0, 4)]
    assert kinds(golden, now) == [("moved_link", "gpu001 mlx5_0"), ("moved_link", "gpu001 mlx5_1")]


def test_a_cable_is_known_by_its_serial_number_even_if_both_ends_moved() -> None:
    golden, now = fabric(), fabric()
    link_of(golden, LEAF_GUID, 33).labels["cable_serial"] = "MT2201"
    link = link_of(now, LEAF_GUID, 33)
    now.links.remove(link)
    now.links.append(Link((LEAF_GUID + 1, 50), (SPINE_GUID, 60), 400.0, 4, labels={"cable_serial": "MT2201"}))
    (difference,) = compare(golden, now).differences
    assert difference.kind == "moved_link"
    assert "cable MT2201 is now between LEAF-01-02 50 and SPINE-01 60" in difference.detail


def test_a_swapped_adapter_is_replaced_and_its_link_is_the_same() -> None:
    golden, now = fabric(), fabric()
    rename_guid(now, HCA_GUID, 0xAAAA)
    comparison = compare(golden, now)
    assert [(d.kind, d.where) for d in comparison.differences] == [("replaced_adapter", "gpu001 mlx5_0")]
    assert comparison.successor == {HCA_GUID: 0xAAAA}


def test_a_new_adapter_with_a_factory_name_in_the_slot_is_replaced() -> None:
    golden, now = fabric(), fabric()
    rename_guid(now, HCA_GUID, 0xAAAA)
    now.nodes[0xAAAA].name, now.nodes[0xAAAA].host = "MT4129 ConnectX7   Mellanox Technologies", ""
    assert [kind for kind, _ in kinds(golden, now)] == ["replaced_adapter"]


@pytest.mark.parametrize(
    ("label", "old", "new"), [("host", "gpu001", "gpu099"), ("pci", "0000:1b:00.0", "0000:9b:00.0")]
)
def test_another_host_or_pci_address_at_the_same_port_is_no_replacement(label: str, old: str, new: str) -> None:
    golden, now = fabric(), fabric()
    rename_guid(now, HCA_GUID, 0xAAAA)
    if label == "host":
        now.nodes[0xAAAA].host, now.nodes[0xAAAA].name = new, f"{new} mlx5_0"
    else:
        golden.nodes[HCA_GUID].labels["pci"], now.nodes[0xAAAA].labels["pci"] = old, new
    found = [kind for kind, _ in kinds(golden, now)]
    assert "replaced_adapter" not in found
    assert {"missing_node", "added_node"} <= set(found)


def test_a_swapped_switch_and_a_swapped_adapter_below_it() -> None:
    golden, now = fabric(), fabric()
    rename_guid(now, LEAF_GUID, 0xBBBB)
    rename_guid(now, HCA_GUID, 0xAAAA)
    comparison = compare(golden, now)
    assert [d.kind for d in comparison.differences] == ["replaced_switch", "replaced_adapter"]
    assert comparison.successor == {LEAF_GUID: 0xBBBB, HCA_GUID: 0xAAAA}


def test_a_device_gone_and_a_device_come_elsewhere_are_not_one() -> None:
    golden, now = fabric(), fabric()
    now.links.remove(link_of(now, HCA_GUID, 1))
    del now.nodes[HCA_GUID]
    Builder(now).cable(SPINE_GUID, Builder(now).adapter(0xCCCC, "new mlx5_0", "new"), 60, 1)
    assert [kind for kind, _ in kinds(golden, now)] == ["missing_node", "added_node", "missing_link", "added_link"]


def test_a_renamed_device() -> None:
    golden, now = fabric(), fabric()
    now.nodes[HCA_GUID].name = "MT4129 ConnectX7   Mellanox Technologies"
    (difference,) = compare(golden, now).differences
    assert difference.kind == "renamed_node"
    assert "factory" in difference.detail


def test_the_port_form_of_ibnetdiscover_knows_port_guids_only_and_is_the_same_fabric() -> None:
    data = Path(__file__).parents[2] / "data" / "topology"
    full = parse_ibnetdiscover((data / "ibnetdiscover.txt").read_text())
    ports = parse_ibnetdiscover((data / "ibnetdiscover_p.txt").read_text())
    assert set(full.nodes) != set(ports.nodes)
    golden = topology_from_json(json.loads(golden_json(full)))
    assert kinds(golden, ports) == kinds(ports, full) == []


def test_ports_split_in_two() -> None:
    golden, now = plain_fat_tree(leaves=2, spines=1, hosts=2), plain_fat_tree(leaves=2, spines=1, hosts=2)
    now.nodes[LEAF_GUID].num_ports = 72
    for link in now.links:
        link.a, link.b = sorted((g, 2 * p - 1 if g == LEAF_GUID else p) for g, p in (link.a, link.b))
    link = link_of(now, HCA_GUID, 1)
    link.width, link.rate_gbps = 2, 200.0
    Builder(now).cable(LEAF_GUID, Builder(now).adapter(0xDDDD, "h009", "h009"), 2, 1)
    found = kinds(golden, now)
    assert [kind for kind, _ in found] == ["added_node", "split_ports", "added_link", "narrower_link"]


def test_random_damage_is_named_exactly() -> None:
    """Whatever is taken away is missing, whatever is plugged elsewhere is moved; nothing else is said."""
    for seed in range(50):
        random = Random(seed)
        golden, now = fabric(), fabric()
        links = random.sample(host_links(now), 6)
        for link in links[:3]:
            now.links.remove(link)
        free = [(LEAF_GUID + 256 + rail, port) for rail in range(4) for port in range(50, 60)]
        for link, leaf in zip(links[3:], random.sample(free, 3), strict=True):
            nic = link.a if now.nodes[link.a[0]].type == CA else link.b
            now.links.remove(link)
            now.links.append(Link(nic, leaf, 400.0, 4, "NDR"))
        assert sorted(kind for kind, _ in kinds(golden, now)) == ["missing_link"] * 3 + ["moved_link"] * 3


def test_bad_elements_of_a_file_cost_only_themselves() -> None:
    document = json.loads(golden_json(fabric()))
    document["nodes"].append({"guid": "xyz"})
    document["nodes"].append(document["nodes"][0])
    document["links"].append({"a": ["0x1", 1], "b": ["0x2", 1]})
    document["links"].append(7)
    document["rails"] = [{"name": "x"}]
    topology = topology_from_json(document)
    assert topology.rejects.counts == {"bad_node": 2, "bad_link": 2, "bad_rail": 1}
    assert kinds(topology, fabric()) == []
    with pytest.raises(ValueError, match="not a topology"):
        topology_from_json({"nodes": 3})
