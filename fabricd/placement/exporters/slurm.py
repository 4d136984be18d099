"""Slurm: topology.conf for topology/tree and topology/block, and topology.yaml (Slurm 25.05 and later).

One SwitchName per rail group, never per physical leaf: a node under several leaves makes Slurm warn ``Multiple leaf switches
contain nodes`` and count it in each (man topology.conf). Fabrics that are not connected are separate roots.
"""

from __future__ import annotations

from typing import Any

import yaml

from fabricd.jobs.hostlist import compress
from fabricd.placement.exporters.base import ExportOptions, Root, slurm_name, tree
from fabricd.placement.fabric import Fabric

MAX_COMMENT = 200


def render_tree(fabric: Fabric, options: ExportOptions) -> str:
    """topology.conf for ``TopologyPlugin=topology/tree``."""
    roots = tree(fabric)
    lines = [_head(fabric, "TopologyPlugin=topology/tree"), *_leaf_comments(fabric, roots)]
    for switch, kind, members in _switches(roots):
        lines.append(f"SwitchName={switch} {kind}={members}")
    return "\n".join([*lines, *_others(fabric)]) + "\n"


def render_block(fabric: Fabric, options: ExportOptions) -> str:
    """topology.conf for ``TopologyPlugin=topology/block`` (Slurm 23.11 and later)."""
    blocks = _blocks(fabric, options)
    sizes = options.block_sizes or block_sizes([len(hosts) for _, hosts in blocks])
    lines = [_head(fabric, "TopologyPlugin=topology/block")]
    lines += [f"BlockName={name} Nodes={compress(hosts)}" for name, hosts in blocks]
    if sizes:
        lines.append(f"BlockSizes={','.join(map(str, sizes))}")
    return "\n".join([*lines, *_others(fabric)]) + "\n"


def render_yaml(fabric: Fabric, options: ExportOptions) -> str:
    """topology.yaml with the tree as the cluster's default and the blocks beside it."""
    switches: list[dict[str, str]] = []
    listed = _switches(tree(fabric))
    for switch, kind, members in [s for s in listed if s[1] == "Switches"] + [s for s in listed if s[1] == "Nodes"]:
        switches.append({"switch": switch, "children" if kind == "Switches" else "nodes": members})
    blocks = _blocks(fabric, options)
    sizes = options.block_sizes or block_sizes([len(hosts) for _, hosts in blocks])
    document: list[dict[str, Any]] = [
        {"topology": "fabric-tree", "cluster_default": True, "tree": {"switches": switches}},
        {
            "topology": "fabric-block",
            "cluster_default": False,
            "block": {
                "block_sizes": list(sizes),
                "blocks": [{"block": name, "nodes": compress(hosts)} for name, hosts in blocks],
            },
        },
    ]
    others = compress([*fabric.storage, *fabric.management])
    if others:
        document.append({"topology": "other-flat", "cluster_default": False, "flat": True})
    head = "\n".join([_head(fabric, "topology.yaml (topology.conf is ignored beside it)"), *_others(fabric)])
    return f"{head}\n---\n{yaml.safe_dump(document, sort_keys=False, width=1 << 20)}"


def block_sizes(counts: list[int]) -> tuple[int, ...]:
    """Block sizes D, 2D, 4D, … up to the number of blocks, D the nodes of the smallest block."""
    if not counts:
        return ()
    return tuple(min(counts) << k for k in range(len(counts).bit_length()))


def _switches(roots: list[Root]) -> list[tuple[str, str, str]]:
    """(name, Nodes or Switches, members) from the leaves up. A level with a single member is left out at the top."""
    out: list[tuple[str, str, str]] = []
    tops: list[tuple[str, str, str]] = []
    cores: list[tuple[str, str, str]] = []
    taken = {slurm_name(name) for root in roots for pod in root.pods for name, _, _ in pod.groups}
    for root in roots:
        children: list[str] = []
        for pod in root.pods:
            leaves = [slurm_name(name) for name, _, _ in pod.groups]
            out += [(slurm_name(name), "Nodes", compress(hosts)) for name, hosts, _ in pod.groups]
            if len(leaves) == 1 and len(root.pods) == 1:
                continue
            name = _free(slurm_name(pod.name), taken)
            tops.append((name, "Switches", compress(leaves)))
            children.append(name)
        if len(children) > 1:
            cores.append((_free(slurm_name(root.core), taken), "Switches", compress(children)))
    return [*out, *tops, *cores]


def _free(name: str, taken: set[str]) -> str:
    """A switch name nobody has yet: a pod may be called like a rail group."""
    number, candidate = 2, name
    while candidate in taken:
        candidate = f"{name}-{number}"
        number += 1
    taken.add(candidate)
    return candidate


def _blocks(fabric: Fabric, options: ExportOptions) -> list[tuple[str, list[str]]]:
    level = options.config.block_level
    if level == "nvlink" or (level == "auto" and fabric.domains):
        out = []
        for i, domain in enumerate(fabric.domains):
            hosts = [fabric.hosts[h] for h in (fabric.domain == i).nonzero()[0]]
            out.append((slurm_name(domain), hosts))
        rest = [fabric.hosts[h] for h in (fabric.domain < 0).nonzero()[0]]
        return out + ([("no-nvlink-domain", rest)] if rest else [])
    return [(slurm_name(name), hosts) for root in tree(fabric) for pod in root.pods for name, hosts, _ in pod.groups]


def _head(fabric: Fabric, what: str) -> str:
    return f"# Written by fabricd for fabric {fabric.name}: {what}. Digest {fabric.digest}."


def _leaf_comments(fabric: Fabric, roots: list[Root]) -> list[str]:
    """``# name=leaf GUIDs``, so that a person finds the hardware behind a rail group."""
    out = []
    for root in roots:
        for pod in root.pods:
            for name, _, index in pod.groups:
                leaves = ",".join(f"0x{leaf:016x}" for rail in fabric.groups[index].leaves for leaf in rail)
                text = leaves if len(leaves) <= MAX_COMMENT else leaves[:MAX_COMMENT].rsplit(",", 1)[0] + ",..."
                out.append(f"# {slurm_name(name)}={text}")
    return out


def _others(fabric: Fabric) -> list[str]:
    """Hosts that get no jobs of rail groups, told apart, as comments."""
    kinds = (("storage", fabric.storage), ("management", fabric.management), ("in no rail group", fabric.unplaced))
    return [f"# {kind} (not in the topology): {compress(hosts)}" for kind, hosts in kinds if hosts]
