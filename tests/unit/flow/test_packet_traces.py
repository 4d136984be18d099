"""The model against packet-level traces (tests/data/flow): the same fabric and flows give the same roots, victims and stalls."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.flow_vs_packets import compare
from fabricd.flow.headless import run_scene
from fabricd.flow.packet_traces import scene_from_trace

DATA = Path(__file__).parents[2] / "data" / "flow"


def agreement(name: str, seeds: int = 1, quantum: int = 32768) -> dict[str, Any]:
    """Compare; stalls averaged over ``seeds`` draws of the message times, which these traces do not record."""
    documents = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    waits = {tuple(map(int, key.split(":"))): np.array(us) * 1e3 for key, us in documents.pop("waits_us").items()}
    traces = [run_scene(scene_from_trace(**documents, quantum=quantum, seed=seed)) for seed in range(1, seeds + 1)]
    assert all(trace.label["drops"] == 0 for trace in traces)
    return compare(documents["label"], waits, *traces)


@pytest.mark.parametrize(
    ("name", "cause", "seeds"),
    [
        ("deadlock-1", "pfc_deadlock", 1),
        ("incast-1", "incast", 1),
        ("degraded_link-1", "degraded_link", 1),
        ("slow_receiver-1", "slow_receiver", 2),
    ],
)
def test_same_root_cause_victims_and_stalls_as_packets(name: str, cause: str, seeds: int) -> None:
    result = agreement(name, seeds)
    main = result["episodes"][0]
    assert main["cause"] == cause
    assert main["found"]
    assert main["scored"]
    assert main["model_cause"] == cause
    assert main["victim_recall"] >= 0.8
    assert main["victim_precision"] >= 0.8
    assert main["stall_gap_mean"] <= 0.1
    assert result["extra_roots"] == []


def test_a_quiet_trace_stays_quiet() -> None:
    result = agreement("microburst_ok-2")
    assert result["negative_in_both"]
    assert result["stall_whole_run_gap"] < 0.01
