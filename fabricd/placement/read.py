"""A topology from a file: the JSON of ``fabricd topo show --json``, a golden file, or raw ``ibnetdiscover`` output."""

from __future__ import annotations

import json
from pathlib import Path

from fabricd.errors import FabricdError, UsageError
from fabricd.model.topology import Topology
from fabricd.topology.golden import topology_from_json
from fabricd.topology.ibnetdiscover import looks_like_ibnetdiscover, parse_ibnetdiscover
from fabricd.topology.railfaults import check_rails


def read_topology(path: str) -> Topology:
    """Read either format (``-`` is standard input); rail groups are recovered when the file has none.

    Raises UsageError when it cannot be read or is neither, FabricdError when it holds no rail group at all.
    """
    try:
        text = Path("/dev/stdin" if path == "-" else path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"--topology {path}: {error.strerror}") from None
    topology = parse_topology(text, path)
    if not topology.rails:
        raise FabricdError(f"--topology {path}: no host adapter is cabled to a switch, so there are no rail groups")
    return topology


def parse_topology(text: str, where: str) -> Topology:
    """The topology of a text in either format. Raises UsageError."""
    if text.lstrip().startswith("{"):
        try:
            topology = topology_from_json(json.loads(text), where)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--topology {where}: {error}") from None
    elif looks_like_ibnetdiscover(text):
        topology = parse_ibnetdiscover(text, where)
    else:
        raise UsageError(f"--topology {where}: neither JSON of `fabricd topo show --json` nor ibnetdiscover output")
    if not topology.rails:
        check_rails(topology)
    return topology
