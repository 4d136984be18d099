"""The plan: a superset of the published format, launch files in the launchers' own formats, hosts avoided with reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabricd.config.placement import PlacementConfig
from fabricd.model.ident import format_guid
from fabricd.model.topology import Fault, Topology
from fabricd.model.verdict import Verdict
from fabricd.placement import ranks
from fabricd.placement.exporters import FORMATS, export
from fabricd.placement.request import parse_request
from fabricd.placement.service import place
from fabricd.topology.load import load_topology
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric

DATA = Path(__file__).parents[2] / "data" / "placement"
FAST = PlacementConfig(refine_seconds=0)


@pytest.fixture
def topology() -> Topology:
    fabric = rail_fabric(units=4, hosts=4, rails=4)
    check_rails(fabric)
    return fabric


def test_superset_of_the_format(topology: Topology) -> None:
    example = json.loads((DATA / "placement_plan.json").read_text())
    plan = place(topology, parse_request({"nodes": 6, "tp": 16, "pp": 3}), FAST)
    assert plan["feasible"] is True
    assert set(example) <= set(plan)
    for section in ("job", "score", "solver"):
        assert set(example[section]) <= set(plan[section])
    assert set(example["placement"][0]) <= set(plan["placement"][0])
    assert set(example["fabric"]) - {"generation"} <= set(plan["fabric"])
    assert plan["schema"] == example["schema"]
    again = parse_request(json.loads(json.dumps(plan)))
    assert again.nodes == 6 and place(topology, again, FAST)["rank_order"] == plan["rank_order"]


def test_ranks_cover_every_gpu_once(topology: Topology) -> None:
    for document in ({"nodes": 8, "tp": 16}, {"nodes": 3, "tp": 2}, {"nodes": 16, "tp": 32, "pp": 2}):
        plan = place(topology, parse_request(document), FAST)
        covered = [rank for entry in plan["placement"] for rank in range(entry["ranks"][0], entry["ranks"][1] + 1)]
        assert covered == list(range(document["nodes"] * 8))
        for entry in plan["placement"]:
            nodes = dict.fromkeys(
                plan["rank_order"][rank // 8] for rank in range(entry["ranks"][0], entry["ranks"][1] + 1)
            )
            assert entry["nodes"] == list(nodes)
        assert plan["launch"]["openmpi_rankfile"].count("\n") == document["nodes"] * 8


def test_launch_files_have_the_launchers_formats() -> None:
    nodes = [f"gpu{n:03d}" for n in range(1, 7)]
    assert ranks.slurm_hostfile(nodes, 8) == (DATA / "slurm_hostfile").read_text()
    assert ranks.openmpi_hostfile(nodes, 8) == (DATA / "openmpi_hostfile").read_text()
    rankfile = ranks.openmpi_rankfile(["gpu001", "gpu002", "gpu005"], 8).splitlines()
    for line in (DATA / "openmpi_rankfile").read_text().splitlines():
        assert line.startswith("#") or line in rankfile
    words = set(ranks.torchrun(nodes, 8).splitlines()[1].split())
    example = (DATA / "torchrun_env.txt").read_text().splitlines()[2].split()
    assert {word for word in example if word != "..."} <= words
    assert ranks.torchrun_env(nodes, 8)["gpu003"]["PET_NODE_RANK"] == "2"
    for text in (ranks.slurm_hostfile(nodes, 8), ranks.openmpi_rankfile(nodes, 8), ranks.openmpi_hostfile(nodes, 8)):
        assert ranks.read_hostfile(text) == nodes


def test_flagged_hosts_are_avoided_and_named(topology: Topology) -> None:
    topology.faults += [
        Fault("crossed_rail", "gpu001", "mlx5_0 is on rail 2", []),
        Fault("missing_rail", "gpu005", "no port on rail 1", []),
        Fault("short_uplinks", "LEAF-01-01", "3 uplinks", []),
    ]
    doctor = {
        "node": "gpu009",
        "checks": [{"id": "gdr.registration", "verdict": "fail"}, {"id": "x", "verdict": "warn"}],
    }
    request = parse_request({"nodes": 12, "flagged_nodes": {"gpu013": "noisy"}})
    plan = place(topology, request, FAST, doctor=[doctor])
    excluded = {entry["node"]: entry["why"] for entry in plan["fabric"]["excluded_nodes"]}
    assert excluded == {
        "gpu001": "crossed_rail: mlx5_0 is on rail 2",
        "gpu005": "missing_rail: no port on rail 1",
        "gpu009": "doctor: gdr.registration failed",
        "gpu013": "noisy",
    }
    assert not set(excluded) & set(plan["rank_order"])
    assert place(topology, parse_request({"nodes": 13}), FAST, doctor=[doctor])["feasible"] is True
    refused = place(topology, parse_request({"nodes": 14}), FAST, doctor=[doctor])
    assert refused["feasible"] is False
    assert refused["reasons"][0] == "14 nodes asked for, 13 usable"
    assert refused["reasons"][1].startswith("3 free nodes are flagged and were avoided")
    needed = parse_request({"nodes": 16, "constraints": {"flagged_nodes": "if-needed"}})
    assert "flagged nodes had to be used" in place(topology, needed, FAST, doctor=[doctor])["reasons"][-1]
    anyway = parse_request({"nodes": 16, "constraints": {"flagged_nodes": "allow"}})
    assert place(topology, anyway, FAST, doctor=[doctor])["fabric"]["excluded_nodes"] == []


def test_hosts_behind_an_open_verdict_are_avoided(topology: Topology) -> None:
    leaf = topology.rails[1].leaves[2][0]
    peers = topology.neighbours()
    host_port = next(ref for ref, peer in peers.items() if ref[0] == leaf and topology.nodes[peer[0]].host == "gpu006")
    uplink = next(ref for ref, peer in peers.items() if ref[0] == leaf and "SPINE" in topology.nodes[peer[0]].name)
    at_host = Verdict(id="v1", start=1, detected_at=2, roots=[(format_guid(leaf), host_port[1])], cause="slow_receiver")
    plan = place(topology, parse_request({"nodes": 15}), FAST, verdicts=[at_host])
    assert plan["fabric"]["excluded_nodes"] == [{"node": "gpu006", "why": "behind open verdict v1 (slow_receiver)"}]
    spine_side = [(format_guid(peers[uplink][0]), peers[uplink][1])]
    for roots in ([(format_guid(leaf), uplink[1])], spine_side):
        at_uplink = Verdict(id="v2", start=1, detected_at=2, roots=roots, cause="degraded_link")
        plan = place(topology, parse_request({"nodes": 12}), FAST, verdicts=[at_uplink])
        assert {e["node"] for e in plan["fabric"]["excluded_nodes"]} == {f"gpu{n:03d}" for n in range(5, 9)}
    closed = Verdict(id="v3", start=1, end=9, detected_at=2, roots=[(format_guid(leaf), uplink[1])])
    assert place(topology, parse_request({"nodes": 16}), FAST, verdicts=[closed])["feasible"]


def test_constraints_hold(topology: Topology) -> None:
    base = {"nodes": 4, "tp": 16}
    only = place(topology, parse_request({**base, "constraints": {"rail_groups": ["su3"]}}), FAST)
    assert {e["rail_group"] for e in only["placement"]} == {"su3"}
    without = place(topology, parse_request({**base, "constraints": {"exclude_nodes": ["gpu[001-012]"]}}), FAST)
    assert without["rank_order"] == ["gpu013", "gpu014", "gpu015", "gpu016"]
    busy = place(topology, parse_request({**base, "busy_nodes": "gpu[001-003,005,007-012,014]"}), FAST)
    assert busy["feasible"] is False
    limited = place(topology, parse_request({"nodes": 8, "constraints": {"max_rail_groups": 1}}), FAST)
    assert limited["feasible"] is False and "constraints.max_rail_groups = 1" in limited["reasons"][0]
    unknown = place(topology, parse_request({**base, "free_nodes": "gpu[001-004],ghost1"}), FAST)
    assert any("ghost1" in reason for reason in unknown["reasons"])


def test_exposed_communication_grows_when_a_group_crosses_a_hot_uplink(topology: Topology) -> None:
    free = "gpu[001,005]"
    soft = {"tp_in_rail_group": "soft"}
    model = {"layers": 80, "hidden": 8192, "sequence": 4096}
    fast_inside = {"nvlink_gbs": 4000, "nic_gbs": 48.5}  # so that the adapters are what counts
    base = {"nodes": 2, "tp": 16, "free_nodes": free, "constraints": soft, "model": model, "hardware": fast_inside}
    cool = place(topology, parse_request(base), FAST)["placement"][0]
    hot = place(topology, parse_request({**base, "heat": {"su1": 0.5}}), FAST)["placement"][0]
    whole = place(topology, parse_request({"nodes": 2, "tp": 16, "model": model, "hardware": fast_inside}), FAST)[
        "placement"
    ][0]
    assert cool["rail_groups"] == ["su1", "su2"] and cool["switch_hops"]["max"] == 3
    assert whole["exposed_communication"]["low_ms"] <= cool["exposed_communication"]["low_ms"]
    assert hot["exposed_communication"]["low_ms"] == pytest.approx(
        2 * cool["exposed_communication"]["low_ms"], rel=0.01
    )
    # 320 all-reduces of 64 MiB over two nodes: 2(k-1)/k = 1 time the size over 8 adapters of 48.5 GB/s, in milliseconds.
    assert cool["exposed_communication"]["low_ms"] >= 320 * (64 << 20) / (8 * 48.5e9) * 1e3 * 0.999


def test_a_group_inside_nvlink_uses_no_adapter(topology: Topology) -> None:
    request = {"nodes": 2, "gpus_per_node": 4, "tp": 8, "hardware": {"nvlink_gbs": 800, "nic_gbs": 50}}
    domains = {"nvlink_domains": {"rack1": "gpu[001-004]"}}
    inside = place(topology, parse_request({**request, **domains, "constraints": {"rail_groups": ["su1"]}}), FAST)
    entry = inside["placement"][0]
    assert entry["nvlink_domain"] == "rack1" and entry["switch_hops"] == {"mean": 0.0, "max": 0}
    outside = place(topology, parse_request({**request, "constraints": {"rail_groups": ["su1"]}}), FAST)["placement"][0]
    assert entry["exposed_communication"]["low_ms"] < outside["exposed_communication"]["low_ms"]
    assert any("no adapter counter shows it" in reason for reason in inside["reasons"])


def test_alternatives_use_other_groups(topology: Topology) -> None:
    plan = place(topology, parse_request({"nodes": 4, "tp": 16, "alternatives": 3}), FAST)
    used = {e["rail_group"] for e in plan["placement"]}
    first = plan["alternatives"][0]
    assert first["feasible"] and not used & set(first["groups"])
    assert len(first["nodes"]) == 4


def test_dirty_dump() -> None:
    """Two rails crossed at gpu002: it is avoided, and the dump's unnamed adapter and SHARP nodes do no harm."""
    topology = load_topology(DATA / "ibnetdiscover_traps.txt")
    plan = place(topology, parse_request({"nodes": 1}), FAST)
    assert plan["feasible"] and "gpu002" in {e["node"] for e in plan["fabric"]["excluded_nodes"]}
    assert plan["rank_order"] in (["gpu001"], ["gpu005"])


