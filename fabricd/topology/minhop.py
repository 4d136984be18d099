"""Routes nobody told us: every port on a shortest path, marked ``assumed``. Also fills the gaps of a partly read table.

True for fat trees under every common engine (their routes are minimal); on dragonflies and tori an engine may detour.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fabricd.model.topology import Topology
from fabricd.topology.routes import ASSUMED, Frame, RouteTable, SetPool

FAR = 255  # hop distance of what is not reachable; no fabric has 255 hops


def hop_distances(frame: Frame, targets: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """(S, T) hops from every switch to each of the ``targets`` (switch indices); FAR where there is no way."""
    distance = np.full((len(frame.switches), len(targets)), FAR, np.uint8)
    distance[targets, np.arange(len(targets))] = 0
    for hops in range(1, FAR):
        reached = False
        behind = distance == hops - 1
        for port in range(1, frame.peer_switch.shape[1]):
            rows = np.flatnonzero(frame.peer_switch[:, port] >= 0)
            step = behind[frame.peer_switch[rows, port]] & (distance[rows] == FAR)
            if step.any():
                distance[rows] = np.where(step, np.uint8(hops), distance[rows])
                reached = True
        if not reached:
            break
    return distance


def assumed_routes(topology: Topology, known: RouteTable | None = None) -> RouteTable:
    """All minimal-hop egress ports of every (switch, destination).

    ``known``: a table over the same topology; its switches that have any route keep theirs, only the others are assumed.
    """
    frame, pool = Frame(topology), SetPool()
    group = np.zeros((len(frame.switches), len(frame.destinations)), np.uint32)
    leaves, leaf_of = np.unique(frame.attach_switch, return_inverse=True)
    distance = hop_distances(frame, leaves.astype(np.int32))
    sources = [ASSUMED] * len(frame.switches)
    known_ids: dict[int, int] = {}
    for row in range(len(frame.switches)):
        if known is not None and known.group[row].any():
            for set_id in np.unique(known.group[row]):
                if int(set_id) not in known_ids:
                    known_ids[int(set_id)] = pool.id_of(int(port) for port in known.set_of(int(set_id)))
            ids, inverse = np.unique(known.group[row], return_inverse=True)
            group[row] = np.array([known_ids[int(i)] for i in ids], np.uint32)[inverse]
            sources[row] = known.sources[row]
            continue
        ports = np.flatnonzero(frame.peer_switch[row] >= 0)
        closer = (
            distance[frame.peer_switch[row, ports]] + 1 == distance[row]
        )  # uint8: FAR + 1 wraps to 0, never equal to FAR
        closer[:, distance[row] == 0] = False
        columns, inverse = np.unique(np.packbits(closer, axis=0), axis=1, return_inverse=True)
        ids_of = np.zeros(columns.shape[1], np.uint32)
        for number in range(columns.shape[1]):
            bits = np.unpackbits(columns[:, number], count=len(ports)).astype(np.bool_)
            ids_of[number] = pool.id_of(int(port) for port in ports[bits])
        group[row] = ids_of[inverse.reshape(-1)][leaf_of]
        local = np.flatnonzero(frame.attach_switch == row)
        group[row, local] = [pool.id_of([int(frame.attach_port[column])]) for column in local]
    return RouteTable(frame, group, pool, sources)
