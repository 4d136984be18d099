"""Forwarding tables into routes: from the switches themselves (SMPs), or from files, with adaptive-routing groups where known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from fabricd.ib.batch import Batch
from fabricd.ib.health import Health
from fabricd.ib.limits import Limits, TidSpace
from fabricd.ib.mad import SMP_DATA_AT, Reply, Smp, smp_get
from fabricd.ib.smp import LFT_BLOCK, NO_EGRESS, decode_sl_to_vl, decode_vl_arbitration
from fabricd.ib.transport import DIRECTED, Transport
from fabricd.model.rejects import Rejects
from fabricd.model.topology import SWITCH, Topology
from fabricd.topology.discovery import Snapshot, numbered_gets
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.routes import LFT, NO_ROUTE, Frame, RouteTable, SetPool

Lft = npt.NDArray[np.uint8]  # egress port by LID, 255 = none
PortSets = Mapping[int, tuple[int, ...]]  # LID -> egress ports


def read_lfts(
    transport: Transport,
    snapshot: Snapshot,
    limits: Limits | None = None,
    *,
    keys: Callable[[int], int] | None = None,
    tids: TidSpace | None = None,
    rejects: Rejects | None = None,
) -> dict[int, Lft]:
    """Linear forwarding tables of the discovered switches, by GUID, as long as each says its table is.

    A switch that does not tell, or stops telling, is left out whole and counted: half a table would be wrong, not incomplete.
    """
    switches = [(guid, found) for guid, found in snapshot.nodes.items() if found.switch is not None]
    groups, spans = [], []
    row = 0
    for guid, found in switches:
        blocks = (found.switch.lft_top if found.switch else 0) // LFT_BLOCK + 1
        mads = numbered_gets(Smp.LINEAR_FORWARDING, found.path, range(blocks), keys(guid) if keys else 0)
        groups.append((guid, DIRECTED, mads))
        spans.append((guid, row, row + blocks))
        row += blocks
    result = Batch(transport, groups, limits or Limits()).run(Health(), tids or TidSpace(), deadline_s=120.0)
    tables: dict[int, Lft] = {}
    for guid, first, last in spans:
        if (result.reply[first:last] == Reply.OK).all():
            tables[guid] = result.mads[first:last, SMP_DATA_AT : SMP_DATA_AT + LFT_BLOCK].reshape(-1).copy()
        elif rejects is not None:
            rejects.add("lft_unread", f"0x{guid:016x}", "smp")
    return tables


def read_qos(
    transport: Transport,
    snapshot: Snapshot,
    guid: int,
    ports: Iterable[int],
    limits: Limits | None = None,
    *,
    m_key: int = 0,
) -> dict[int, tuple[list[int], list[tuple[int, int]]]]:
    """SL-to-VL map (of input port 0) and low-priority VL arbitration of a switch's egress ports; ports that do not tell are absent."""
    found = snapshot.nodes[guid]
    numbers = list(ports)
    mads = []
    for port in numbers:
        mads.append(smp_get(Smp.SL_TO_VL, port, path=found.path, m_key=m_key))
        mads.append(smp_get(Smp.VL_ARBITRATION, 1 << 16 | port, path=found.path, m_key=m_key))
    result = Batch(transport, [(guid, DIRECTED, mads)], limits or Limits()).run(Health(), TidSpace())
    out = {}
    for number, port in enumerate(numbers):
        if (result.reply[2 * number : 2 * number + 2] == Reply.OK).all():
            data = [result.mads[2 * number + i, SMP_DATA_AT:].tobytes() for i in range(2)]
            out[port] = (decode_sl_to_vl(data[0]), decode_vl_arbitration(data[1]))
    return out


def lid_columns(topology: Topology, frame: Frame) -> dict[int, int]:
    """LID -> destination number; the 2**LMC LIDs of a port all lead to it."""
    out: dict[int, int] = {}
    for column, (guid, port) in enumerate(
        zip(frame.destinations.tolist(), frame.destination_ports.tolist(), strict=True)
    ):
        node = topology.nodes[guid]
        lid = node.lids.get(port)
        if lid:
            for path in range(1 << int(node.labels.get("lmc", "0"))):
                out[lid + path] = column
    return out


def routes_from_lfts(
    topology: Topology, tables: Mapping[int, Lft], adaptive: Mapping[int, PortSets] | None = None
) -> RouteTable:
    """Routes of the LFTs; ``adaptive`` (switch GUID -> LID -> ports) replaces single ports by adaptive-routing groups.

    Switches without a table are assumed (minimal hops). The LIDs of one port (LMC) make one set of egress ports.
    """
    frame, pool = Frame(topology), SetPool()
    group = np.zeros((len(frame.switches), len(frame.destinations)), np.uint32)
    columns = lid_columns(topology, frame)
    lids = np.array(list(columns), np.int64)
    where = np.array(list(columns.values()), np.int64)
    single = np.array([NO_ROUTE if port in (0, NO_EGRESS) else pool.id_of([port]) for port in range(256)], np.uint32)
    shared = np.bincount(where, minlength=len(frame.destinations)) > 1 if lids.size else np.zeros(0, np.bool_)
    sources = [LFT] * len(frame.switches)
    for guid, table in tables.items():
        row = frame.switch_index.get(guid)
        if row is None:
            continue
        inside = lids < len(table)
        group[row, where[inside]] = single[table[lids[inside]]]
        for column in np.flatnonzero(shared):
            ports = {int(table[lid]) for lid in lids[(where == column) & inside]} - {0, NO_EGRESS}
            group[row, column] = pool.id_of(ports)
        if adaptive and guid in adaptive:
            _spread(group[row], adaptive[guid], columns, pool)
            sources[row] = "ar"
    for guid in set(adaptive or {}) - set(tables):
        row = frame.switch_index.get(guid)
        if row is not None and adaptive is not None:
            _spread(group[row], adaptive[guid], columns, pool)
            sources[row] = "ar"
    known = RouteTable(frame, group, pool, sources)
    without = [guid for guid, node in topology.nodes.items() if node.type == SWITCH and guid not in tables]
    return assumed_routes(topology, known) if set(without) - set(adaptive or {}) else known


def _spread(row: npt.NDArray[np.uint32], sets: PortSets, columns: Mapping[int, int], pool: SetPool) -> None:
    merged: dict[int, set[int]] = {}
    for lid, ports in sets.items():
        column = columns.get(lid)
        if column is not None and ports:
            merged.setdefault(column, set()).update(ports)
    for column, members in merged.items():
        row[column] = pool.id_of(members)
