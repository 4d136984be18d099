"""Traces of the model: the documented files and columns, conserved on every cable, and what telemetry faults do to them."""

from __future__ import annotations

import csv
import gzip
import io
import json

import numpy as np
import pytest

from fabricd.errors import UsageError
from fabricd.flow.faults import FAULTS, apply_fault
from fabricd.flow.headless import COLUMNS, Trace, run
from fabricd.flow.staging import Draw

FIELDS = COLUMNS.split(",")
GAUGES = {"q_bytes", "q_max", "ingress_bytes"}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run("incast", Draw(seed=5, hosts=16, kind="ethernet", windows=25, slots=50, begin_s=5.0, length_s=12.0))


def column(trace: Trace, name: str) -> np.ndarray:
    """[W, rows]"""
    return np.stack(trace.counters)[:, :, FIELDS.index(name)]


def test_files_parse_as_the_format_says(trace: Trace) -> None:
    files = trace.files()
    assert set(files) == {"counters.csv.gz", "link_state.csv", "topology.json", "label.json", "flows.json"}
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(files["counters.csv.gz"]).decode())))
    assert list(rows[0]) == FIELDS
    topology = json.loads(files["topology.json"])
    ports = {(link[end], link[end + "_port"]) for link in topology["links"] for end in ("a", "b")}
    assert len(rows) == 25 * len(ports) * len(topology["prios"])
    assert {(int(r["node"]), int(r["port"])) for r in rows} == ports
    assert files == trace.files()
    label = json.loads(files["label.json"])
    assert label["duration_ns"] == 25 * label["dt_ns"] == 25 * 10**9
    nodes = {node["id"] for node in topology["nodes"]}
    for flow in json.loads(files["flows.json"]):
        assert {flow["src"], flow["dst"]} <= nodes
        assert flow["path"][0][0] == flow["src"]
    switches = {str(n["id"]) for n in topology["nodes"] if n["kind"] == "switch"}
    assert set(topology["fib"]) == switches


def test_counters_only_grow_and_agree_over_every_cable(trace: Trace) -> None:
    for name in FIELDS[4:]:
        if name not in GAUGES:
            assert (np.diff(column(trace, name), axis=0) >= 0).all(), name
    place = {tuple(row): k for k, row in enumerate(trace.counters[0][:, 1:4].tolist())}
    tx, rx = column(trace, "tx_bytes")[-1], column(trace, "rx_bytes")[-1]
    sent, heard = column(trace, "pfc_tx")[-1], column(trace, "pfc_rx")[-1]
    for link in trace.topology["links"]:
        for prio in trace.topology["prios"]:
            a, b = place[link["a"], link["a_port"], prio], place[link["b"], link["b_port"], prio]
            slack = link["rate_bps"] / 8 * 0.1
            for one, other in ((a, b), (b, a)):
                assert 0 <= tx[one] - rx[other] <= slack
                assert -1 <= sent[one] - heard[other] <= 2
    waited = np.diff(column(trace, "xmit_wait_ns"), axis=0)
    assert (waited <= 1.03e9).all()
    assert waited.max() > 0.2e9


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seeded_and_leave_the_truth(trace: Trace, fault: str) -> None:
    worse = apply_fault(trace, fault, 3)
    again = apply_fault(trace, fault, 3)
    assert all((a == b).all() for a, b in zip(worse.counters, again.counters, strict=True))
    assert worse.label == trace.label
    assert any(a.shape != b.shape or (a != b).any() for a, b in zip(worse.counters, trace.counters, strict=True))


def test_each_fault_does_what_it_says(trace: Trace) -> None:
    rows = len(trace.counters[0])
    lost = apply_fault(trace, "loss", 1)
    assert 0.7 < sum(len(b) for b in lost.counters) / (25 * rows) < 0.98
    blind = apply_fault(trace, "blind", 1)
    switches = {n["id"] for n in trace.topology["nodes"] if n["kind"] == "switch"}
    missing = set(trace.counters[0][:, 1].tolist()) - {n for b in blind.counters for n in b[:, 1].tolist()}
    assert missing
    assert missing < switches
    cleared = apply_fault(trace, "resets", 1)
    tx = column(cleared, "tx_bytes")
    assert (np.diff(tx, axis=0) < 0).any()
    assert (tx >= 0).all()
    mixed = apply_fault(trace, "mixed-cadence", 1)
    reports = np.bincount(np.concatenate([np.unique(b[:, 1]) for b in mixed.counters if len(b)]))
    assert len(set(reports.tolist())) > 1
    skewed = apply_fault(trace, "skew", 1)
    assert np.abs(column(skewed, "t_ns") - column(trace, "t_ns")).max() > 5e7
    with pytest.raises(UsageError, match="telemetry fault"):
        apply_fault(trace, "gremlins", 1)
