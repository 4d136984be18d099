"""Small random fabrics and requests, and brute force over them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from fabricd.placement.fabric import Fabric, Group
from fabricd.placement.problem import Ints, Problem
from fabricd.placement.request import Request, parse_request


def make_fabric(sizes: list[int], pods: list[int], domains: list[int] | None = None, names: str = "") -> Fabric:
    """Rail groups of the given sizes in the given pods; ``domains`` numbers the NVLink domain of each host (-1: none)."""
    hosts = [f"n{i:04d}" for i in range(sum(sizes))]
    group = np.repeat(np.arange(len(sizes)), sizes).astype(np.int64)
    domain = np.array(domains if domains is not None else [-1] * len(hosts), dtype=np.int64)
    labels = names or "abcdefghijklmnopqrstuvwxyz"[: len(sizes)]
    return Fabric(
        name="test",
        source="test",
        digest="",
        hosts=hosts,
        group=group,
        domain=domain,
        groups=[Group(f"g{labels[i]}", pods[i], 0, ()) for i in range(len(sizes))],
        pods=[f"p{i}" for i in range(max(pods) + 1)],
        roots=1,
        domains=[f"d{i}" for i in range(int(domain.max(initial=-1)) + 1)],
    )


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[Fabric, Request, np.ndarray]:
    """A fabric of 2 to 6 groups, a request with TP over 1 to 3 nodes, a mask of free hosts."""
    count = draw(st.integers(2, 6))
    sizes = draw(st.lists(st.integers(1, 7), min_size=count, max_size=count))
    pods = sorted(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    pods = [sorted(set(pods)).index(p) for p in pods]
    fabric = make_fabric(sizes, pods)
    usable = np.array(draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes))))
    unit = draw(st.integers(1, 3))
    units = draw(st.integers(1, 6))
    heat = {g.name: draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])) for g in fabric.groups}
    ep = draw(st.sampled_from([1, units]))
    request = parse_request(
        {"job": {"nodes": unit * units, "gpus_per_node": 8, "tp": 8 * unit, "dp": units, "ep": ep}, "heat": heat}
    )
    return fabric, request, usable


def all_distributions(problem: Problem) -> list[Ints]:
    """Every way to spread the units over the groups."""
    ranges = [range(int(f), int(c) + 1) for f, c in zip(problem.floor, problem.capacity, strict=True)]
    return [np.array(x, dtype=np.int64) for x in itertools.product(*ranges) if sum(x) == problem.units]
