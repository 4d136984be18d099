"""Properties of every placement, and the optimum by brute force on small fabrics."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.placement import cpsat
from fabricd.placement.fabric import Fabric, Group
from fabricd.placement.greedy import greedy
from fabricd.placement.metrics import measure
from fabricd.placement.problem import lower_bounds
from fabricd.placement.request import Constraints, Request, parse_request
from fabricd.placement.search import improve
from fabricd.placement.solve import Infeasible, Solution, build_problem, solve
from tests.unit.placement.cases import all_distributions, make_fabric, small_cases

Case = tuple[Fabric, Request, np.ndarray]


@given(small_cases())
@settings(max_examples=300, deadline=None)
def test_a_placement_is_complete_disjoint_free_and_whole(case: Case) -> None:
    fabric, request, usable = case
    found = solve(fabric, request, usable)
    possible = sum(int(n) // request.unit for n in np.bincount(fabric.group[usable], minlength=len(fabric.groups)))
    if isinstance(found, Infeasible):
        assert possible < request.units
        assert found.reasons
        return
    assert possible >= request.units
    assert len(found.order) == request.nodes == len(set(found.order.tolist()))
    assert usable[found.order].all()
    groups = fabric.group[found.order].reshape(-1, request.unit)
    assert (groups == groups[:, :1]).all()
    metrics = measure(fabric, found.order, request.unit)
    assert metrics.tp_groups_across_groups == found.cost.tp_crossings == 0
    assert metrics.groups_used == found.cost.groups and metrics.pods_used == found.cost.pods
    assert metrics.ring_group_crossings == found.cost.ring
    assert found.cost <= found.greedy_cost


@given(small_cases())
@settings(max_examples=150, deadline=None)
def test_bounds_hold_and_cp_sat_finds_the_brute_force_optimum(case: Case) -> None:
    fabric, request, usable = case
    problem = build_problem(fabric, request, usable, 0)
    start = greedy(problem)
    every = all_distributions(problem)
    assert (start is None) == (not every)
    if start is None:
        return
    best = min(problem.cost(x) for x in every)
    local, _ = improve(problem, start)
    assert best <= problem.cost(local) <= problem.cost(start)
    bounds = lower_bounds(problem)
    assert best.pods >= bounds.pods and best.groups >= bounds.groups
    refined = cpsat.refine(problem, local, 20.0)
    assert refined.proved == len(cpsat.PROVED)
    assert problem.cost(refined.x) == best


@given(small_cases())
@settings(max_examples=200, deadline=None)
def test_a_claimed_optimum_is_one(case: Case) -> None:
    fabric, request, usable = case
    found = solve(fabric, request, usable)
    if isinstance(found, Solution) and found.proved:
        problem = build_problem(fabric, request, usable, 0)
        best = min(problem.cost(x) for x in all_distributions(problem))
        depth = {1: 4, 2: 5, 3: 8}[found.proved]
        assert tuple(found.cost)[:depth] == tuple(best)[:depth]


@given(small_cases(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_relabelling_changes_no_cost(case: Case, random: Random) -> None:
    fabric, request, usable = case
    count, pods = len(fabric.groups), len(fabric.pods)
    group_map, pod_map, hosts = list(range(count)), list(range(pods)), list(range(len(fabric.hosts)))
    for items in (group_map, pod_map, hosts):
        random.shuffle(items)
    renamed_groups: list[Group | None] = [None] * count
    for old, new in enumerate(group_map):
        renamed_groups[new] = Group(f"x{new}", pod_map[fabric.groups[old].pod], 0, ())
    other = msgspec.structs.replace(
        request, heat={f"x{group_map[i]}": request.heat[g.name] for i, g in enumerate(fabric.groups)}
    )
    renamed = Fabric(
        name="other",
        source="test",
        digest="",
        hosts=[f"z{i}" for i in range(len(hosts))],
        group=np.array([group_map[int(fabric.group[h])] for h in hosts], dtype=np.int64),
        domain=fabric.domain,
        groups=[g for g in renamed_groups if g is not None],
        pods=[f"y{i}" for i in range(pods)],
        roots=1,
        domains=[],
    )
    one, two = solve(fabric, request, usable), solve(renamed, other, usable[hosts])
    if isinstance(one, Infeasible):
        assert isinstance(two, Infeasible) and one.reasons == two.reasons
    else:
        assert isinstance(two, Solution) and one.cost == two.cost and one.greedy_cost == two.greedy_cost


@given(small_cases())
@settings(max_examples=150, deadline=None)
def test_soft_crosses_only_when_it_must_and_as_little_as_possible(case: Case) -> None:
    fabric, request, usable = case
    soft = msgspec.structs.replace(request, constraints=Constraints(tp_in_rail_group="soft"))
    free = np.bincount(fabric.group[usable], minlength=len(fabric.groups))
    found = solve(fabric, soft, usable)
    if free.sum() < request.nodes:
        assert isinstance(found, Infeasible)
        return
    assert isinstance(found, Solution)
    assert len(set(found.order.tolist())) == request.nodes and usable[found.order].all()
    least = max(0, request.units - int((free // request.unit).sum()))
    metrics = measure(fabric, found.order, request.unit)
    assert metrics.tp_groups_across_groups == found.cost.tp_crossings == least


@given(small_cases(), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_limits_on_pods_and_groups_hold_or_are_named(case: Case, pods: int, groups: int) -> None:
    fabric, request, usable = case
    limited = msgspec.structs.replace(request, constraints=Constraints(max_pods=pods, max_rail_groups=groups))
    found = solve(fabric, limited, usable)
    if isinstance(found, Solution):
        assert found.cost.pods <= pods and found.cost.groups <= groups
    else:
        assert found.reasons


@pytest.mark.parametrize(
    ("free", "unit", "units", "words"),
    [
        ([4, 4], 2, 8, "16 nodes asked for, 8 usable"),
        ([3, 3, 2], 2, 4, "4 tensor-parallel groups of 2 nodes asked for, 3 fit without leaving a rail group"),
    ],
)
def test_reasons_are_numbers(free: list[int], unit: int, units: int, words: str) -> None:
    fabric = make_fabric(free, [0] * len(free))
    request = parse_request({"nodes": unit * units, "tp": 8 * unit})
    found = solve(fabric, request, np.ones(sum(free), dtype=bool))
    assert isinstance(found, Infeasible) and words in found.reasons[0]


def test_separate_fabrics_are_never_mixed() -> None:
    fabric = make_fabric([4, 4, 6], [0, 0, 1])
    fabric.groups[2] = Group("gc", 1, 1, ())
    fabric.roots = 2
    everything = np.ones(14, dtype=bool)
    found = solve(fabric, parse_request({"nodes": 8}), everything)
    assert isinstance(found, Solution) and set(fabric.group[found.order].tolist()) == {0, 1}
    refused = solve(fabric, parse_request({"nodes": 10}), everything)
    assert isinstance(refused, Infeasible) and "separate fabrics" in refused.reasons[0]


def test_heat_decides_between_equal_groups_only_where_traffic_leaves() -> None:
    fabric = make_fabric([4, 4, 4], [0, 0, 0])
    free = np.ones(12, dtype=bool)
    hot = {"ga": 0.9, "gb": 0.1, "gc": 0.2}
    spread = solve(fabric, parse_request({"nodes": 8, "tp": 16, "heat": hot}), free)
    assert isinstance(spread, Solution) and set(fabric.group[spread.order].tolist()) == {1, 2}
    alone = solve(fabric, parse_request({"nodes": 4, "tp": 16, "heat": hot}), free)
    assert isinstance(alone, Solution) and alone.cost.heat == 0


def test_pipeline_stages_fall_on_group_borders() -> None:
    """Two stages of 4 nodes over groups of 4, 2 and 2: one stage has a group to itself, the other closes its ring over two."""
    fabric = make_fabric([4, 2, 2], [0, 0, 0])
    found = solve(fabric, parse_request({"nodes": 8, "tp": 8, "pp": 2}), np.ones(8, dtype=bool))
    assert isinstance(found, Solution)
    assert measure(fabric, found.order, 1, pp=2).dp_ring_crossings == 2  # only the stage that spans gb and gc


NVL = [0] * 4 + [1] * 4 + [2] * 3 + [3] * 5


def test_tensor_groups_stay_in_nvlink_domains() -> None:
    fabric = make_fabric([8, 8], [0, 0], NVL)
    request = parse_request({"nodes": 8, "gpus_per_node": 4, "tp": 16})
    found = solve(fabric, request, np.ones(16, dtype=bool))
    assert isinstance(found, Solution) and found.cost.nvlink_breaks == 0
    metrics = measure(fabric, found.order, request.unit)
    assert metrics.tp_groups_across_domains == 0 and metrics.mean_switch_hops_tp == 0.0


def test_a_domain_is_left_only_when_none_has_room() -> None:
    fabric = make_fabric([8, 8], [0, 0], NVL)
    request = parse_request({"nodes": 16, "gpus_per_node": 4, "tp": 16})
    found = solve(fabric, request, np.ones(16, dtype=bool))
    assert isinstance(found, Solution)
    assert found.cost.nvlink_breaks == 1  # the last group has 3 + 5: one unit inside, one across
    assert measure(fabric, found.order, request.unit).tp_groups_across_domains == 1
    strict = msgspec.structs.replace(request, constraints=Constraints(tp_in_nvlink_domain="required"))
    refused = solve(fabric, strict, np.ones(16, dtype=bool))
    assert isinstance(refused, Infeasible) and "NVLink domain" in refused.reasons[0]
    ignored = msgspec.structs.replace(request, constraints=Constraints(tp_in_nvlink_domain="ignore"))
    assert isinstance(solve(fabric, ignored, np.ones(16, dtype=bool)), Solution)


@given(st.lists(st.integers(-1, 3), min_size=12, max_size=12), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_domain_breaks_are_the_fewest(domains: list[int], unit: int, units: int) -> None:
    fabric = make_fabric([7, 5], [0, 0], domains)
    if unit * units > 12:
        return
    request = parse_request({"nodes": unit * units, "gpus_per_node": 4, "tp": 4 * unit})
    found = solve(fabric, request, np.ones(12, dtype=bool))
    cells = {}
    for group, domain in zip(fabric.group.tolist(), domains, strict=True):
        cells[group, domain] = cells.get((group, domain), 0) + 1
    inside = sum(count // unit for count in cells.values())
    if isinstance(found, Solution) and unit > 1:
        assert len(set(found.order.tolist())) == request.nodes
        assert found.cost.nvlink_breaks == max(0, units - inside)
