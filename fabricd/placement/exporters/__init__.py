"""The topology in the formats that schedulers and NCCL read. ``FORMATS`` is the registry of ``fabricd topo export``."""

from __future__ import annotations

from fabricd.config.placement import PlacementConfig
from fabricd.model.topology import Topology
from fabricd.placement.avoid import from_faults
from fabricd.placement.exporters.base import Exporter, ExportOptions
from fabricd.placement.exporters.kubernetes import render_kai, render_kueue, render_labels, render_volcano
from fabricd.placement.exporters.nccl import render_nccl
from fabricd.placement.exporters.slurm import render_block, render_tree, render_yaml
from fabricd.placement.fabric import compile_fabric

FORMATS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (
        Exporter("slurm-tree", "topology.conf for topology/tree: one SwitchName per rail group", render_tree),
        Exporter(
            "slurm-block", "topology.conf for topology/block: NVLink domains or rail groups as blocks", render_block
        ),
        Exporter("slurm-yaml", "topology.yaml for Slurm 25.05 and later: tree and blocks", render_yaml),
        Exporter("k8s-labels", "Node labels and annotations, one patch a node", render_labels),
        Exporter("kueue", "Kueue Topology and ResourceFlavor", render_kueue),
        Exporter("volcano", "Volcano HyperNodes: rail groups, pods, core", render_volcano),
        Exporter("kai", "KAI Scheduler Topology", render_kai),
        Exporter("nccl", "nccl.conf: NCCL_IB_HCA with port, rail and plane", render_nccl),
    )
}


def export(
    topology: Topology,
    name: str,
    config: PlacementConfig | None = None,
    *,
    node: str | None = None,
    block_sizes: tuple[int, ...] = (),
) -> str:
    """Render a topology in the format ``name`` (a key of FORMATS)."""
    config = config or PlacementConfig()
    options = ExportOptions(config, from_faults(topology, config.avoid_faults), node, block_sizes)
    return FORMATS[name].render(compile_fabric(topology), options)
