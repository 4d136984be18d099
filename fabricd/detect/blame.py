"""The wait-for graph of one interval and where the wait ends.

A stalled port waits for egress queues of the switch it feeds. It blames each in proportion to the bytes that queue holds of it:
(share of the queue that came from it) x (evidence of a queue). Blame flows downstream: a port that itself waits passes it on, what
it keeps marks a root; a host keeps everything. What still circulates after ``rounds`` hops is a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fabricd.detect.episodes import Candidate, Kind
from fabricd.detect.fabric import Fabric
from fabricd.detect.features import Features
from fabricd.detect.params import Params
from fabricd.detect.shares import Shares

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float32]


@dataclass(slots=True)
class Graph:
    """``wait``: CSR (P+1, P+1), row = stalled port, entries sum to 1 (0 where nothing explains it)."""

    wait: sparse.csr_array
    stall: Floats
    passing: Floats
    unexplained: Bools
    queue: Floats
    candidates: list[Candidate]


def evidence(features: Features, prio: int, params: Params) -> tuple[Floats, Floats]:
    """(backlog, queue evidence), both (P+1,) in 0..1: a queue either sends or waits, so backlog = use + stall."""
    stall = features.stall[:, prio]
    backlog = np.minimum(1.0, features.use + stall)
    mine = features.tx[:, prio] / np.maximum(features.capacity, 1.0)
    own = np.minimum(1.0, (mine + stall) / np.maximum(features.use + stall, 1e-9))
    backlog = np.where(features.blind, 1.0, backlog)
    return backlog, backlog**params.sharpness * own


def graph(fabric: Fabric, features: Features, prio: int, shares: Shares, params: Params) -> Graph | None:
    """None when nothing of this priority is stalled."""
    size = fabric.size + 1
    stall = features.stall[:, prio]
    active = stall >= params.stall_floor
    if not active.any():
        return None
    backlog, queue = evidence(features, prio, params)
    none = np.zeros(0, np.intp)
    rows: list[Ints] = [none]  # empty when only ports towards hosts wait
    columns: list[Ints] = [none]
    values: list[Array] = [np.zeros(0, np.float32)]
    unexplained = np.zeros(size, np.bool_)
    for number, block in enumerate(fabric.blocks):
        held = active[block.into]
        switches = np.flatnonzero(held.any(axis=1))
        if not switches.size:
            continue
        _, composition = shares.of(number, block, switches)
        into, out = block.into[switches], block.out[switches]
        s = stall[into]
        b = backlog[out]
        q = shares.propensity(block, switches, composition)
        weight = composition * q[:, None, :]
        weight *= np.minimum(1.0, b[:, None, :] / np.maximum(s, 1e-9)[:, :, None]) ** params.sharpness
        best = np.where(composition > 0.02, b[:, None, :], 0.0).max(axis=2)
        lost = held[switches] & (best < params.explain * s)
        unexplained[into[lost]] = True
        weight = np.where((held[switches] & ~lost)[:, :, None], weight, 0.0)
        total = weight.sum(axis=2, keepdims=True)
        weight = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        n, i, o = np.nonzero(weight > 1e-3)
        rows.append(into[n, i])
        columns.append(out[n, o])
        values.append(weight[n, i, o])
    r, c = np.concatenate(rows), np.concatenate(columns)
    wait = sparse.csr_array((np.concatenate(values), (r, c)), shape=(size, size))
    passing = np.minimum(1.0, stall / params.pass_full)
    unexplained[-1] = False
    out_graph = Graph(wait, stall, passing, unexplained, queue, [])
    out_graph.candidates = _roots(fabric, out_graph, active, params)
    return out_graph


def unexplained(fabric: Fabric, graph: Graph, params: Params) -> list[Candidate]:
    """Waits that enter a switch in which nothing visible can be the reason, one candidate a switch (its lowest port's number)."""
    ports = np.flatnonzero(graph.unexplained[:-1])
    found = []
    switches = fabric.node[fabric.peer[ports]]
    for switch in np.unique(switches):
        held = ports[switches == switch]
        mass = float(graph.stall[held].sum())
        if mass >= params.mean_mass:
            at = int(np.flatnonzero(fabric.node == switch)[0])
            ones = np.ones(len(held))
            # Told late: a hidden slow link looks like this until its plateau is long enough.
            found.append(Candidate(at, "blind", mass, held, ones, ones > 0, params.clear / 2))
    return found


def _roots(fabric: Fabric, graph: Graph, active: Bools, params: Params) -> list[Candidate]:
    size = fabric.size
    wait, passing, stall = graph.wait, graph.passing, graph.stall
    down = wait.T.tocsr()
    to_host = np.append(fabric.to_host, False)
    blame = np.where(active, stall, 0.0)
    kept = np.zeros(size + 1)
    at_host = np.zeros(size + 1)
    for _ in range(params.rounds):
        arrived = down @ blame
        kept += (1.0 - passing) * arrived
        blame = passing * arrived
        at_host += np.where(to_host, blame, 0.0)
        blame = np.where(to_host, 0.0, blame)
        if blame.sum() < 1e-3:
            break
    at_host += np.where(to_host & active, stall, 0.0)  # a port that waits for its own host
    found: list[Candidate] = []
    if blame.sum() > 0.5:
        found += _cycle(graph, blame, down, active)
    ports = _heaviest(kept, params)
    hosts = _heaviest(at_host, params)
    found += _attribute(fabric, graph, active, ports, kept, False, params)
    found += _attribute(fabric, graph, active, hosts, at_host, True, params)
    return found


def _heaviest(mass: Floats, params: Params) -> Ints:
    """Ports that hold enough to be roots; of very many only the heaviest, because nobody acts on a thousand at once."""
    ports = np.flatnonzero(mass >= params.root_mass)
    if len(ports) > params.most_roots:
        ports = np.sort(ports[np.argpartition(-mass[ports], params.most_roots)[: params.most_roots]])
    return ports


def _attribute(
    fabric: Fabric, graph: Graph, active: Bools, ports: Ints, mass: Floats, at_host: bool, params: Params
) -> list[Candidate]:
    """Follow the blame backwards from each candidate: which stalled ports it holds, and how much of their stall it explains."""
    if not ports.size:
        return []
    size = fabric.size + 1
    to_host = np.append(fabric.to_host, False)
    passing = np.where(to_host, 0.0, graph.passing)
    keep = (graph.passing if at_host else 1.0 - graph.passing)[ports]
    held = sparse.csr_array((keep, (ports, np.arange(len(ports)))), shape=(size, len(ports)))
    source = held
    onward = (sparse.diags_array(passing).tocsr() @ graph.wait).tocsr()
    settled = float(held.sum())
    for _ in range(params.rounds):
        step = (source + onward @ held).tocsr()
        step.data[step.data < 0.02] = 0.0
        step.eliminate_zeros()
        held = step
        before, settled = settled, float(held.sum())
        if abs(settled - before) <= 1e-3 * settled:
            break
    explained = (graph.wait @ held).tocsc()
    # Ports of one switch that carry the same traffic are one place of the fabric: what they hold together counts.
    group = np.where(
        fabric.to_host[ports], -1 - ports, fabric.reach_class[ports] * len(fabric.node_guids) + fabric.node[ports]
    )
    _, member = np.unique(group, return_inverse=True)
    gather = sparse.csc_array((np.ones(len(ports)), (np.arange(len(ports)), member)))
    together = (explained @ gather).tocsc()
    explained.sort_indices()
    together.sort_indices()
    kind: Kind = "host" if at_host else "egress"
    found = []
    for column, port in enumerate(ports):
        span = slice(explained.indptr[column], explained.indptr[column + 1])
        holds, share = explained.indices[span].astype(np.intp), explained.data[span]
        whole = slice(together.indptr[member[column]], together.indptr[member[column] + 1])
        joint = together.data[whole][np.searchsorted(together.indices[whole], holds)]
        if at_host:
            holds, share, joint = np.append(holds, port), np.append(share, 1.0), np.append(joint, 1.0)
        strong = share >= 0.02
        holds, share, joint = holds[strong], share[strong], joint[strong]
        main = (joint >= params.main_share) & (graph.stall[holds] >= params.main_stall)
        if main.any():
            stall = graph.stall[holds]
            clarity = float((joint * stall).sum() / max(stall.sum(), 1e-9))
            sure = share >= 0.5 * joint
            found.append(Candidate(int(port), kind, float(mass[port]), holds, share, sure, min(1.0, clarity)))
    return found


def _cycle(graph: Graph, blame: Floats, down: sparse.csr_array, active: Bools) -> list[Candidate]:
    around = np.zeros_like(blame)
    for _ in range(16):
        blame = graph.passing * (down @ blame)
        around += blame
    total = around.sum()
    if total <= 0:
        return []
    members = np.flatnonzero((around > 0.05 * total) & (graph.stall > 0.9))
    if len(members) < 2:
        return []
    held = np.flatnonzero(active)
    ones = np.ones(len(held))
    mass = float(graph.stall[held].sum())
    return [Candidate(-1, "cycle", mass, held, ones, ones > 0, 1.0, tuple(int(m) for m in members))]
