"""What a verdict rests on, taken at the interval in which its root held most: the tree of waits, the runner-up, what was not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fabricd.detect.blame import Graph
from fabricd.detect.episodes import Candidate
from fabricd.detect.fabric import Fabric
from fabricd.detect.features import Features

EDGES = 40  # edges of the tree that are kept; a storm has thousands and nobody reads them
SMALL = 0.05  # an edge that explains less of a wait is left out


def explanation(
    fabric: Fabric, graph: Graph, features: Features, candidate: Candidate, prio: int, t_ns: int
) -> dict[str, Any]:
    """Plain data in port indices: ``edges`` [{"waits", "for", "share", "stall"}], ``root`` numbers, ``runner_up`` or None."""
    roots = candidate.cycle or (candidate.port,)
    return {
        "at": t_ns,
        "root": [_numbers(features, port, prio) for port in roots],
        "edges": _tree(graph, list(roots), candidate),
        "runner_up": None if candidate.cycle else _runner_up(fabric, graph, features, candidate, prio),
    }


def _numbers(features: Features, port: int, prio: int) -> dict[str, Any]:
    return {
        "port": int(port),
        "use": round(float(features.use[port]), 3),
        "stall": round(float(features.stall[port, prio]), 3),
        "own": round(float(features.tx[port, prio] / max(features.capacity[port], 1.0)), 3),
        "marked": round(float(features.marked[port, prio]), 3),
        "estimated": bool(features.estimated[port, prio]),
        "unknown": bool(features.unknown[port, prio]),
    }


def _tree(graph: Graph, roots: list[int], candidate: Candidate) -> list[dict[str, Any]]:
    """Breadth first against the direction of waiting, heaviest edges first."""
    waits = graph.wait.tocsc()
    held = set(candidate.held.tolist())
    edges: list[dict[str, Any]] = []
    seen = set(roots)
    level = roots
    if candidate.kind == "host":
        edges.append({"waits": roots[0], "for": None, "share": 1.0, "stall": round(float(graph.stall[roots[0]]), 3)})
    while level and len(edges) < EDGES:
        found: list[tuple[float, int, int, float]] = []
        for port in level:
            span = slice(waits.indptr[port], waits.indptr[port + 1])
            for waiting, share in zip(waits.indices[span].tolist(), waits.data[span].tolist(), strict=True):
                if share >= SMALL and waiting in held:
                    found.append((share * float(graph.stall[waiting]), waiting, port, share))
        level = []
        for _, waiting, port, share in sorted(found, reverse=True):
            if len(edges) >= EDGES:
                break
            edges.append(
                {
                    "waits": waiting,
                    "for": port,
                    "share": round(share, 3),
                    "stall": round(float(graph.stall[waiting]), 3),
                }
            )
            if waiting not in seen:
                seen.add(waiting)
                level.append(waiting)
    return edges


def _runner_up(
    fabric: Fabric, graph: Graph, features: Features, candidate: Candidate, prio: int
) -> dict[str, Any] | None:
    """The other egress of the root's switch that looked most like it: the busiest, and why it is not blamed."""
    port = candidate.port
    others = np.flatnonzero((fabric.node == fabric.node[port]) & (np.arange(fabric.size) != port))
    others = others[features.tx[others, prio] > 0]
    if not others.size:
        return None
    backlog = np.minimum(1.0, features.use[others] + features.stall[others, prio])
    other = int(others[np.argmax(backlog)])
    column = sparse.csc_array(graph.wait[:, [other]])
    direct = candidate.held[graph.wait[candidate.held][:, [port]].toarray().ravel() > 0]
    blamed = float(
        (column.toarray().ravel()[direct] * graph.stall[direct]).sum() / max(graph.stall[direct].sum(), 1e-9)
    )
    numbers = _numbers(features, other, prio)
    numbers["blamed"] = round(blamed, 3)
    if graph.passing[other] >= 1.0:
        numbers["why_not"] = "it waits itself, so it passes the blame on"
    elif blamed >= SMALL:
        numbers["why_not"] = "it explains part of the same waits, less than the root does"
    elif backlog.max() < features.use[port] + features.stall[port, prio]:
        numbers["why_not"] = "it is less busy than the root"
    else:
        numbers["why_not"] = (
            "it is busy, but the waits do not follow it: they come and go without it, or its own feeders do not wait"
        )
    return numbers
