"""The plan's intent in each scheduler's own words, for jobs that the scheduler places itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fabricd.placement.request import Request


def scheduler_hints(
    request: Request, level_keys: Sequence[str], topology_name: str, pods: int, groups: int
) -> dict[str, Any]:
    """``level_keys`` are node labels, closest level first (rail group, pod, …); pods and groups as the plan uses them.

    Slurm: ``--segment`` keeps units together with topology/block, ``--switches`` counts leaves with topology/tree.
    Kueue, Volcano and KAI: the outer level is required when one domain of it holds the whole plan.
    """
    unit, nodes = request.unit, request.nodes
    hints: dict[str, Any] = {
        "slurm": {
            "block": f"sbatch -N{nodes} --segment={unit}",
            "tree": f"sbatch -N{nodes} --switches={groups}@10:00",
            "exact": "SLURM_HOSTFILE=FILE srun -m arbitrary -w FILE",
        }
    }
    if not level_keys:
        return hints
    group_key = level_keys[0]
    outer = level_keys[1] if len(level_keys) > 1 else None
    kueue: dict[str, str] = {}
    if groups == 1:
        kueue["kueue.x-k8s.io/podset-required-topology"] = group_key
    else:
        if outer is not None:
            strength = "required" if pods == 1 else "preferred"
            kueue[f"kueue.x-k8s.io/podset-{strength}-topology"] = outer
        if outer is not None and unit > 1:
            kueue["kueue.x-k8s.io/podset-slice-required-topology"] = group_key
            kueue["kueue.x-k8s.io/podset-slice-size"] = str(unit)
        elif unit > 1:
            kueue["kueue.x-k8s.io/podset-slice-required-topology-constraints"] = json.dumps(
                [{"topology": group_key, "size": unit}]
            )
    volcano: dict[str, Any] = {
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1 if groups == 1 else 2 if pods == 1 else 3}
    }
    if unit > 1:
        volcano["partitionPolicy"] = {
            "totalPartitions": request.units,
            "partitionSize": unit,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }
    kai: dict[str, str] = {"kai.scheduler/topology": topology_name}
    if groups == 1:
        kai["kai.scheduler/topology-required-placement"] = group_key
    elif outer is not None:
        kai[f"kai.scheduler/topology-{'required' if pods == 1 else 'preferred'}-placement"] = outer
    if unit > 1:
        kai["kai.scheduler/segment-size"] = str(unit)
        kai["kai.scheduler/segment-topology-required-placement"] = group_key
    # Kubernetes 1.36 (alpha): one PodGroup per tensor-parallel group, exactly one strict key.
    pod_group = {
        "schedulingPolicy": {"gang": {"minCount": unit}},
        "schedulingConstraints": {"topology": [{"key": group_key}]},
    }
    return {**hints, "kueue": kueue, "volcano": volcano, "kai": kai, "kubernetes": pod_group}
