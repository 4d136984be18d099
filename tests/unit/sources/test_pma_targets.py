"""Which ports of a topology are swept, and what makes a device unfit."""

from __future__ import annotations

from fabricd.model.topology import CA, SWITCH, Link, Node, Topology
from fabricd.sources.pma_device import DeviceTraits
from fabricd.sources.pma_targets import targets_of


def fabric() -> Topology:
    topology = Topology()
    topology.nodes[1] = Node(1, SWITCH, "leaf", num_ports=4, lids={0: 10}, vendor_id=0x2C9, device_id=54000, revision=1)
    topology.nodes[2] = Node(2, CA, "host HCA-1", num_ports=2, lids={1: 11, 2: 12})
    topology.links = [Link((1, 3), (2, 1), rate_gbps=200.0, width=4)]
    return topology


def test_switches_with_all_their_ports() -> None:
    (target,), rejects = targets_of(fabric())
    assert (target.guid, target.lid, target.ports) == (1, 10, (1, 2, 3, 4)) and not rejects.total
    assert target.device == (0x2C9, 54000, 1)
    assert target.rates == {3: 200.0}
    assert target.labels[3] == {"peer": "host HCA-1", "peer_guid": "0x0000000000000002", "peer_port": "1", "width": "4"}


def test_adapter_ports_are_the_node_guid_and_port() -> None:
    """So that the agent on the host and the sweep mean one port by it."""
    targets, _ = targets_of(fabric(), adapters=True, connected_only=True)
    assert [(t.guid, t.lid, t.ports) for t in targets] == [(1, 10, (3,)), (2, 11, (1,))]
    assert targets[1].key == (2, 1)


def test_a_lid_that_two_nodes_have_is_asked_of_neither() -> None:
    topology = fabric()
    topology.nodes[3] = Node(3, SWITCH, "twin", num_ports=2, lids={0: 10})
    topology.nodes[4] = Node(4, SWITCH, "new", num_ports=2)
    targets, rejects = targets_of(topology)
    assert not targets
    assert rejects.counts == {"duplicate_lid": 2, "no_lid": 1}


def test_tick_of_waiting() -> None:
    known = DeviceTraits(tick=7)
    assert known.wait_tick_bytes((0, 0, 0), 4) == 8
    assert DeviceTraits().wait_tick_bytes((0x2C9, 54002, 0), 4) == 8  # Quantum-2, from the manual
    assert DeviceTraits().wait_tick_bytes((0x2C9, 53000, 0), 4) == 128  # Switch-IB 2 counts per lane
    assert DeviceTraits(tick=15).wait_tick_bytes((0x2C9, 53000, 0), 2) == 32
    assert DeviceTraits().wait_tick_bytes((0x2C9, 1, 0), 4) is None
    assert DeviceTraits().wait_tick_bytes((0x2C9, 53000, 0), 0) is None
