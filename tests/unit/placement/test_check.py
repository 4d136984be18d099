"""After the start: position, rails, and traffic judged from leaf counters of a small exact traffic model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.config.placement import PlacementConfig
from fabricd.errors import UsageError
from fabricd.model.topology import CA, Fault, PortRef, Topology
from fabricd.placement.check import Traffic, check_plan, parse_counters
from fabricd.placement.request import parse_request
from fabricd.placement.service import place
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric

FAST = PlacementConfig(refine_seconds=0)


def fabric() -> Topology:
    topology = rail_fabric(units=3, hosts=4, rails=2, spines=1, uplinks=1, sharp=False)
    check_rails(topology)
    return topology


TOPOLOGY = fabric()


def counters(flows: list[tuple[str, str, int]], topology: Topology = TOPOLOGY) -> dict[PortRef, Traffic]:
    """Bytes at every leaf port for flows (from host, to host, bytes), each sent on every rail."""
    sent: dict[PortRef, int] = {}
    received: dict[PortRef, int] = {}
    at: dict[tuple[str, int], PortRef] = {}
    up: dict[int, PortRef] = {}
    rail_of = {
        leaf: (g, k) for g, group in enumerate(topology.rails) for k, rail in enumerate(group.leaves) for leaf in rail
    }
    for link in topology.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            if near[0] in rail_of:
                peer = topology.nodes[far[0]]
                sent[near] = received[near] = 0
                if peer.type == CA:
                    at[peer.host, rail_of[near[0]][1]] = near
                else:
                    up[near[0]] = near
    for source, target, size in flows:
        for rail in range(2):
            one, two = at[source, rail], at[target, rail]
            received[one] += size
            sent[two] += size
            if one[0] != two[0]:
                sent[up[one[0]]] += size
                received[up[two[0]]] += size
    return {ref: Traffic(sent[ref], received[ref]) for ref in sent}


def ring(hosts: list[str], size: int = 1000) -> list[tuple[str, str, int]]:
    return [(a, b, size) for a, b in zip(hosts, [*hosts[1:], hosts[0]], strict=True)]


def verdicts(plan: Any, running: list[str], traffic: Any, topology: Topology = TOPOLOGY) -> dict[str, str]:
    findings = check_plan(plan, topology, running, traffic)
    return {f"{f.check}:{f.detail['rail_group']}" if f.check == "traffic" else f.check: f.verdict for f in findings}


@pytest.fixture
def one_group() -> dict[str, Any]:
    return place(TOPOLOGY, parse_request({"nodes": 4, "tp": 16}), FAST)


@pytest.fixture
def two_groups() -> dict[str, Any]:
    return place(TOPOLOGY, parse_request({"nodes": 8, "tp": 16}), FAST)


def test_a_job_as_planned(one_group: dict[str, Any], two_groups: dict[str, Any]) -> None:
    hosts = one_group["rank_order"]
    assert verdicts(one_group, hosts, counters(ring(hosts))) == {"position": "ok", "rails": "ok", "traffic:su1": "ok"}
    hosts = two_groups["rank_order"]
    both = {"position": "ok", "rails": "ok", "traffic:su1": "ok", "traffic:su2": "ok"}
    assert verdicts(two_groups, hosts, counters(ring(hosts))) == both


def test_traffic_that_leaves_is_reported(one_group: dict[str, Any]) -> None:
    hosts = one_group["rank_order"]
    astray = [*ring(hosts), (hosts[0], "gpu009", 3000)]
    finding = next(f for f in check_plan(one_group, TOPOLOGY, hosts, counters(astray)) if f.check == "traffic")
    assert finding.verdict == "fail" and "43%" in finding.why  # 3000 of 7000 bytes a rail
    assert finding.detail["leaving_share"][0] == pytest.approx(3 / 7, abs=1e-3)


def test_a_neighbours_traffic_is_not_blamed(one_group: dict[str, Any]) -> None:
    """Another job of the same leaves sends everything out: the lower bound stays 0."""
    topology = fabric()
    plan = place(topology, parse_request({"nodes": 2, "tp": 16}), FAST)
    hosts = plan["rank_order"]
    other = [("gpu003", "gpu009", 50_000), ("gpu009", "gpu003", 50_000)]
    found = verdicts(plan, hosts, counters([*ring(hosts), *other], topology), topology)
    assert found["traffic:su1"] == "unknown"


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10_000)), max_size=12),
    st.integers(0, 4000),
)
@settings(max_examples=150, deadline=None)
def test_the_bounds_enclose_the_truth(others: list[tuple[int, int, int]], astray: int) -> None:
    """Whatever else runs, the true share that leaves is inside the interval given."""
    plan = place(TOPOLOGY, parse_request({"nodes": 4, "tp": 16}), FAST)
    hosts = plan["rank_order"]
    mine = [*ring(hosts), (hosts[0], "gpu012", astray)]
    foreign = [(f"gpu{a:03d}", f"gpu{b:03d}", n) for a, b, n in others if a != b and f"gpu{a:03d}" not in hosts]
    finding = next(f for f in check_plan(plan, TOPOLOGY, hosts, counters([*mine, *foreign])) if f.check == "traffic")
    low, high = finding.detail["leaving_share"]
    truth = astray / (4000 + astray)
    assert low - 1e-4 <= truth <= high + 1e-4
    if truth <= 0.05:
        assert finding.verdict != "fail"


def test_moved_and_reordered_jobs(two_groups: dict[str, Any]) -> None:
    hosts = two_groups["rank_order"]
    shuffled = [hosts[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    findings = {f.check: f for f in check_plan(two_groups, TOPOLOGY, shuffled)}
    assert findings["position"].verdict == "fail" and "rank order is not" in findings["position"].why
    assert findings["position"].detail["effect"]["tp_groups_across_groups"] == [0, 4]
    assert findings["traffic"].verdict == "unknown" and "no counters" in findings["traffic"].why
    elsewhere = [*hosts[:7], "gpu012"]
    found = {f.check: f for f in check_plan(two_groups, TOPOLOGY, elsewhere)}
    assert found["position"].detail["unplanned"] == ["gpu012"] and found["position"].detail["missing"] == [hosts[7]]
    assert verdicts(two_groups, elsewhere, counters([]))["traffic:su3"] == "fail"
    assert {f.check: f for f in check_plan(two_groups, TOPOLOGY, hosts[:6])}["position"].verdict == "fail"


def test_a_schedulers_node_list_has_no_order(two_groups: dict[str, Any]) -> None:
    hosts = two_groups["rank_order"]
    same, other = (
        check_plan(two_groups, TOPOLOGY, nodes, ordered=False)[0] for nodes in (hosts[::-1], [*hosts[:7], "gpu012"])
    )
    assert same.verdict == "ok" and "order is not known" in same.why
    assert other.verdict == "fail" and other.detail == {"missing": [hosts[7]], "unplanned": ["gpu012"]}


def test_traffic_inside_nvlink_is_not_judged() -> None:
    request = parse_request({"nodes": 2, "gpus_per_node": 4, "tp": 8, "nvlink_domains": {"rack": "gpu[001-004]"}})
    plan = place(TOPOLOGY, request, FAST)
    findings = {f.check: f for f in check_plan(plan, TOPOLOGY, plan["rank_order"])}
    assert findings["nvlink"].verdict == "unknown" and findings["nvlink"].detail == {"nvlink_domains": ["rack"]}


def test_rails_that_got_crossed_since(one_group: dict[str, Any]) -> None:
    topology = fabric()
    topology.faults.append(Fault("crossed_rail", one_group["rank_order"][1], "mlx5_0 is on rail 2", []))
    findings = {f.check: f for f in check_plan(one_group, topology, one_group["rank_order"])}
    assert findings["rails"].verdict == "fail" and "mlx5_0 is on rail 2" in findings["rails"].why


def test_a_blind_port_is_said_to_be_blind(one_group: dict[str, Any]) -> None:
    hosts = one_group["rank_order"]
    traffic = counters(ring(hosts))
    leaf = TOPOLOGY.rails[0].leaves[0][0]
    traffic.pop(next(ref for ref in traffic if ref[0] == leaf))
    finding = next(f for f in check_plan(one_group, TOPOLOGY, hosts, traffic) if f.check == "traffic")
    assert finding.verdict == "unknown" and "no counter" in finding.why


def test_no_traffic_is_no_evidence(one_group: dict[str, Any]) -> None:
    assert verdicts(one_group, one_group["rank_order"], counters([]))["traffic:su1"] == "unknown"


def test_counters_file() -> None:
    rows = [
        {"guid": "0x10", "port": 1, "sent_bytes": 5, "received_bytes": 6},
        {"guid": "0x10", "port": 2, "sent_bytes": None, "received_bytes": 6},
    ]
    assert parse_counters({"ports": rows}, "c") == {(16, 1): Traffic(5, 6)}
    for bad in ([], {"ports": [{}]}, {"ports": [{**rows[0], "sent_bytes": -1}]}, {"ports": [{**rows[0], "guid": "x"}]}):
        with pytest.raises(UsageError):
            parse_counters(bad, "c")
    with pytest.raises(UsageError, match="--plan"):
        check_plan({"schema": "other"}, TOPOLOGY, [])
