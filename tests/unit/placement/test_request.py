"""Requests: what follows from what, and errors that name the key and the value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.errors import UsageError
from fabricd.placement.request import load_request, parse_request

DATA = Path(__file__).parents[2] / "data" / "placement"


def test_the_shape_of_a_plan_is_a_request() -> None:
    request = parse_request(json.loads((DATA / "placement_plan.json").read_text()))
    assert (request.nodes, request.job.tp, request.job.pp, request.dp) == (6, 16, 3, 1)
    assert (request.unit, request.units) == (2, 3)
    assert request.excluded == {"gpu007": "rail 2 down"}


def test_nodes_or_dp_follow_from_the_rest() -> None:
    assert parse_request({"tp": 16, "pp": 2, "dp": 4}).nodes == 16
    assert parse_request({"tp": 16, "pp": 2, "nodes": 16}).dp == 4
    assert parse_request({"tp": 2, "cp": 2, "nodes": 3, "gpus_per_node": 4}).dp == 3


def test_lists_of_hosts() -> None:
    request = parse_request(
        {
            "nodes": 2,
            "free_nodes": "gpu[01-03],x1",
            "busy_nodes": ["gpu02"],
            "flagged_nodes": {"gpu01": "hot"},
            "constraints": {"exclude_nodes": ["x[1-2]", {"node": "y", "why": "mine"}]},
            "nvlink_domains": {"a": "gpu[01-02]", "b": ["gpu03"]},
        }
    )
    assert request.free_nodes == ["gpu01", "gpu02", "gpu03", "x1"]
    assert request.flagged == {"gpu01": "hot"}
    assert request.excluded == {"x1": "excluded by the request", "x2": "excluded by the request", "y": "mine"}
    assert request.nvlink_domains == {"gpu01": "a", "gpu02": "a", "gpu03": "b"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "must be a JSON object"),
        ({}, "job.nodes: missing"),
        ({"nodes": 0}, "job.nodes = 0"),
        ({"nodes": "four"}, "job.nodes = 'four'"),
        ({"nodes": 4, "tp": 12}, "job.tp = 12: above gpus_per_node = 8"),
        ({"nodes": 4, "tp": 3}, "job.tp = 3: must divide"),
        ({"nodes": 3, "tp": 16}, "job.nodes = 3: 24 GPUs are not a multiple"),
        ({"nodes": 4, "tp": 16, "dp": 3}, "job.dp = 3: tp*cp*pp*dp = 48, but nodes*gpus_per_node = 32"),
        ({"nodes": 4, "tp": 8, "ep": 3}, "job.ep = 3: must divide dp*cp = 4"),
        ({"nodes": 4, "gpu_per_node": 8}, "unknown key gpu_per_node = 8"),
        ({"job": {"nodes": 4, "tps": 1}}, "unknown key job.tps = 1"),
        ({"job": {"nodes": 4}, "tp": 8}, "tp = 8: give it inside job"),
        ({"nodes": 4, "free_nodes": "gpu[1-"}, "free_nodes = 'gpu[1-'"),
        ({"nodes": 4, "free_nodes": ["a", "a"]}, "free_nodes = 'a': listed twice"),
        ({"nodes": 4, "free_nodes": 7}, "free_nodes = 7"),
        ({"nodes": 4, "heat": {"su1": 1.5}}, "heat = {'su1': 1.5}"),
        ({"nodes": 4, "constraints": {"tp_in_rail_group": "maybe"}}, "constraints.tp_in_rail_group = 'maybe'"),
        ({"nodes": 4, "constraints": {"max_pods": 0}}, "constraints.max_pods = 0"),
        ({"nodes": 4, "model": {"layers": 2}}, "model"),
        ({"nodes": 4, "nvlink_domains": {"a": "x", "b": "x"}}, "nvlink_domains.b = 'x': already in domain a"),
        ({"nodes": 4, "alternatives": 99}, "alternatives = 99"),
    ],
)
def test_errors_name_key_and_value(document: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request(document, "r.json")
    assert words in str(caught.value) and "\n" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(
        ["job", "constraints", "free_nodes", "heat", "flagged_nodes", "nvlink_domains", "model", "hardware"]
    ),
)
def test_any_value_is_taken_or_refused_in_one_line(value: Any, key: str) -> None:
    document = {"job": {"nodes": 2}, key: value}
    try:
        parse_request(document)
    except UsageError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize("text", ["", "{", "\xff", "[" * 100_000, "nodes = 4"])
def test_files_that_are_no_json(text: str, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"r\.json"):
        load_request(str(file))
    with pytest.raises(UsageError, match="absent"):
        load_request(str(tmp_path / "absent"))