def test_names_the_fabric_does_not_have_are_said_to_be_unknown(topology: Topology) -> None:
    document = {"nodes": 2, "heat": {"su9": 0.1}, "constraints": {"pods": ["pod1", "pod7"]}}
    reasons = place(topology, parse_request(document), FAST)["reasons"]
    assert "heat: this fabric has no su9" in reasons and "constraints.pods: this fabric has no pod7" in reasons


def test_without_or_tools_the_answer_is_greedy_and_local(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    request = parse_request({"nodes": 6, "tp": 16, "free_nodes": "gpu[001-003,005-007,009-011]", "heat": {"su1": 0.5}})
    refined = place(topology, request, PlacementConfig(refine_seconds=5))
    monkeypatch.setattr("fabricd.placement.cpsat.available", lambda: False)
    plain = place(topology, request, PlacementConfig(refine_seconds=5))
    assert plain["solver"]["name"] == "greedy+local" and "refine_ms" not in plain["solver"]
    assert refined["solver"]["name"] == "greedy+local+cp-sat" and refined["solver"]["bound"] == "optimal"
    assert plain["score"]["groups_used"] == refined["score"]["groups_used"]


def test_a_fabric_without_rail_groups() -> None:
    empty = Topology()
    plan = place(empty, parse_request({"nodes": 2}), FAST)
    assert plan["feasible"] is False and plan["reasons"] == ["2 nodes asked for, 0 usable"]
    for name in FORMATS:
        assert "gpu" not in export(empty, name)
