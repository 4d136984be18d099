"""A hundred random faults of each kind on the rails: exports keep the true groups, placement keeps off the hosts concerned."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from fabricd.config.placement import PlacementConfig
from fabricd.jobs.hostlist import expand
from fabricd.model.topology import Topology
from fabricd.placement.exporters import export
from fabricd.placement.request import parse_request
from fabricd.placement.service import place
from fabricd.topology.assemble import label_everything
from fabricd.topology.railfaults import check_rails
from tests import fabrics

TRIALS = 100
# Eight rails, as such machines have: with few rails two bad cables of one host are half of what is known of it.
UNITS, HOSTS, RAILS = 3, 12, 8
UNIT_OF = {f"gpu{u * HOSTS + h + 1:03d}": u for u in range(UNITS) for h in range(HOSTS)}
TRUTH = {frozenset(host for host, unit in UNIT_OF.items() if unit == u) for u in range(UNITS)}
CONFIG = PlacementConfig(refine_seconds=0)


def lost_ports(topology: Topology, random: Random, count: int) -> set[str]:
    lost = fabrics.ports_down(topology, random, count)
    return {topology.nodes[guid].host for link in lost for guid, _ in (link.a, link.b)} - {""}


def miscabled(topology: Topology, random: Random, count: int) -> set[str]:
    return fabrics.miscable(topology, random, count, UNIT_OF)


def forgotten(topology: Topology, random: Random, count: int) -> set[str]:
    """Adapters nobody named: their hosts may look as if they lacked a rail, and keeping off them is no mistake."""
    fabrics.forget_names(topology, random, count / (UNITS * HOSTS * RAILS))
    return set()


def storage(topology: Topology, random: Random, count: int) -> set[str]:
    fabrics.add_storage(topology, leaves=count, servers=3, spines=2)
    label_everything(topology)
    return set()


def tree_groups(topology: Topology) -> list[frozenset[str]]:
    lines = re.findall(r"^SwitchName=\S+ Nodes=(\S+)", export(topology, "slurm-tree"), re.M)
    return [frozenset(expand(nodes)) for nodes in lines]


@pytest.mark.parametrize(
    ("fault", "count", "least"),
    [
        (lost_ports, 1, 100),
        (lost_ports, 5, 100),
        (lost_ports, 20, 100),
        (fabrics.cross_rails, 1, 100),
        (fabrics.cross_rails, 3, 100),
        (miscabled, 1, 100),
        (miscabled, 5, 100),
        (forgotten, 16, 100),
        (storage, 2, 100),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_groups_survive_and_hurt_hosts_are_avoided(
    fault: Callable[[Topology, Random, int], set[str]], count: int, least: int
) -> None:
    """``least`` of the trials must give exactly the true groups; no trial may place on a host that was hurt."""
    request = parse_request({"nodes": 4, "tp": 16, "alternatives": 0})
    right = 0
    for trial in range(TRIALS):
        topology = fabrics.rail_fabric(UNITS, HOSTS, RAILS, spines=2, uplinks=1, sharp=False)
        label_everything(topology)
        hurt = fault(topology, Random(trial), count)
        check_rails(topology)
        groups = tree_groups(topology)
        right += set(groups) == TRUTH and len(groups) == len(TRUTH)
        plan = place(topology, request, CONFIG)
        excluded = {entry["node"] for entry in plan["fabric"]["excluded_nodes"]}
        assert hurt <= excluded, (trial, hurt - excluded)
        if plan["feasible"]:
            assert not hurt & set(plan["rank_order"]), trial
            assert plan["score"]["tp_groups_across_groups"] == 0, trial
        if count == 1 or fault is storage:
            assert excluded == hurt and plan["feasible"], trial
    assert right >= least, right
