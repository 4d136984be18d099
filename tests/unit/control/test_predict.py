"""Demands fit what was measured; predictions show what helps, say what does not, and admit what they cannot know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fabricd.control import predict as predict_module
from fabricd.control.policy import choose, load_policy
from fabricd.control.predict import model_routes, predict
from fabricd.control.remedies.base import Draft, Situation
from fabricd.control.traffic import Pair, estimate
from fabricd.flow.graph import compile_graph
from fabricd.model.action import Change, Lever, Touched
from fabricd.model.ident import format_guid
from fabricd.model.topology import PortRef
from tests.unit.control.fabrics import RATE, Net, writable


def incast(net: Net) -> tuple[Situation, list[PortRef]]:
    """Three hosts fill the first host's port; two of them also send a little to its neighbours and wait with it."""
    receiver, senders = net.hosts[0], net.hosts[4:7]
    pairs = [net.send(src, receiver, RATE * 0.97 / 3, stall=0.55) for src in senders]
    pairs += [net.send(src, net.hosts[1], RATE * 0.04, stall=0.55) for src in senders[:2]]
    verdict = net.verdict("incast", net.peers[receiver], senders)
    levers = writable(("ufm", "sl_rate"))
    return net.situation(verdict, pairs, levers, lambda lever: None), senders


def limits(senders: list[PortRef], mbps: int) -> Draft:
    changes = tuple(
        Change(lever=Lever(adapter="ufm", device="ufm", name="sl_rate", key=format_guid(guid)), new={"0": mbps})
        for guid, _ in senders
    )
    return Draft(changes, Touched(), "")


def test_known_pairs_get_the_rates_that_were_measured() -> None:
    situation, senders = incast(Net())
    traffic = situation.traffic
    assert traffic.load(situation.root) == pytest.approx(0.97 * RATE, rel=0.02)
    assert set(traffic.senders(situation.root)) == set(senders)
    assert traffic.load(situation.root, wanted=True) == pytest.approx(0.97 * RATE / 0.45, rel=0.05)


def test_guessed_pairs_explain_what_every_port_sent() -> None:
    net = Net()
    for src, dst in ((0, 5), (1, 6), (4, 2)):
        net.send(net.hosts[src], net.hosts[dst], RATE * 0.3)
    traffic = estimate(net.topology, net.routes, net.state())
    assert traffic.guessed
    for ref in net.ports:
        assert traffic.load(ref) == pytest.approx(net.tx[net.index[ref]].sum(), abs=0.03 * RATE)


def test_whoever_sent_before_is_taken_to_do_so_still() -> None:
    net = Net()
    steady = net.send(net.hosts[4], net.hosts[1], RATE * 0.2)
    before = net.state()
    late = net.send(net.hosts[4], net.hosts[0], RATE * 0.5)
    pairs = [steady, late, Pair(net.hosts[4], net.hosts[2])]
    found = estimate(net.topology, net.routes, net.state(), pairs, before, net.peers[net.hosts[0]])
    assert found.rate == pytest.approx(np.array([0.2, 0.5, 0.0]) * RATE, abs=0.02 * RATE)


def test_limiting_the_senders_is_predicted_to_help_and_a_stranger_not() -> None:
    net = Net()
    situation, senders = incast(net)
    good = predict(situation, limits(senders, 110_000))
    assert good.gain is not None
    assert good.gain > 0.8
    assert good.worse < 0.05
    stranger = predict(situation, limits([net.hosts[2]], 110_000))
    assert stranger.gain is not None
    assert abs(stranger.gain) < 0.2


def test_the_same_question_has_the_same_answer() -> None:
    situation, senders = incast(Net())
    draft = limits(senders, 110_000)
    first, second = predict(situation, draft), predict(situation, draft)
    assert (first.gain, first.before, first.after) == (second.gain, second.before, second.after)


def test_a_stall_the_model_does_not_show_makes_it_silent() -> None:
    net = Net()
    pairs = [net.send(net.hosts[4], net.hosts[0], RATE * 0.2, stall=0.0)]
    net.stall[net.index[net.hosts[5]], 0] = 0.8
    verdict = net.verdict("incast", net.peers[net.hosts[0]], [net.hosts[5]])
    found = predict(net.situation(verdict, pairs, writable(), lambda lever: None), limits([net.hosts[4]], 1000))
    assert found.gain is None
    assert "where 80% is measured" in found.why


@pytest.mark.parametrize("known", [True, False])
def test_without_anybody_sending_nothing_is_predicted(known: bool) -> None:
    net = Net()
    pairs = [Pair(net.hosts[4], net.hosts[0])] if known else []
    verdict = net.verdict("incast", net.peers[net.hosts[0]], [net.hosts[4]])
    found = predict(net.situation(verdict, pairs, writable(), lambda lever: None), limits([net.hosts[4]], 1000))
    assert (found.gain, found.why) == (None, "it is not known who talks to whom")


def test_of_a_large_fabric_only_the_part_concerned_is_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(leaves=6)
    situation, senders = incast(net)
    monkeypatch.setattr(predict_module, "MOST_ENDPOINTS", 8)
    seen: list[int] = []
    seeded = predict_module._seeded

    def counting(*args: Any) -> Any:
        model, effects = seeded(*args)
        seen.append(len(model.graph.guids))
        return model, effects

    monkeypatch.setattr(predict_module, "_seeded", counting)
    found = predict(situation, limits(senders, 110_000))
    assert found.gain is not None
    assert found.gain > 0.8
    assert seen[0] < len(net.topology.nodes)


def test_route_tables_mean_the_same_in_the_model() -> None:
    net = Net(leaves=3, spines=3)
    graph = compile_graph(net.topology)
    routes = model_routes(graph, net.routes)
    for guid in map(int, net.routes.switches):
        node = graph.node_index[guid]
        for h, port in enumerate(graph.endpoints.tolist()):
            wanted = net.routes.egress(guid, *graph.ports[port])
            local = [int(m) for m in routes.sets[node, h, : int(routes.count[node, h])]]
            assert [graph.ports[int(graph.node_ports[node, m])][1] for m in local] == wanted
            assert int(routes.lft[node, h]) == (local[0] if local else -1)


def test_the_shipped_policy_and_its_prediction_agree_on_an_incast() -> None:
    situation, _ = incast(Net())
    (candidate,) = choose(load_policy(), situation).candidates
    found = predict(situation, candidate.draft)
    assert found.gain is not None
    assert found.gain > 0.5
