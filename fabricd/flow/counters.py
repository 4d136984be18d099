"""The cumulative counters of every port, as the hardware would keep them at unlimited width.

The faces of the model narrow them (sticky 32-bit, wrapping, data words) where real devices do; here nothing saturates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fabricd.flow.graph import FloatArray, IntArray
from fabricd.flow.settings import SL_COUNT


@dataclass(slots=True)
class Counters:
    """[P, V] arrays per port and lane (VL or priority), [P] per port, [P, 16] per service level.

    Times are float nanoseconds; frames and packets may hold fractions of a packet (quanta are larger than packets), so a
    reader rounds down.
    """

    tx_bytes: IntArray  # [P, V]
    rx_bytes: IntArray  # [P, V]
    tx_pkts: IntArray  # [P, V]
    rx_pkts: IntArray  # [P, V]
    xmit_wait_ns: FloatArray  # [P, V] data queued, flow control forbade sending it
    paused_ns: FloatArray  # [P, V] flow control forbade sending, data or not
    pfc_tx: FloatArray  # [P, V] pause frames sent by this port (XOFF and its repeats; XON are in pfc_xon_tx)
    pfc_rx: FloatArray  # [P, V]
    pfc_xon_tx: FloatArray  # [P, V]
    ecn_marked: IntArray  # [P, V] packets marked on this egress (CE, or FECN on InfiniBand)
    drops: IntArray  # [P, V] packets discarded at this port (egress: link down or no route; ingress: lossy overflow)
    queue_max: IntArray  # [P, V] largest egress queue since the reader last reset it
    port_wait_ns: FloatArray  # [P] data queued on some lane and nothing sent: PortXmitWait as time
    cnp_tx: IntArray  # [P] endpoints: congestion notifications sent (BECN on InfiniBand)
    cnp_rx: IntArray  # [P]
    ce_rx: IntArray  # [P] endpoints: packets received with CE / FECN set
    time_congested_ns: FloatArray  # [P, V] egress queue above its marking threshold: PortVLXmitTimeCong as time
    link_downed: IntArray  # [P]
    link_recovers: IntArray  # [P]
    symbol_errors: IntArray  # [P]
    rcv_errors: IntArray  # [P]
    hoq_discards: IntArray  # [P] the part of drops that waited too long
    sl_tx_bytes: IntArray  # [P, 16]
    sl_rx_bytes: IntArray  # [P, 16]
    sl_fecn: IntArray  # [P, 16]
    sl_becn: IntArray  # [P, 16]

    @classmethod
    def zeros(cls, ports: int, lanes: int) -> Counters:
        """All counters at zero for ``ports`` ports with ``lanes`` lanes."""
        real = {"xmit_wait_ns", "paused_ns", "pfc_tx", "pfc_rx", "pfc_xon_tx", "time_congested_ns"}
        flat_real = {"port_wait_ns"}
        flat = {
            "cnp_tx",
            "cnp_rx",
            "ce_rx",
            "link_downed",
            "link_recovers",
            "symbol_errors",
            "rcv_errors",
            "hoq_discards",
        }
        arrays: dict[str, Any] = {}
        for name in cls.__dataclass_fields__:
            if name in real:
                arrays[name] = np.zeros((ports, lanes))
            elif name in flat_real:
                arrays[name] = np.zeros(ports)
            elif name in flat:
                arrays[name] = np.zeros(ports, dtype=np.int64)
            elif name.startswith("sl_"):
                arrays[name] = np.zeros((ports, SL_COUNT), dtype=np.int64)
            else:
                arrays[name] = np.zeros((ports, lanes), dtype=np.int64)
        return cls(**arrays)


def wait_ticks(wait_ns: FloatArray, rate_bytes: FloatArray, tick_bytes: int = 8) -> IntArray:
    """PortXmitWait in ticks: one tick is the time ``tick_bytes`` bytes take at the port's rate.

    8 on Quantum generations at any width (NVIDIA ibdiagnet manual, "Congestion Assessment"), 32 per lane on Switch-IB.
    """
    return np.asarray(wait_ns * 1e-9 * rate_bytes / tick_bytes, dtype=np.int64)
