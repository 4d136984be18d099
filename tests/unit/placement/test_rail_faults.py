"""A hundred random faults of each kind on the rails: exports keep the true groups, placement keeps off the host concerned."""

from __future__ import annotations

import random
import re

import pytest

from fabricd.config.placement import PlacementConfig
from fabricd.jobs.hostlist import expand
from fabricd.model.topology import CA, Link, Topology
from fabricd.placement.exporters import export
from fabricd.placement.request import parse_request
from fabricd.placement.service import place
from fabricd.topology.assemble import label_everything
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric

TRIALS = 100
UNITS, HOSTS, RAILS = 4, 8, 4
TRUTH = {frozenset(f"gpu{u * HOSTS + h + 1:03d}" for h in range(HOSTS)) for u in range(UNITS)}


def host_links(topology: Topology) -> list[Link]:
    return [
        link
        for link in topology.links
        if any(topology.nodes[ref[0]].type == CA and topology.nodes[ref[0]].host for ref in (link.a, link.b))
    ]


def ends(topology: Topology, link: Link) -> tuple[tuple[int, int], tuple[int, int]]:
    """(adapter port, leaf port)."""
    return (link.a, link.b) if topology.nodes[link.a[0]].type == CA else (link.b, link.a)


def swap(topology: Topology, one: Link, two: Link) -> None:
    (nic_1, leaf_1), (nic_2, leaf_2) = ends(topology, one), ends(topology, two)
    topology.links = [link for link in topology.links if link is not one and link is not two]
    topology.links += [Link(nic_1, leaf_2, 400.0), Link(nic_2, leaf_1, 400.0)]


def port_down(topology: Topology, rng: random.Random) -> set[str]:
    link = rng.choice(host_links(topology))
    topology.links = [other for other in topology.links if other is not link]
    return {topology.nodes[ends(topology, link)[0][0]].host}


def crossed(topology: Topology, rng: random.Random) -> set[str]:
    host = f"gpu{rng.randint(1, UNITS * HOSTS):03d}"
    mine = [k for k in host_links(topology) if topology.nodes[ends(topology, k)[0][0]].host == host]
    swap(topology, *rng.sample(mine, 2))
    return {host}


def other_unit(topology: Topology, rng: random.Random) -> set[str]:
    """Two hosts of two units have one cable exchanged."""
    one, two = rng.sample(range(UNITS), 2)
    hosts = [f"gpu{unit * HOSTS + rng.randint(1, HOSTS):03d}" for unit in (one, two)]
    rail = rng.randrange(RAILS)
    links = [
        next(k for k in host_links(topology) if topology.nodes[ends(topology, k)[0][0]].name == f"{host} mlx5_{rail}")
        for host in hosts
    ]
    swap(topology, *links)
    return set(hosts)


@pytest.mark.parametrize("fault", [port_down, crossed, other_unit], ids=lambda f: f.__name__)
def test_random_faults(fault) -> None:  # type: ignore[no-untyped-def]
    rng = random.Random(7)
    request = parse_request({"nodes": 8, "tp": 32, "alternatives": 0})
    config = PlacementConfig(refine_seconds=0)
    for trial in range(TRIALS):
        topology = rail_fabric(UNITS, HOSTS, RAILS, spines=2, uplinks=1, sharp=False)
        label_everything(topology)
        hurt = fault(topology, rng)
        check_rails(topology)
        lines = re.findall(r"^SwitchName=\S+ Nodes=(\S+)", export(topology, "slurm-tree"), re.M)
        groups = [frozenset(expand(nodes)) for nodes in lines]
        assert set(groups) == TRUTH and len(groups) == len(TRUTH), trial
        plan = place(topology, request, config)
        excluded = {entry["node"] for entry in plan["fabric"]["excluded_nodes"]}
        assert excluded == hurt, trial
        assert not hurt & set(plan["rank_order"]), trial
        assert plan["score"]["tp_groups_across_groups"] == 0, trial
