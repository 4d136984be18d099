"""What other people's exporters and tools would have said of a trace: its counters under their names, at any instant.

A trace's milliseconds are stretched: time, bytes and waits grow alike, so the fabric is the same one, watched more slowly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from benchmarks.trace_views import infiniband
from fabricd.model.topology import SWITCH, PortRef
from fabricd.outputs.trace import Trace

GUID = 0xB83FD200_00000000
TICK_BYTES = 8
FABRIC_NAMES = {
    "tx_bytes": "port_transmit_data_bytes_total",
    "rx_bytes": "port_receive_data_bytes_total",
    "tx_pkts": "port_transmit_packets_total",
    "wait": "port_transmit_wait_total",
}
Floats = npt.NDArray[np.float64]


class Watched:
    """A trace as an InfiniBand fabric that runs ``stretch`` times slower. Counters are those of whole ports."""

    def __init__(self, trace: Trace, stretch: float) -> None:
        self.trace = infiniband(trace)
        self.stretch = stretch
        table = self.trace.counters
        self.rate = {ref: link.rate_gbps * 1e9 for link in trace.topology.links for ref in (link.a, link.b)}
        self.peer = trace.topology.neighbours()
        self._times: dict[PortRef, Floats] = {}
        self._values: dict[PortRef, dict[str, Floats]] = {}
        for ref in sorted(self.rate):
            rows = (table.node == ref[0]) & (table.port == ref[1])
            self._times[ref] = table.t_ns[rows].astype(np.float64)
            values = {name: table.values[name][rows] for name in ("tx_bytes", "rx_bytes", "tx_pkts")}
            values["wait"] = table.values["xmit_wait_ns"][rows] * self.rate[ref] / (TICK_BYTES * 8e9)
            self._values[ref] = values
        self.end_ns = float(table.t_ns.max()) * stretch

    def counters(self, ref: PortRef, elapsed_ns: float) -> dict[str, int]:
        """Values of a port so long after the beginning; a switch's wait only."""
        at = elapsed_ns / self.stretch
        out = {
            name: int(np.interp(at, self._times[ref], values) * self.stretch)
            for name, values in self._values[ref].items()
            if not np.isnan(values).any()
        }
        return out

    def is_switch(self, guid: int) -> bool:
        return self.trace.topology.nodes[guid].type == SWITCH

    def guid(self, guid: int) -> str:
        return f"0x{GUID + guid:016x}"

    def name(self, guid: int) -> str:
        return self.trace.topology.nodes[guid].name

    def switch_ports(self) -> Iterator[PortRef]:
        return (ref for ref in sorted(self.rate) if self.is_switch(ref[0]))

    def infiniband_exporter(self, elapsed_ns: float) -> Iterator[tuple[str, str, float]]:
        """(metric, labels, value) of one scrape of the whole fabric."""
        for ref in self.switch_ports():
            here = f'guid="{self.guid(ref[0])}",port="{ref[1]}"'
            far = self.peer[ref]
            kind = "SW" if self.is_switch(far[0]) else "CA"
            yield (
                "infiniband_switch_uplink_info",
                f'{here},switch="{self.name(ref[0])}",uplink="{self.name(far[0])}",uplink_guid="{self.guid(far[0])}",'
                f'uplink_type="{kind}",uplink_port="{far[1]}",uplink_lid="{far[0]}"',
                1,
            )
            yield "infiniband_switch_port_raw_rate_bytes_per_second", here, self.rate[ref] / 8
            for name, value in self.counters(ref, elapsed_ns).items():
                yield f"infiniband_switch_{FABRIC_NAMES[name]}", f'{here},switch="{self.name(ref[0])}"', value
