"""Hints obey the rules their schedulers check (Kueue: TAS annotations; Volcano: partition policy; Slurm: segments)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabricd.placement.exporters.labels import PRESETS
from fabricd.placement.hints import scheduler_hints
from fabricd.placement.request import parse_request

KEYS = PRESETS["topograph-v1"]
KUEUE = "kueue.x-k8s.io/podset-"


def check_kueue(hints: dict[str, str], pods: int) -> None:
    levels = [k for k in ("required-topology", "preferred-topology", "unconstrained-topology") if KUEUE + k in hints]
    assert len(levels) <= 1  # they exclude each other
    slice_key, size = hints.get(KUEUE + "slice-required-topology"), hints.get(KUEUE + "slice-size")
    layers = hints.get(KUEUE + "slice-required-topology-constraints")
    assert (slice_key is None) == (size is None)
    assert not (slice_key and layers)
    if slice_key and size:
        assert pods % int(size) == 0
        assert levels and KEYS.index(slice_key) < KEYS.index(hints[KUEUE + levels[0]])  # below the outer level
    if layers:
        decoded = json.loads(layers)
        assert 1 <= len(decoded) <= 3 and all(type(layer["size"]) is int for layer in decoded)
        assert pods % decoded[-1]["size"] == 0


@pytest.mark.parametrize("tp", [8, 16, 32])
@pytest.mark.parametrize(("pods", "groups"), [(1, 1), (1, 3), (2, 5)])
@pytest.mark.parametrize("keys", [KEYS, KEYS[:1], ()])
def test_hints(tp: int, pods: int, groups: int, keys: tuple[str, ...]) -> None:
    request = parse_request({"nodes": 16, "tp": tp})
    hints: dict[str, Any] = scheduler_hints(request, keys, "fabric", pods, groups)
    assert hints["slurm"]["block"] == f"sbatch -N16 --segment={tp // 8}"
    if not keys:
        assert set(hints) == {"slurm"}
        return
    check_kueue(hints["kueue"], 16)
    volcano = hints["volcano"]
    assert volcano["networkTopology"]["highestTierAllowed"] == (1 if groups == 1 else 2 if pods == 1 else 3)
    if tp > 8:
        policy = volcano["partitionPolicy"]
        assert policy["totalPartitions"] * policy["partitionSize"] == 16
        assert hints["kai"]["kai.scheduler/segment-size"] == str(tp // 8)
        assert hints["kubernetes"] == {
            "schedulingPolicy": {"gang": {"minCount": tp // 8}},
            "schedulingConstraints": {"topology": [{"key": keys[0]}]},
        }
