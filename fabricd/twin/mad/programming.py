"""What managers program, handed to the model; what the model's links do, shown in the registers.

Changes are gathered and flushed once per round of the server's loop, so that a forwarding table of 162 blocks
becomes one change of the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fabricd.twin import links
from fabricd.twin.face import SERVICE_LEVELS, Arbitration, Counters, Fabric, SourceControl
from fabricd.twin.mad import notice
from fabricd.twin.mad.smp import allowed_setting
from fabricd.twin.mad.subnet import DISABLED, LFT_ENTRIES, LINK_UP, NO_ROUTE, POLLING, SWITCH, Node, Port, Subnet

Trap = Callable[[Port, bytes], None]  # (port it leaves from, MAD)


class Programming:
    """Between one subnet's registers and the model's levers."""

    def __init__(self, subnet: Subnet, fabric: Fabric, trap: Trap) -> None:
        self._subnet = subnet
        self._fabric = fabric
        self._trap = trap
        self._transaction = 0
        self._switches = {node.index: position for position, node in enumerate(fabric.plan.switches)}
        self._routes: set[int] = set()  # node indices with a changed table
        self._lanes: dict[int, Port] = {}  # by row
        self._arbitration: dict[int, Port] = {}
        self._up = np.zeros(fabric.plan.rows, np.bool_)
        self._gbps = fabric.plan.row_gbps.copy()
        self._narrowed: set[int] = set()  # rows that run slower because a manager wants it

    # -- from managers -------------------------------------------------------------------------------------------

    def routes_written(self, node: Node) -> None:
        if node.type == SWITCH:
            self._routes.add(node.plan.index)
        else:  # a destination's LID changed: every table means something else now
            self._routes.update(self._switches)

    def lanes_written(self, port: Port) -> None:
        if port.row >= 0:
            self._lanes[port.row] = port

    def arbitration_written(self, port: Port) -> None:
        if port.row >= 0:
            self._arbitration[port.row] = port

    def link_asked(self, port: Port, physical: int) -> None:
        """Disable a link, or take it down and let it train again."""
        down = physical == DISABLED
        if port.peer is None:
            port.physical = DISABLED if down else POLLING
            return
        if port.admin_down != down:
            port.admin_down = down
            self._fabric.set_enabled(port.row, not down)
        self._link_down(port, DISABLED if down else POLLING)
        if not down and not port.peer.admin_down and self._up[port.row]:
            self._link_up(port)
        self._changed(port)

    def speed_asked(self, port: Port) -> None:
        """Enabled widths and speeds act when the link trains next (a manager follows up with a state change)."""

    def threshold(self, node: Node, threshold: int, marking_rate: int) -> None:
        self._fabric.set_threshold(self._switches[node.plan.index], threshold, marking_rate)

    def source_control(self, node: Node, level: int, control: SourceControl) -> None:
        self._fabric.set_source_control(node.first.row, level, control)

    def all_routes(self) -> None:
        """Hand every table to the model (at the start of a fabric without a manager)."""
        self._routes.update(self._switches)

    def flush(self) -> None:
        """Hand over what was written since the last call."""
        if self._routes:
            lids = [self._subnet.nodes[planned.index].first.lid for planned in self._fabric.plan.adapters]
            index = np.array([lid if 0 < lid < LFT_ENTRIES else 0 for lid in lids])
            for node_index in self._routes:
                self._fabric.set_routes(self._switches[node_index], _egress(self._subnet.nodes[node_index], index))
            self._routes.clear()
        for row, port in self._lanes.items():
            for ingress, table in port.sl_to_vl.items():
                mapping = tuple(table[level >> 1] >> (0 if level & 1 else 4) & 15 for level in range(SERVICE_LEVELS))
                self._fabric.set_sl_to_vl(row, ingress, mapping)
        self._lanes.clear()
        for row, port in self._arbitration.items():
            self._fabric.set_arbitration(row, _arbitration(port))
        self._arbitration.clear()

    # -- from the model ------------------------------------------------------------------------------------------

    def observe(self, counters: Counters) -> None:
        """Links that went up, down or changed their rate since the last call."""
        for row in np.flatnonzero((counters.up != self._up) | (counters.gbps != self._gbps)).tolist():
            port = self._subnet.by_row[row]
            was_up, is_up = bool(self._up[row]), bool(counters.up[row])
            rate_changed = self._gbps[row] != counters.gbps[row]
            self._up[row], self._gbps[row] = is_up, counters.gbps[row]
            if port.peer is None:
                continue
            if is_up and (not was_up or rate_changed):
                if port.physical != LINK_UP:
                    if not (port.admin_down or port.peer.admin_down):
                        self._train(port)
                        self._changed(port)
                elif rate_changed:
                    self._renegotiated(port)
            elif was_up and not is_up and port.physical == LINK_UP:
                port.drop()
                self._changed(port)

    def start(self, counters: Counters) -> None:
        """First reading: links train, nobody is told."""
        self._up = counters.up.copy()
        self._gbps = counters.gbps.copy()
        for row in np.flatnonzero(self._up).tolist():
            self._train(self._subnet.by_row[row])

    def _link_down(self, port: Port, physical: int) -> None:
        port.drop(physical)
        if port.peer is not None and port.peer.physical != DISABLED:
            port.peer.drop(POLLING)

    def _link_up(self, port: Port) -> None:
        for end in (port, port.peer):
            if end is not None:
                self._train(end)

    def _setting(self, port: Port) -> links.Link:
        """The present setting: what the managers allow, further reduced to what the model's link carries."""
        allowed = allowed_setting(port)
        nominal = float(self._fabric.plan.row_gbps[port.row])
        present = float(self._gbps[port.row])
        return allowed if present >= min(nominal, allowed.gbps) * 0.999 else links.degraded(allowed, present)

    def _train(self, port: Port) -> None:
        allowed = allowed_setting(port)
        if allowed != port.full and allowed.gbps < float(self._gbps[port.row]) * 0.999:
            self._gbps[port.row] = allowed.gbps
            self._narrowed.add(port.row)
            self._fabric.set_gbps(port.row, allowed.gbps)
        elif port.row in self._narrowed:
            self._narrowed.discard(port.row)
            self._gbps[port.row] = self._fabric.plan.row_gbps[port.row]
            self._fabric.set_gbps(port.row, float(self._gbps[port.row]))
        port.train(self._setting(port))

    def _renegotiated(self, port: Port) -> None:
        setting = self._setting(port)
        if (setting.width_code, setting.extended_code) == (port.info[31], port.info[62] >> 4):
            return
        state = port.state
        port.train(setting)
        port.state = state
        if port.node.type == SWITCH:
            self._send(port.node.ports[0], notice.link_width_changed(port.node, port.node.ports[0].lid, self._next()))
        else:
            self._send(port, notice.link_width_changed(port.node, port.lid, self._next()))

    def _changed(self, port: Port) -> None:
        """A link's state changed: the switches at its ends tell their manager."""
        self._subnet.routes_changed()
        for end in (port, port.peer):
            if end is not None and end.node.type == SWITCH:
                end.node.change = True
                self._send(end.node.ports[0], notice.link_state_changed(end.node, self._next()))

    def _send(self, port: Port, mad: bytes) -> None:
        if port.lid and port.sm_lid:
            self._trap(port, mad)

    def _next(self) -> int:
        self._transaction += 1
        return self._transaction


def _egress(node: Node, lids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Egress port number towards every adapter's LID (index 0 stands for "no LID yet": no route)."""
    table = np.frombuffer(node.lft, np.uint8)[lids].astype(np.int16)
    table[(lids == 0) | (table == NO_ROUTE) | (table > node.plan.ports)] = 0
    return table


def _arbitration(port: Port) -> Arbitration:
    def entries(*blocks: int) -> tuple[tuple[int, int], ...]:
        raw = b"".join(bytes(port.arbitration[block]) for block in blocks)
        return tuple((raw[i] & 15, raw[i + 1]) for i in range(0, len(raw), 2) if raw[i + 1])

    return Arbitration(high=entries(3, 4), low=entries(1, 2), high_limit=port.info[38])
