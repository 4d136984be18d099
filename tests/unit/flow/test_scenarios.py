"""The scenario library: each kind of trouble shows the root and cause that were injected, and the quiet ones stay quiet."""

from __future__ import annotations

from typing import Any

import pytest

from fabricd.errors import UsageError
from fabricd.flow.headless import run_scene
from fabricd.flow.scenarios import SCENARIOS, build
from fabricd.flow.settings import Kind
from fabricd.flow.staging import Draw, Scene
from fabricd.flow.topologies import dragonfly

WINDOWS = 60


def played(name: str, seed: int, kind: Kind) -> tuple[Scene, dict[str, Any]]:
    """A small run: 16 hosts, the trouble from window 10 to 45."""
    draw = Draw(seed=seed, hosts=16, kind=kind, windows=WINDOWS, slots=60, begin_s=10.0, length_s=35.0)
    scene = build(name, draw)
    return scene, run_scene(scene).label


def on_host(scene: Scene, label: dict[str, Any], endpoint: int) -> list[dict[str, Any]]:
    """Episodes whose root is the adapter of an endpoint."""
    graph = scene.model.graph
    guid, port = graph.ports[int(graph.endpoints[endpoint])]
    return [e for e in label["episodes"] if [graph.node_index[guid], port] in e["roots"]]


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
@pytest.mark.parametrize("name", ["quiet", "allreduce"])
def test_healthy_fabrics_have_no_episode(name: str, kind: Kind) -> None:
    _, label = played(name, 2, kind)
    assert label["episodes"] == []
    assert label["negative"]
    assert label["drops"] == 0


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
@pytest.mark.parametrize(("name", "cause"), [("slow-receiver", "slow_receiver"), ("pfc-storm", "pfc_storm")])
def test_a_host_that_does_not_drain_is_the_root(name: str, cause: str, kind: Kind) -> None:
    scene, label = played(name, 4, kind)
    mine = on_host(scene, label, scene.intent["host"])
    assert [e["cause"] for e in mine] == [cause]
    assert mine[0]["start_ns"] >= 9e9
    assert mine[0]["end_ns"] <= 48e9
    assert mine[0]["victim_flows"]
    assert all(not v["confirmed"] or v["slowdown_in"] >= 1.2 for v in mine[0]["victim_flows"])


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_an_incast_is_found_where_it_converges(kind: Kind) -> None:
    scene, label = played("incast", 7, kind)
    assert any(e["cause"] == "incast" and e["start_ns"] <= 14e9 for e in label["episodes"])
    receivers = {f for e in label["episodes"] if e["cause"] == "incast" for f in e["contributors"]}
    dst = scene.model.engine.flows.dst
    assert scene.intent["receiver"] in {int(dst[f]) for f in receivers}


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
@pytest.mark.parametrize(("name", "cause"), [("ecmp-collision", "ecmp_collision"), ("degraded-link", "degraded_link")])
def test_trouble_on_an_uplink_names_that_uplink(name: str, cause: str, kind: Kind) -> None:
    scene, label = played(name, 1, kind)
    graph = scene.model.graph
    guid, port = scene.intent["link"]
    mine = [e for e in label["episodes"] + label["contention"] if [graph.node_index[guid], port] in e["roots"]]
    assert cause in {e["cause"] for e in mine}


def test_a_flap_shows_on_the_siblings_and_counts_as_link_downed() -> None:
    found = set()
    for seed in range(3):
        scene, label = played("link-flap", seed, "infiniband")
        port = scene.model.graph.port(*scene.intent["link"])
        assert scene.model.counters.link_downed[port] == scene.intent["flaps"]
        found |= {e["cause"] for e in label["episodes"] + label["contention"]}
    assert "link_flap" in found


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_a_wrong_lane_map_is_told_from_an_incast(kind: Kind) -> None:
    scene, label = played("qos-mismatch", 3, kind)
    causes = {e["cause"]: e for e in label["episodes"]}
    assert "qos_mismatch" in causes
    assert causes["qos_mismatch"]["prio"] == scene.lanes.storage
    assert "incast" in causes["qos_mismatch"]["also_accept"]


def test_a_dragonfly_changes_lanes_and_does_not_lock_up() -> None:
    topology = dragonfly(5, 3, 2, 400)
    scene = build("quiet", Draw(seed=4, topology=topology, kind="ethernet", windows=40, slots=60))
    label = run_scene(scene).label
    assert label["episodes"] == []
    carried = scene.model.counters.tx_bytes.sum(axis=0)
    assert carried[0] > 0
    assert carried[2] > 0


def test_two_trees_have_two_roots() -> None:
    _, label = played("two-trees", 2, "ethernet")
    roots = {tuple(map(tuple, e["roots"])) for e in label["episodes"]}
    assert len(roots) >= 2


def test_storage_hurts_its_lane_and_not_the_other() -> None:
    scene, label = played("tp-storage", 4, "infiniband")
    assert label["episodes"]
    assert {e["prio"] for e in label["episodes"] if e["cause"] == "incast"} == {scene.lanes.storage}


@pytest.mark.parametrize("kind", ["infiniband", "ethernet"])
def test_a_ring_routed_one_way_locks_up(kind: Kind) -> None:
    scene, label = played("deadlock", 1, kind)
    (episode,) = label["episodes"]
    assert episode["cause"] == "pfc_deadlock"
    assert len(episode["roots"]) == sum(scene.model.graph.is_switch)
    assert episode["end_ns"] == WINDOWS * 1e9
    assert episode["victim_flows"]
    before = scene.model.counters.tx_bytes.sum()
    scene.model.step(2.0)
    flows = scene.model.engine.flows
    cycle = [f for f in range(flows.n) if scene.kind_of(f) == "cyc"]
    moved = flows.delivered[cycle].copy()
    scene.model.step(5.0)
    assert (flows.delivered[cycle] == moved).all()
    assert before > 0


def test_tenants_come_and_go() -> None:
    scene, label = played("multi-tenant", 2, "ethernet")
    assert {"job-ring", "job-tree", "job-a2a"} <= {kind for _, kind in scene.kinds}
    assert label["episodes"]


def test_draws_differ_by_seed_and_repeat_by_seed() -> None:
    def label(seed: int) -> dict[str, Any]:
        return run_scene(
            build("incast", Draw(seed=seed, hosts=16, windows=20, slots=40, begin_s=3.0, length_s=10.0))
        ).label

    assert label(11) == label(11)
    assert label(11)["intent"] != label(12)["intent"]


def test_unknown_names_are_refused_with_the_list() -> None:
    with pytest.raises(UsageError, match="quiet allreduce incast"):
        build("nonsense", Draw(seed=1))
    assert len(SCENARIOS) == 13


def test_adaptive_draws_say_so_and_list_route_sets() -> None:
    def drawn(seed: int) -> Scene:
        return build(
            "incast", Draw(seed=seed, hosts=32, kind="infiniband", windows=15, slots=40, begin_s=2.0, length_s=8.0)
        )

    scene = next(s for s in (drawn(seed) for seed in range(40)) if s.intent["adaptive"])
    trace = run_scene(scene)
    assert trace.topology["adaptive"]
    assert max(len(ports) for table in trace.topology["fib"].values() for ports in table.values()) > 1
    assert all(e["cause"] != "ecmp_collision" for e in trace.label["episodes"])
