"""Who sends how much to whom, estimated from port rates and routes: what a proposal is computed and predicted with.

Known pairs (jobs, flow records) are taken as they are and only their rates are estimated; without them every sending host may talk
to every receiving one. Rates are fitted to what the ports measured by simultaneous algebraic reconstruction, first for the time
before the trouble, then from there for now: whoever sent steadily before is taken to do so still.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fabricd.control.state import State, worst
from fabricd.model.topology import CA, PortRef, Topology
from fabricd.topology.routes import RouteTable

Floats = npt.NDArray[np.float64]
MOST_GUESSED_PAIRS = 20_000
QUIET = 0.005  # a host that sends or receives less than this share of its link is left out of guesses
ROUNDS = 60
MOST_HELD = 0.95  # a source held longer than this says nothing of what it wants to send


@dataclass(frozen=True, slots=True)
class Pair:
    """From one adapter port to another at a priority or service level (None = not told apart)."""

    src: PortRef
    dst: PortRef
    level: int | None = None


@dataclass(slots=True)
class Traffic:
    """``rate`` (n,) bytes/s measured to flow, ``demand`` (n,) bytes/s the sources would send if nothing held them.

    ``paths`` per pair: the egress ports it may cross, with the share of it that does; the adapter's own port comes first.
    """

    pairs: list[Pair]
    rate: Floats
    demand: Floats
    paths: list[list[tuple[PortRef, float]]]
    guessed: bool
    _over: dict[PortRef, list[tuple[int, float]]] = field(default_factory=dict)

    def over(self, ref: PortRef) -> list[tuple[int, float]]:
        """(pair number, share) of everything that crosses an egress port."""
        if not self._over:
            for number, path in enumerate(self.paths):
                for port, share in path:
                    self._over.setdefault(port, []).append((number, share))
        return self._over.get(ref, [])

    def load(self, ref: PortRef, *, wanted: bool = False) -> float:
        """Bytes per second over an egress port: what flows, or what is wanted."""
        values = self.demand if wanted else self.rate
        return float(sum(values[number] * share for number, share in self.over(ref)))

    def senders(self, ref: PortRef, least: float = 0.03, *, wanted: bool = False) -> dict[PortRef, float]:
        """Adapter ports whose traffic makes up at least this share of an egress port's, with their bytes per second there.

        ``wanted``: by what they would send; so also where nothing flows any more.
        """
        values = self.demand if wanted or self.load(ref) <= 1.0 else self.rate
        sums: dict[PortRef, float] = {}
        for number, share in self.over(ref):
            src = self.pairs[number].src
            sums[src] = sums.get(src, 0.0) + float(values[number]) * share
        total = sum(sums.values())
        return {src: value for src, value in sorted(sums.items()) if total > 0 and value >= least * total}

    def part_of(self, ref: PortRef, least: float = 0.03) -> set[PortRef]:
        """Everybody who sends a fair part of what goes through a port, or would: no innocents there."""
        return {*self.senders(ref, least), *self.senders(ref, least, wanted=True)}


def estimate(
    topology: Topology,
    routes: RouteTable,
    state: State,
    known: Sequence[Pair] = (),
    before: State | None = None,
    root: PortRef | None = None,
    *,
    grew: bool = True,
    stuck: bool = False,
) -> Traffic:
    """Pairs with rates that fit what the ports sent in the last interval. Pairs without a route are left out.

    ``before``: averages of the time before the trouble, ``root``: where the wait ends. What does not cross it wants what it had
    before; what does, wants more than it gets if its load grew, else also what it had. ``stuck``: nothing moves any more, so
    rates tell nothing, and held sources are taken to want their whole link.
    """
    peers = topology.neighbours()
    pairs = list(known) if known else _guess(topology, state, peers)
    index = routes.frame.destination_index
    kept, paths = [], []
    for pair in pairs:
        if pair.src in index and pair.dst in index:
            hops = routes.walk(index[pair.src], index[pair.dst])
            switches = routes.frame.switches
            path = [(pair.src, 1.0), *(((int(switches[row]), port), share) for row, port, share in hops)]
            if path[-1][0] in peers and peers[path[-1][0]] == pair.dst:
                kept.append(pair)
                paths.append(path)
    earlier = None if before is None else _fit(kept, paths, before, None)
    rate = _fit(kept, paths, state, earlier)
    demand = _wanted(kept, rate, state)
    if earlier is not None:
        crosses = np.array([any(ref == root for ref, _ in path) for path in paths], np.bool_)
        demand = np.where(crosses & grew, np.maximum(demand, earlier), np.maximum(rate, earlier))
    if stuck:
        demand = np.maximum(demand, _whole_links(kept, state))
    return Traffic(kept, rate, demand, paths, guessed=not known)


def _whole_links(pairs: list[Pair], state: State) -> Floats:
    """(n,) an even part of the line rate for each pair of a source that is held all the time, else 0."""
    each: dict[PortRef, int] = {}
    for pair in pairs:
        each[pair.src] = each.get(pair.src, 0) + 1
    out = np.zeros(len(pairs))
    for n, pair in enumerate(pairs):
        held = state.stall_of([pair.src], pair.level)
        line = state.rate_of(pair.src)
        if len(held) and np.nan_to_num(held[0]) >= MOST_HELD and line == line:
            out[n] = line / each[pair.src]
    return out


def _guess(topology: Topology, state: State, peers: dict[PortRef, PortRef]) -> list[Pair]:
    ends = [ref for ref in state.ports if topology.nodes[ref[0]].type == CA and ref in peers]
    out: list[Pair] = []
    for column, level in enumerate(state.priorities):
        sends, takes = [], []
        for ref in ends:
            floor = QUIET * float(np.nan_to_num(state.rate_bps[state.index[ref]], nan=0.0)) / 8
            if np.nan_to_num(state.tx[state.index[ref], column]) > floor:
                sends.append(ref)
            near = state.index.get(peers[ref])
            if near is not None and np.nan_to_num(state.tx[near, column]) > floor:
                takes.append(ref)
        if len(sends) * len(takes) > MOST_GUESSED_PAIRS:
            return []
        out += [Pair(src, dst, level) for src in sends for dst in takes if src != dst]
    return out


def _fit(pairs: list[Pair], paths: list[list[tuple[PortRef, float]]], state: State, start: Floats | None) -> Floats:
    if not pairs:
        return np.zeros(0)
    rows: dict[tuple[int, int], int] = {}
    at, number, share, seen = [], [], [], []
    for n, (pair, path) in enumerate(zip(pairs, paths, strict=True)):
        column = state.column(pair.level)
        for ref, part in path:
            port = state.index.get(ref)
            if port is None:
                continue
            sent = state.tx[port] if column is None else state.tx[port, column : column + 1]
            if np.isnan(sent).all():
                continue
            key = (port, -1 if column is None else column)
            if key not in rows:
                rows[key] = len(rows)
                seen.append(float(np.nansum(sent)))
            at.append(rows[key])
            number.append(n)
            share.append(part)
    matrix = sparse.csr_array((share, (at, number)), shape=(len(rows), len(pairs)))
    back = sparse.csr_array(matrix.T)
    measured = np.asarray(seen)
    crowd = np.maximum(np.asarray(matrix.sum(axis=1)).ravel(), 1e-9)
    weight = np.maximum(np.asarray(back.sum(axis=1)).ravel(), 1e-9)
    if start is None:
        # To begin with, every pair has an even part of the emptiest port on its way.
        even = measured / crowd
        x = np.full(len(pairs), np.inf)
        np.minimum.at(x, np.asarray(number, np.intp), even[np.asarray(at, np.intp)])
        x = np.where(np.isfinite(x), x, 0.0)
    else:
        x = start.copy()
    for _ in range(ROUNDS):
        x = np.maximum(0.0, x + (back @ ((measured - matrix @ x) / crowd)) / weight)
    out: Floats = x
    return out


def _wanted(pairs: list[Pair], rate: Floats, state: State) -> Floats:
    """A source that waits part of the time would send that much more, at most its line rate."""
    out = rate.copy()
    for n, pair in enumerate(pairs):
        port = state.index.get(pair.src)
        if port is None:
            continue
        column = state.column(pair.level)
        stall = state.stall[port : port + 1] if column is None else state.stall[port : port + 1, column : column + 1]
        held = float(np.nan_to_num(worst(stall)[0]))
        line = float(state.rate_bps[port]) / 8
        wants = rate[n] / (1.0 - min(held, MOST_HELD))
        out[n] = min(wants, line) if line == line else wants
    return out
