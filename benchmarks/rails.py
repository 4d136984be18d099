"""How often rail groups are recovered exactly from a fabric with random faults: our rule against the two others in use.

    python -m benchmarks.rails [--trials N] [--json]

Exact sets: leaves with the same set of hosts are one group. Components: hosts that share a leaf are one group. Eight units of 32
hosts, eight rails, SHARP nodes on every switch; hosts' names are read from their adapters.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections import defaultdict
from collections.abc import Callable
from random import Random

from fabricd.model.topology import Topology
from fabricd.topology.rails import host_ports, recover_rails
from tests.fabrics import add_storage, cross_rails, forget_names, miscable, ports_down, rail_fabric

UNITS, HOSTS = 8, 32
CLEAN = pickle.dumps(rail_fabric(UNITS, HOSTS, 8, spines=8, uplinks=1))
UNIT_OF = {f"gpu{number + 1:03d}": number // HOSTS for number in range(UNITS * HOSTS)}
TRUTH = {frozenset(host for host, unit in UNIT_OF.items() if unit == number) for number in range(UNITS)}
Groups = set[frozenset[str]]

BREAKS: dict[str, Callable[[Topology, Random], object]] = {
    "1 port down": lambda t, r: ports_down(t, r, 1),
    "5 ports down": lambda t, r: ports_down(t, r, 5),
    "20 ports down": lambda t, r: ports_down(t, r, 20),
    "1 miscable": lambda t, r: miscable(t, r, 1, UNIT_OF),
    "5 miscables": lambda t, r: miscable(t, r, 5, UNIT_OF),
    "20 miscables": lambda t, r: miscable(t, r, 20, UNIT_OF),
    "5 crossed hosts": lambda t, r: cross_rails(t, r, 5),
    "1 name in 8 missing": lambda t, r: forget_names(t, r, 1 / 8),
    "2 storage leaves": lambda t, r: add_storage(t),
    "5 miscables, 5 crossed, 20 down, storage": lambda t, r: (
        miscable(t, r, 5, UNIT_OF),
        cross_rails(t, r, 5),
        ports_down(t, r, 20),
        add_storage(t),
    ),
}


def ours(topology: Topology) -> Groups:
    recover_rails(topology)
    return {frozenset(group.hosts) for group in topology.rails if group.kind == "compute"}


def _hosts_by_leaf(topology: Topology) -> dict[int, set[str]]:
    out: dict[int, set[str]] = defaultdict(set)
    for port in host_ports(topology):
        out[port.leaf].add(port.host)
    return out


def exact_sets(topology: Topology) -> Groups:
    return {frozenset(hosts) for hosts in _hosts_by_leaf(topology).values()}


def components(topology: Topology) -> Groups:
    group = {host: {host} for hosts in _hosts_by_leaf(topology).values() for host in hosts}
    for hosts in _hosts_by_leaf(topology).values():
        merged = set().union(*(group[host] for host in hosts))
        for host in merged:
            group[host] = merged
    return {frozenset(members) for members in group.values()}


RULES = {"exact sets": exact_sets, "components": components, "fabricd": ours}


def main() -> None:
    parser = argparse.ArgumentParser(description="How often rail groups are recovered exactly.")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for name, damage in BREAKS.items():
        right = dict.fromkeys(RULES, 0)
        for seed in range(args.trials):
            topology: Topology = pickle.loads(CLEAN)
            damage(topology, Random(seed))
            for rule, groups in RULES.items():
                right[rule] += groups(topology) == TRUTH
        rows.append({"faults": name, **{rule: round(100 * count / args.trials, 1) for rule, count in right.items()}})
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'faults':42}" + "".join(f"{rule:>12}" for rule in RULES))
    for row in rows:
        print(f"{row['faults']:42}" + "".join(f"{row[rule]:>10}" + " %" for rule in RULES))


if __name__ == "__main__":
    main()
