"""The links file of a RoCE twin is the twin's plan, as fabricd reads it."""

from __future__ import annotations

from fabricd.topology.lldp import parse_links_file
from fabricd.twin.wiring import links_file
from tests.unit.twin.static_fabric import leaf_spine


def test_the_file_says_what_the_plan_says() -> None:
    plan = leaf_spine(technology="ethernet", gbps=200)
    topology, _ = parse_links_file(links_file(plan))
    assert not topology.rejects.total and not topology.faults
    assert set(topology.nodes) == {node.guid for node in plan.nodes}
    expected = set()
    for row, peer in enumerate(plan.row_peer.tolist()):
        if peer >= 0:
            expected.add(
                ((plan.node_of(row).guid, int(plan.row_port[row])), (plan.node_of(peer).guid, int(plan.row_port[peer])))
            )
    assert set(topology.neighbours().items()) == expected
    assert {link.rate_gbps for link in topology.links} == {200.0}
