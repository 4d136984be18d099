"""The fabric as the sweeping process knows it: looked at when due, compared, and left on disk for the processes without a device."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import msgspec
import numpy as np

from fabricd.config.root import Config
from fabricd.daemons.sweeping import find_topology, limits_of
from fabricd.ib.keys import read_keys
from fabricd.ib.limits import TidSpace
from fabricd.ib.mad import Reply
from fabricd.ib.transport import Transport
from fabricd.model.sample import Flag
from fabricd.model.topology import PortRef, Topology
from fabricd.sources.pma_layout import U64
from fabricd.sources.pma_reading import COLUMNS, PortTable, Sweep
from fabricd.topology.discovery import Discoverer, Snapshot
from fabricd.topology.live import Picture, take_picture
from fabricd.topology.load import complete
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.watch import TopologyWatch

log = logging.getLogger(__name__)

_LINK_DOWNED = COLUMNS.index("LinkDownedCounter")


class TopologyKeeper:
    """One for one open transport (None: perfquery and ibnetdiscover do the work). ``here``: the port we sit at, where known."""

    def __init__(self, config: Config, transport: Transport | None, tids: TidSpace) -> None:
        self.here: PortRef | None = None
        self._config, self._transport, self._tids = config, transport, tids
        self._settings = msgspec.structs.replace(
            config.topology,
            m_key_file=config.topology.m_key_file or config.collector.m_key_file or "",
            refresh_interval=min(config.topology.refresh_interval, config.collector.rediscover),
        )
        self._watch = TopologyWatch(self._settings, self._picture)
        self._watch.restore()
        self._table: PortTable | None = None
        self._last: U64 | None = None
        self._snapshot: Snapshot | None = None
        self._probed_at = time.time()
        self._discoverer: Discoverer | None = None
        if transport is not None:
            keys = read_keys(self._settings.m_key_file or None)
            limits = limits_of(config.collector)
            self._discoverer = Discoverer(transport, limits, m_key=keys.default, m_keys=keys.by_guid, tids=tids)

    def look(self) -> Topology:
        """Look now. Raises FabricdError; the last picture then stands."""
        refreshed = self._watch.refresh(time.time())
        for difference in refreshed.differences:
            log.info("fabric: %s %s: %s", difference.kind.replace("_", " "), difference.where, difference.detail)
        return refreshed.picture.topology

    def due(self) -> bool:
        """Is it time to look? From time to time this asks for the port states. Raises DeviceGone, TransportError."""
        now = time.time()
        interval = self._settings.probe_interval
        if (
            interval
            and self._discoverer is not None
            and self._snapshot is not None
            and now - self._probed_at >= interval
        ):
            self._probed_at = now
            if self._discoverer.changed_ports(self._snapshot):
                self._watch.note_change(now)
        return self._watch.due(now)

    def after_sweep(self, sweep: Sweep) -> None:
        """Ports whose links went down since the last sweep ask for a look."""
        value = sweep.values[:, _LINK_DOWNED]
        flags = sweep.flags[:, _LINK_DOWNED]
        if self._table is sweep.table and self._last is not None:
            read = (sweep.reply == Reply.OK) & ((flags & int(Flag.VALID)) != 0)
            now = time.time()
            for row in np.flatnonzero(read & (value != self._last)).tolist():
                ref = int(sweep.table.guid[row]), int(sweep.table.port[row])
                self._watch.note_link_downed(ref, now, int(self._last[row]))
                saturated = bool(flags[row] & int(Flag.SATURATED))
                self._watch.note_link_downed(ref, now, int(value[row]), saturated)
            value = np.where(read, value, self._last)
        self._table, self._last = sweep.table, value

    def _picture(self, known: Mapping[int, str]) -> Picture:
        collector, fabric = self._config.collector, self._config.fabric.name
        if collector.topology_file is not None or (self._transport is None and self._settings.source == "smp"):
            topology, self.here = find_topology(collector, self._transport, fabric, self._tids)
            topology.fabric = fabric
            return Picture(complete(topology), assumed_routes(topology))
        picture = take_picture(
            self._settings, fabric, transport=self._transport, limits=limits_of(collector), tids=self._tids, known=known
        )
        self._snapshot, self._probed_at = picture.snapshot, time.time()
        if picture.snapshot is not None:
            local = next(iter(picture.snapshot.nodes.values()))
            self.here = next(((local.info.node_guid, port) for port in local.port_guids), None)
        return picture
