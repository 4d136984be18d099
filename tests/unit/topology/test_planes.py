"""Planes of a fabric whose adapters have a port in each."""

from __future__ import annotations

from fabricd.model.topology import CA, Node
from fabricd.topology.assemble import label_everything
from fabricd.topology.load import complete
from fabricd.topology.planes import assign_planes
from fabricd.topology.tree import summary
from tests.fabrics import LEAF_GUID, SPINE_GUID, Builder, plain_fat_tree


def two_planes() -> Builder:
    build = Builder()
    for plane in range(2):
        spine = build.switch(SPINE_GUID + plane, f"spine-p{plane}")
        for leaf in range(2):
            build.cable(build.switch(LEAF_GUID + 16 * plane + leaf, f"leaf-p{plane}-{leaf}"), spine)
    for host in range(4):
        guid = 0x1000 + host
        build.topology.nodes[guid] = Node(guid, CA, f"n{host} mlx5_0", 2)
        for plane in range(2):
            build.cable(LEAF_GUID + 16 * plane + host // 2, guid)
    label_everything(build.topology)
    return build


def test_planes_are_numbered_and_adapters_in_both_are_in_none() -> None:
    topology = complete(two_planes().topology)
    planes = {node.name: node.plane for node in topology.nodes.values()}
    assert (planes["spine-p0"], planes["leaf-p0-1"], planes["spine-p1"], planes["leaf-p1-0"]) == (1, 1, 2, 2)
    assert planes["n0 mlx5_0"] == 0
    assert "2 planes" in summary(topology)
    assert [len(group.hosts) for group in topology.rails] == [2, 2]
    assert [len(rail) for rail in topology.rails[0].leaves] == [2]


def test_an_adapter_with_one_foot_is_in_that_plane() -> None:
    build = two_planes()
    build.cable(LEAF_GUID + 16, build.adapter(0x2000, "n9 mlx5_0", "n9"))
    assert assign_planes(build.topology) == 2
    assert build.topology.nodes[0x2000].plane == 2


def test_one_plane_and_separate_fabrics_have_no_planes() -> None:
    topology = plain_fat_tree()
    assert assign_planes(topology) == 0
    build = Builder(topology)
    build.cable(build.switch(0x9000, "storage"), build.adapter(0x9001, "h000 mlx5_1", "h000"))
    assert assign_planes(topology) == 0
    assert {node.plane for node in topology.nodes.values()} == {0}
