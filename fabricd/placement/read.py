"""The topology of ``--topology FILE``: every form ``fabricd topo`` reads, as long as it has rail groups."""

from __future__ import annotations

from fabricd.errors import FabricdError
from fabricd.model.topology import Topology
from fabricd.topology.load import load_topology


def read_topology(path: str) -> Topology:
    """Read a file (``-`` is standard input). Raises UsageError when it is no topology, FabricdError when it has no rail group."""
    topology = load_topology("/dev/stdin" if path == "-" else path)
    require_rails(topology, path)
    return topology


def require_rails(topology: Topology, where: str) -> None:
    """Raises FabricdError when there is nothing to place on."""
    if not any(group.kind == "compute" and group.hosts for group in topology.rails):
        raise FabricdError(
            f"--topology {where}: no named host adapter is cabled to a switch, so there are no rail groups"
        )
