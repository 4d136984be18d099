"""What an exporter is, and what all of them share: levels with stable names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fabricd.config.placement import PlacementConfig
from fabricd.placement.avoid import Flags
from fabricd.placement.exporters.labels import fnv64a
from fabricd.placement.fabric import Fabric

_SLURM_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
SLURM_NAME_MAX = 64


@dataclass(slots=True)
class ExportOptions:
    """``flags``: hosts to avoid and why; ``node`` limits NCCL to one host; ``block_sizes`` overrides Slurm's."""

    config: PlacementConfig = field(default_factory=PlacementConfig)
    flags: Flags = field(default_factory=dict)
    node: str | None = None
    block_sizes: tuple[int, ...] = ()


Render = Callable[[Fabric, ExportOptions], str]


@dataclass(frozen=True, slots=True)
class Exporter:
    """One output format. ``render`` returns the whole text; equal inputs give equal text."""

    name: str
    summary: str
    render: Render


@dataclass(slots=True)
class Pod:
    """A pod with its non-empty rail groups, in order of name."""

    name: str
    groups: list[tuple[str, list[str], int]]  # (printed name, hosts, index in the fabric)


@dataclass(slots=True)
class Root:
    """One connected fabric; ``core`` names the level that joins its pods."""

    core: str
    pods: list[Pod]


def tree(fabric: Fabric) -> list[Root]:
    """Roots, pods, rail groups with hosts. Groups without hosts are left out: schedulers refuse empty leaves."""
    roots = [Root(f"core{r + 1}", []) for r in range(fabric.roots)]
    pods: dict[int, Pod] = {}
    for index, group in enumerate(fabric.groups):
        hosts = fabric.members(index)
        if not hosts:
            continue
        if group.pod not in pods:
            pods[group.pod] = Pod(fabric.pods[group.pod], [])
            roots[group.root].pods.append(pods[group.pod])
        pods[group.pod].groups.append((group.name, hosts, index))
    return [root for root in roots if root.pods]


def slurm_name(text: str) -> str:
    """A switch or block name Slurm takes: at most 64 characters, no blanks, brackets or commas."""
    name = _SLURM_NAME.sub("-", text)
    if name == text and len(name) <= SLURM_NAME_MAX:
        return name
    return f"{name[: SLURM_NAME_MAX - 17]}-{fnv64a(text):016x}"
