"""A trace of ibdiagnet's output directories: counters, cabling and routes (``fabricd replay --from ibdiagnet:DIR``)."""

from __future__ import annotations

from pathlib import Path

from fabricd.errors import FabricdError
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Topology
from fabricd.outputs.history_trace import build
from fabricd.outputs.trace import Trace
from fabricd.sources import ibdiagnet_dir
from fabricd.topology.ibdiagnet import apply_net_dump_ext, looks_like_db_csv, parse_db_csv, parse_far
from fabricd.topology.load import complete, read_text
from fabricd.topology.opensm_files import parse_lfts
from fabricd.topology.routes import RouteTable
from fabricd.topology.tables import Lft, routes_from_lfts


def load_ibdiagnet(directory: Path, topology: Topology | None = None, routes: RouteTable | None = None) -> Trace:
    """The trace of all runs in ``directory``. The newest run that has them gives cabling and routes, unless they are given.

    Raises FabricdError when there are fewer than two runs, or none with counters.
    """
    if not directory.is_dir():
        raise FabricdError(f"{directory}: no such directory")
    found = ibdiagnet_dir.runs(directory)
    history = ibdiagnet_dir.read(found)
    if len({run.t_ns for run in found}) < 2:
        raise FabricdError(f"{directory}: one run of ibdiagnet tells no rates: give a directory that holds two or more")
    if topology is None:
        topology = next((t for t in (_topology(run) for run in reversed(found)) if t is not None), None)
    if topology is not None and routes is None:
        routes = next((r for r in (_routes(run, topology, history.rejects) for run in reversed(found)) if r), None)
    return build(history, topology, routes)


def _topology(run: ibdiagnet_dir.Run) -> Topology | None:
    text = read_text(run.db_csv)
    if not looks_like_db_csv(text):
        return None
    topology = parse_db_csv(text, run.db_csv.name)
    for path in sorted(run.directory.glob("*.net_dump_ext")):
        apply_net_dump_ext(topology, read_text(path), path.name)
    return complete(topology) if topology.links else None


def _routes(run: ibdiagnet_dir.Run, topology: Topology, rejects: Rejects) -> RouteTable | None:
    """Routes of ``*.fdbs`` and ``*.far``; switches they do not tell of are assumed."""
    forwarding: dict[int, Lft] = {}
    adaptive: dict[int, dict[int, tuple[int, ...]]] = {}
    for path in sorted(run.directory.glob("*.fdbs")):
        forwarding.update(parse_lfts(read_text(path), rejects, path.name))
    for path in sorted(run.directory.glob("*.far")):
        adaptive.update(parse_far(read_text(path), rejects, path.name))
    return routes_from_lfts(topology, forwarding, adaptive) if forwarding or adaptive else None
