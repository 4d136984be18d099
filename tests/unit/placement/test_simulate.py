"""The simulation: seeded, honest about its policies, and fabricd never lets a tensor-parallel group cross."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricd.placement.policies import POLICIES
from fabricd.placement.request import parse_request
from fabricd.placement.simulate import Mix, make_stream, simulate
from fabricd.placement.synthetic import synthetic_fabric

FABRIC = synthetic_fabric(8, 8, 4)
STREAM = make_stream(64, Mix(jobs=80, load=0.7), seed=3)


def test_same_seed_same_result() -> None:
    again = make_stream(64, Mix(jobs=80, load=0.7), seed=3)
    assert again == STREAM
    policies = ["random", "reorder", "scheduler", "fabricd"]
    assert simulate(FABRIC, STREAM, policies, 1) == simulate(FABRIC, again, policies, 1)


def test_the_order_of_the_policies() -> None:
    result = simulate(FABRIC, STREAM, list(POLICIES), 1)
    hops = {name: row["mean_switch_hops_tp"] for name, row in result.items()}
    assert hops["random"] > hops["reorder"] > hops["scheduler"] >= hops["fabricd"] == 1.0
    assert result["fabricd"]["tp_groups_across_groups"] == 0
    assert result["random"]["ring_group_crossings"] > result["reorder"]["ring_group_crossings"]
    assert result["fabricd-soft"]["mean_wait_h"] <= result["fabricd"]["mean_wait_h"] + 1e-9
    assert all(row["placed"] == 80 for row in result.values())


@given(st.sampled_from(sorted(POLICIES)), st.integers(1, 4), st.integers(1, 8), st.integers(0, 9))
@settings(max_examples=100, deadline=None)
def test_every_policy_gives_free_hosts_once(name: str, unit: int, units: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    usable = rng.random(64) < 0.6
    request = parse_request({"nodes": unit * units, "tp": 8 * unit})
    order = POLICIES[name](FABRIC, request, usable, rng)
    if order is None:
        assert name == "fabricd" or usable.sum() < request.nodes
        return
    assert len(set(order.tolist())) == request.nodes == len(order) and usable[order].all()


def test_a_synthetic_fabric_is_regular() -> None:
    fabric = synthetic_fabric(4, 10, 2, domain_size=4)
    assert np.bincount(fabric.group).tolist() == [10] * 4 and fabric.pods == ["pod1", "pod2"]
    assert np.bincount(fabric.domain).tolist() == [4, 4, 2] * 4
    for domain in range(12):
        assert len(set(fabric.group[fabric.domain == domain].tolist())) == 1


def test_an_empty_stream() -> None:
    assert simulate(FABRIC, [], ["fabricd"])["fabricd"]["mean_wait_h"] is None
    with pytest.raises(KeyError):
        simulate(FABRIC, [], ["nobody"])
