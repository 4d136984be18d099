"""The tree and the SVG picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from fabricd.model.topology import Topology
from fabricd.topology.assemble import label_everything
from fabricd.topology.ibnetdiscover import parse_ibnetdiscover
from fabricd.topology.railfaults import check_rails
from fabricd.topology.svg import render_svg
from fabricd.topology.tree import fold_hosts, render_tree, tiers
from tests.fabrics import (
    CORE_GUID,
    LEAF_GUID,
    SPINE_GUID,
    Builder,
    dragonfly,
    plain_fat_tree,
    rail_fabric,
    three_tier,
    torus,
)

DATA = Path(__file__).parents[2] / "data" / "topology"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_tree_of_the_traps() -> None:
    topology = parse_ibnetdiscover((DATA / "ibnetdiscover_traps.txt").read_text())
    check_rails(topology)
    tree = render_tree(topology)
    assert "6 switches, 3 hosts with 7 adapters, 18 links, 4 SHARP nodes (18 at 400 Gb/s)" in tree
    assert "├─ su1: 2 hosts, 2 rails" in tree
    assert "│  └─ hosts: gpu[001-002]" in tree
    assert "rail 2: IBLEAF-02-02 (1 up)" in tree
    assert "1 × crossed rail" in tree
    assert "hosts: " not in render_tree(topology, hosts=False)


def test_tiers() -> None:
    level = tiers(three_tier())
    assert (level[LEAF_GUID], level[SPINE_GUID], level[CORE_GUID]) == (1, 2, 3)
    assert set(tiers(dragonfly()).values()) == {1}


def test_folded_host_lists() -> None:
    assert fold_hosts(["gpu003", "gpu001", "gpu002", "x", "gpu10", "y9", "y10"]) == "gpu[001-003], gpu10, x, y[9-10]"
    assert fold_hosts([]) == ""


@pytest.mark.parametrize("build", [plain_fat_tree, three_tier, dragonfly, torus, rail_fabric, Topology])
def test_every_switch_and_cable_is_in_the_picture(build: type[Topology]) -> None:
    topology = build()
    label_everything(topology)
    topology.faults.clear()
    check_rails(topology)
    picture = render_svg(topology)
    assert picture == render_svg(topology)
    root = ElementTree.fromstring(picture)
    labels = {element.text for element in root.iter(f"{SVG}text")}
    switches = [node for node in topology.nodes.values() if node.type == "switch"]
    assert {node.labels.get("short") or node.name for node in switches} <= labels
    lines = [e for e in root.iter(f"{SVG}line") if e.find(f"{SVG}title") is not None]
    drawn = sum(int(str(e.findtext(f"{SVG}title")).rsplit(": ", 1)[1].split()[0]) for e in lines)
    assert drawn == sum(1 for link in topology.links if "internal" not in link.labels)


def test_many_hosts_become_one_box_a_leaf_and_names_are_escaped() -> None:
    topology = plain_fat_tree(leaves=24, spines=2, hosts=18)
    topology.nodes[LEAF_GUID].name = '<leaf & "1">'
    check_rails(topology)
    texts = [e.text for e in ElementTree.fromstring(render_svg(topology)).iter(f"{SVG}text")]
    assert texts.count("18 adapters") == 24


def test_a_faulty_cable_is_red() -> None:
    topology = rail_fabric(units=2, hosts=4, rails=4, spines=1, uplinks=1)
    link = next(link for link in topology.links if link.a[0] == LEAF_GUID and link.a[1] == 1)
    topology.links.remove(link)
    Builder(topology).cable(LEAF_GUID + 256, link.b[0], 40, 1)
    label_everything(topology)
    check_rails(topology)
    root = ElementTree.fromstring(render_svg(topology))
    red = [e.findtext(f"{SVG}title") for e in root.iter(f"{SVG}line") if e.get("stroke") == "#d64545"]
    assert red == ["LEAF-02-01 - gpu001: 1 link"]
