"""The store's newest rates as a detector's window: ports by GUID and number, priorities where the hardware shows them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fabricd.detect.fabric import Fabric
from fabricd.detect.window import Window
from fabricd.model.sample import Flag
from fabricd.store.store import Store

Floats = npt.NDArray[np.float64]

# What the detector calls it -> (name of the whole port, name by priority, factor to its unit).
SOURCES: Mapping[str, tuple[str, str, float]] = {
    "tx_bytes": ("port_transmit_data_bytes", "priority_transmit_bytes", 1.0),
    "rx_bytes": ("port_receive_data_bytes", "priority_receive_bytes", 1.0),
    "tx_pkts": ("port_transmit_packets", "priority_transmit_packets", 1.0),
    "paused_ns": ("global_pause_receive_duration", "pfc_receive_pause_duration", 1e-9),
    "pfc_rx": ("global_pause_receive_frames", "pfc_receive_frames", 1.0),
    "pfc_tx": ("global_pause_transmit_frames", "pfc_transmit_frames", 1.0),
    "link_downed": ("link_downed", "", 1.0),
}
WAIT = "port_transmit_wait"  # ticks; a host adapter's is 32-bit and sticky: saturated for good, so not valid there


class StoreWindows:
    """Numbers ports once and again when new ones appear. ``priorities``: [None], or those some port pauses on."""

    def __init__(self, store: Store, fabric: Fabric, tick_bytes: int) -> None:
        self.store = store
        self.fabric = fabric
        self.tick_bytes = tick_bytes
        paused = sorted({p for name, p in store.names() if name == "pfc_receive_pause_duration" and p is not None})
        self.priorities: list[int | None] = [*paused] or [None]
        self._index = np.zeros(0, np.int64)

    def window(self, now_ns: int, interval_ns: float, stale_ns: float) -> Window:
        """Rates not older than ``stale_ns``; whatever is missing, saturated or reset is nan."""
        if len(self._index) != len(self.store.ports):
            index = self.fabric.index
            found = [index.get((key.guid, key.port), -1) for key in self.store.ports.keys]
            self._index = np.array(found, np.int64)
        shape = (self.fabric.size, len(self.priorities))
        age = np.full(shape, np.inf)
        rates: dict[str, Floats] = {}
        resets = 0
        for name, (whole, by_priority, factor) in SOURCES.items():
            array = np.full(shape, np.nan)
            for column, priority in enumerate(self.priorities):
                source = whole if priority is None else by_priority
                if source:
                    resets += self._fill(array, age, column, source, priority, factor, interval_ns, stale_ns)
            rates[name] = array
        wait = np.full(shape, np.nan)
        if self.priorities == [None]:
            resets += self._fill(wait, age, 0, WAIT, None, 1.0, interval_ns, stale_ns)
            rates["xmit_wait_ns"] = np.minimum(wait * (self._ticks() * 8.0 / self.fabric.rate)[:, None], 1.0)
        return Window(now_ns, interval_ns, rates, age, self._speeds(), resets=resets)

    def _fill(
        self,
        array: Floats,
        age: Floats,
        column: int,
        source: str,
        priority: int | None,
        factor: float,
        interval_ns: float,
        stale_ns: float,
    ) -> int:
        reading = self.store.read(source, priority)
        at = self._index[reading.port] if len(reading.port) else np.zeros(0, np.int64)
        good = (at >= 0) & (reading.age <= stale_ns) & ((reading.flags & int(Flag.VALID)) != 0)
        good &= (reading.flags & int(Flag.SATURATED | Flag.STALE)) == 0
        good &= ~np.isnan(reading.rate)
        array[at[good], column] = reading.rate[good] * factor
        age[at[good], column] = np.rint(reading.age[good] / interval_ns)
        return int(np.count_nonzero(reading.flags & int(Flag.RESET)))

    def _ticks(self) -> Floats:
        """Bytes of link time a wait tick stands for: as the sweep found it for the port's device, else the configured value."""
        ticks = np.full(self.fabric.size, float(self.tick_bytes))
        for number, labels in enumerate(self.store.ports.labels):
            at, told = int(self._index[number]), labels.labels.get("wait_tick_bytes", "")
            if at >= 0 and told.isdigit() and int(told) > 0:
                ticks[at] = float(told)
        return ticks

    def _speeds(self) -> Floats:
        speeds = np.full(self.fabric.size, np.nan)
        for number, labels in enumerate(self.store.ports.labels):
            at = int(self._index[number])
            if at >= 0 and labels.rate_gbps > 0:
                speeds[at] = labels.rate_gbps * 1e9
        return speeds
