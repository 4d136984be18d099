"""Plans relieve the root, and the proof refuses tables that lose a destination or let channels wait in a ring."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.control.routes_plan import Plan, apply, plan, prove
from fabricd.flow.topologies import ring
from fabricd.model.topology import PortRef
from fabricd.topology.routes import LFT, RouteTable
from tests.unit.control.fabrics import RATE, Net


def collision(net: Net) -> tuple[PortRef, list[object]]:
    """Two flows of one leaf that leave by the same up-link while the other is idle."""
    (a, b, *_), far = net.hosts[:4], net.hosts[4:]
    pairs = [net.send(a, far[0], RATE * 0.7), net.send(b, far[2], RATE * 0.7)]
    index = net.routes.frame.destination_index
    row, port, _ = net.routes.walk(index[a], index[far[0]])[0]
    return (int(net.routes.frame.switches[row]), port), list(pairs)


def planned(net: Net, **more: bool) -> tuple[PortRef, Plan]:
    root, pairs = collision(net)
    traffic = net.traffic(pairs)  # type: ignore[arg-type]
    return root, plan(net.routes, traffic, root, dict.fromkeys(net.ports, RATE), **more)


def test_one_of_two_colliding_flows_moves() -> None:
    net = Net()
    root, found = planned(net)
    assert len(found.moves) == 1
    (((switch, _), port),) = found.moves.items()
    assert switch == root[0]
    assert port != root[1]
    assert found.peak_before == pytest.approx(1.4, abs=0.05)
    assert found.peak_after == pytest.approx(0.7, abs=0.05)
    assert prove(apply(net.routes, found.moves)) == []


def test_a_bad_link_is_left_altogether() -> None:
    net = Net()
    root, found = planned(net, empty=True)
    after = apply(net.routes, found.moves)
    index = after.frame.destination_index
    for src in net.hosts[:2]:
        for dst in (net.hosts[4], net.hosts[6]):
            ways = [(int(after.frame.switches[row]), port) for row, port, _ in after.walk(index[src], index[dst])]
            assert root not in ways


def test_a_congested_down_link_is_relieved_at_the_leaves_before_it() -> None:
    net = Net(leaves=3)
    target = net.hosts[8:]
    pairs = [net.send(net.hosts[0], target[0], RATE * 0.8), net.send(net.hosts[4], target[2], RATE * 0.8)]
    index = net.routes.frame.destination_index
    row, port, _ = net.routes.walk(index[net.hosts[0]], index[target[0]])[1]
    root = (int(net.routes.frame.switches[row]), port)
    found = plan(net.routes, net.traffic(pairs), root, dict.fromkeys(net.ports, RATE))
    assert found.peak_after < found.peak_before
    assert root[0] not in found.by_switch()
    assert prove(apply(net.routes, found.moves)) == []


def test_nothing_moves_where_all_is_full() -> None:
    net = Net()
    far = net.hosts[4:]
    pairs = [net.send(src, dst, RATE * 0.95) for src, dst in zip(net.hosts[:2], far[:2], strict=True)]
    index = net.routes.frame.destination_index
    row, port, _ = net.routes.walk(index[net.hosts[0]], index[far[0]])[0]
    root = (int(net.routes.frame.switches[row]), port)
    assert plan(net.routes, net.traffic(pairs), root, dict.fromkeys(net.ports, RATE)).moves == {}


def test_the_proof_refuses_a_loop_a_hole_and_a_wrong_door() -> None:
    net = Net()
    frame = net.routes.frame
    leaf = int(frame.switches[frame.attach_switch[4]])
    up = next(port for ref, port in [(r, r[1]) for r in net.peers if r[0] == leaf] if net.peers[ref][0] != 0 and
              net.topology.nodes[net.peers[ref][0]].type == "switch")  # fmt: skip
    assert "its own host's traffic" in prove(apply(net.routes, {(leaf, 4): up}))[0]
    spine = int(net.peers[leaf, up][0])
    back = next(ref[1] for ref in net.peers if ref[0] == spine and net.peers[ref][0] != leaf)
    wrong = prove(apply(net.routes, {(spine, 4): back}))
    assert wrong
    assert "circle" in " ".join(wrong)
    assert (
        "no route" in prove(apply(net.routes, {(spine, 4): 0}))[0]
        or "nowhere" in prove(apply(net.routes, {(spine, 4): 0}))[0]
    )


def test_the_proof_refuses_a_ring_of_channels() -> None:
    """Every route arrives, and still the buffers of the ring can wait for each other."""
    topology = ring(4, 1, 400)
    switches = sorted(guid for guid, node in topology.nodes.items() if node.type == "switch")
    peers = topology.neighbours()
    ends = sorted(ref for ref in peers if topology.nodes[ref[0]].type == "ca")
    home = {ref: peers[ref] for ref in ends}
    order = [switches[0]]
    tables: dict[int, dict[PortRef, list[int]]] = {guid: {} for guid in switches}
    while len(order) < 4:  # the ring's order, one way round
        after = [peers[r][0] for r in sorted(peers) if r[0] == order[-1] and peers[r][0] in switches]
        order.append(next(guid for guid in after if guid not in order))
    for place, guid in enumerate(order):
        onward = order[(place + 1) % 4]
        port = next(ref[1] for ref in sorted(peers) if ref[0] == guid and peers[ref][0] == onward)
        for ref in ends:
            tables[guid][ref] = [home[ref][1]] if home[ref][0] == guid else [port]
    wrong = prove(RouteTable.build(topology, tables, LFT))
    assert len(wrong) == 1
    assert "depend on each other in a circle" in wrong[0]


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(2, 4), st.data())
def test_every_plan_in_a_tree_is_proved_and_better(leaves: int, hosts: int, spines: int, data: st.DataObject) -> None:
    net = Net(leaves, hosts, spines)
    assert prove(net.routes) == []
    pairs = []
    for _ in range(data.draw(st.integers(1, 8))):
        src, dst = data.draw(st.lists(st.sampled_from(net.hosts), min_size=2, max_size=2, unique=True))
        pairs.append(net.send(src, dst, data.draw(st.floats(0.1, 1.0)) * RATE))
    traffic = net.traffic(pairs)
    switches = set(map(int, net.routes.switches))
    fabric_ports = [ref for ref in net.ports if ref[0] in switches and net.peers[ref][0] in switches]
    root = max(fabric_ports, key=lambda ref: traffic.load(ref, wanted=True))
    found = plan(net.routes, traffic, root, dict.fromkeys(net.ports, RATE))
    assert found.peak_after <= found.peak_before
    assert prove(apply(net.routes, found.moves)) == []
