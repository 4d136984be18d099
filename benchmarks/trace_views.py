"""A trace seen worse: fewer columns, longer windows, lost rows, unseen switches, skewed clocks, cleared counters.

What a real collection does to data; used to measure how much of it the detector bears. Deterministic for a seed.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fabricd.model.topology import SWITCH
from fabricd.outputs.trace import CounterTable, Trace

QUEUES = ("q_bytes", "q_max", "ingress_bytes", "drops")
IB_COLUMNS = ("tx_bytes", "rx_bytes", "tx_pkts")


def without(trace: Trace, columns: tuple[str, ...]) -> Trace:
    """The trace without some columns."""
    values = {name: v for name, v in trace.counters.values.items() if name not in columns}
    return dataclasses.replace(trace, counters=dataclasses.replace(trace.counters, values=values))


def select(trace: Trace, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Trace:
    """The rows where ``keep`` is true."""
    table = trace.counters
    values = {name: v[keep] for name, v in table.values.items()}
    rows = CounterTable(table.t_ns[keep], table.node[keep], table.port[keep], table.prio[keep], values)
    return dataclasses.replace(trace, counters=rows)


def degraded(
    trace: Trace, *, coarse: int = 1, drop: float = 0.0, blind: float = 0.0, phase: int = 0, seed: int = 1
) -> Trace:
    """Every ``coarse``-th window, ``drop`` of the rows lost, ``blind`` of the switches unseen."""
    rng = np.random.default_rng(seed)
    table = trace.counters
    _, window = np.unique(table.t_ns, return_inverse=True)
    keep = (window + 1 + phase) % coarse == 0
    keep &= rng.random(len(table)) >= drop
    switches = np.array(sorted(guid for guid, node in trace.topology.nodes.items() if node.type == SWITCH))
    unseen = rng.choice(switches, round(blind * len(switches)), replace=False)
    return select(trace, keep & ~np.isin(table.node, unseen))


def infiniband(trace: Trace) -> Trace:
    """64-bit bytes and packets of whole ports, the wait of switch ports only (the largest over priorities), nothing else."""
    table = trace.counters
    order = np.lexsort((table.prio, table.t_ns, table.port, table.node))
    t, node, port = table.t_ns[order], table.node[order], table.port[order]
    first = np.r_[True, (t[1:] != t[:-1]) | (port[1:] != port[:-1]) | (node[1:] != node[:-1])]
    starts = np.flatnonzero(first)
    values = {name: np.add.reduceat(table.values[name][order], starts) for name in IB_COLUMNS}
    # The wait of a port is cumulative: per window the largest movement of its priorities.
    wait = table.values["xmit_wait_ns"]
    by_cell = np.lexsort((table.t_ns, table.prio, table.port, table.node))
    moved = np.diff(wait[by_cell], prepend=0.0)
    new_cell = np.ones(len(by_cell), np.bool_)
    new_cell[1:] = np.any([np.diff(column[by_cell]) != 0 for column in (table.node, table.port, table.prio)], axis=0)
    moved[new_cell] = wait[by_cell][new_cell]
    per_row = np.empty(len(moved))
    per_row[by_cell] = moved
    largest = np.maximum.reduceat(per_row[order], starts)
    t, node, port = t[starts], node[starts], port[starts]
    new_port = np.r_[True, (port[1:] != port[:-1]) | (node[1:] != node[:-1])]
    total = np.cumsum(largest)
    before = np.maximum.accumulate(np.where(new_port, total - largest, 0.0))
    is_switch = np.array([trace.topology.nodes[int(guid)].type == SWITCH for guid in node])
    values["xmit_wait_ns"] = np.where(is_switch, total - before, np.nan)
    by_time = np.argsort(t, kind="stable")
    rows = CounterTable(
        t[by_time],
        node[by_time],
        port[by_time],
        np.full(len(t), -1, np.int64),
        {name: v[by_time] for name, v in values.items()},
    )
    return dataclasses.replace(trace, counters=rows)


def skewed(trace: Trace, share: float, seed: int = 1) -> Trace:
    """Each node's clock is off by up to ``share`` of a window."""
    rng = np.random.default_rng(seed)
    table = trace.counters
    length = int(np.median(np.diff(np.unique(table.t_ns))))
    offset = rng.uniform(-share, share, int(table.node.max()) + 1) * length
    t = table.t_ns + offset[table.node].astype(np.int64)
    order = np.argsort(t, kind="stable")
    rows = CounterTable(
        t[order],
        table.node[order],
        table.port[order],
        table.prio[order],
        {n: v[order] for n, v in table.values.items()},
    )
    return dataclasses.replace(trace, counters=rows)


def cleared(trace: Trace, at_ns: int, share: float = 1.0, seed: int = 1) -> Trace:
    """Someone clears the counters of ``share`` of the nodes at a moment."""
    rng = np.random.default_rng(seed)
    table = trace.counters
    nodes = np.unique(table.node)
    hit = np.isin(table.node, rng.choice(nodes, round(share * len(nodes)), replace=False)) & (table.t_ns > at_ns)
    last = (table.t_ns <= at_ns) & (table.t_ns == table.t_ns[table.t_ns <= at_ns].max())
    cell = (table.node << 24) | (table.port << 8) | (table.prio + 1)
    order = np.argsort(cell[last])
    where = np.searchsorted(cell[last][order], cell)
    where = np.minimum(where, len(order) - 1)
    known = cell[last][order][where] == cell
    values = {}
    for name, v in table.values.items():
        base = v[last][order][where]
        values[name] = np.where(hit & known, v - base, v)
    return dataclasses.replace(trace, counters=dataclasses.replace(table, values=values))


def mixed(trace: Trace, slow: int, seed: int = 1) -> Trace:
    """Hosts report every window, switches (another source) every ``slow``-th."""
    table = trace.counters
    _, window = np.unique(table.t_ns, return_inverse=True)
    is_switch = np.array([trace.topology.nodes[int(guid)].type == SWITCH for guid in table.node])
    return select(trace, ~is_switch | ((window + 1) % slow == 0))
