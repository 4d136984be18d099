"""Which counter files an mlx5 device has, how wide each counter is and what it shows.

Names and widths after drivers/infiniband/core/sysfs.c (PortCounters fields: narrow and sticky, data and packets 64-bit)
and drivers/infiniband/hw/mlx5/counters.c (queue counters wrap at 32 bits, the congestion group has 64).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fabricd.twin.face import U64, Counters

TICK_BYTES = 8  # PortXmitWait of the adapters: as the switches', each 8 bytes of port time
MTU = 4096
REQUEST_BYTES = 1 << 20  # one RDMA write request stands for this many bytes of traffic


@dataclass(frozen=True, slots=True)
class Reading:
    """What the encoders see: the fabric's counters and the rows of the adapters' ports, in the plan's order."""

    counters: Counters
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    gbps: np.ndarray[tuple[int], np.dtype[np.float64]]

    def port(self, name: str) -> U64:
        values: U64 = getattr(self.counters, name)[self.rows]
        return values

    def lanes(self, name: str) -> U64:
        """Sum over the lanes."""
        return np.asarray(self.port(name).sum(axis=1, dtype=np.uint64))


Values = Callable[[Reading], U64]


@dataclass(frozen=True, slots=True)
class File:
    """One counter file: ``bits`` wide, ``sticky`` at its maximum or wrapping; ``aged``: it has counted before the twin began."""

    name: str
    bits: int
    sticky: bool
    values: Values
    aged: bool = False


def _zero(reading: Reading) -> U64:
    return np.zeros(len(reading.rows), np.uint64)


def _port(name: str) -> Values:
    return lambda reading: reading.port(name)


def _lanes(name: str, divisor: int = 1) -> Values:
    return lambda reading: reading.lanes(name) // np.uint64(divisor)


def _wait(reading: Reading) -> U64:
    return (reading.port("port_wait_ns") * (reading.gbps / 8.0 / TICK_BYTES)).astype(np.uint64)


def _counters(sent: Values, received: Values) -> tuple[File, ...]:
    return (
        File("VL15_dropped", 16, True, _zero),
        File("excessive_buffer_overrun_errors", 4, True, _zero),
        File("link_downed", 8, True, _port("link_downed")),
        File("link_error_recovery", 8, True, _port("link_recovered")),
        File("local_link_integrity_errors", 4, True, _zero),
        File("multicast_rcv_packets", 64, True, _zero),
        File("multicast_xmit_packets", 64, True, _zero),
        File("port_rcv_constraint_errors", 8, True, _zero),
        File("port_rcv_data", 64, True, _lanes("rx_bytes", 4)),
        File("port_rcv_errors", 16, True, _port("rcv_errors")),
        File("port_rcv_packets", 64, True, received),
        File("port_rcv_remote_physical_errors", 16, True, _zero),
        File("port_rcv_switch_relay_errors", 16, True, _zero),
        File("port_xmit_constraint_errors", 8, True, _zero),
        File("port_xmit_data", 64, True, _lanes("tx_bytes", 4)),
        File("port_xmit_discards", 16, True, _lanes("drops")),
        File("port_xmit_packets", 64, True, sent),
        File("port_xmit_wait", 32, True, _wait),
        File("symbol_error", 16, True, _port("symbol_errors")),
        File("unicast_rcv_packets", 64, True, received),
        File("unicast_xmit_packets", 64, True, sent),
    )


COUNTERS = _counters(_lanes("tx_packets"), _lanes("rx_packets"))

QUEUE_COUNTERS = (
    File("duplicate_request", 32, False, _zero),
    File("implied_nak_seq_err", 32, False, _zero),
    File("local_ack_timeout_err", 32, False, _lanes("drops")),
    File("out_of_buffer", 32, False, _zero),
    File("out_of_sequence", 32, False, _zero),
    File("packet_seq_err", 32, False, _zero),
    File("req_cqe_error", 32, False, _zero),
    File("req_cqe_flush_error", 32, False, _zero),
    File("req_remote_access_errors", 32, False, _zero),
    File("req_remote_invalid_request", 32, False, _zero),
    File("resp_cqe_error", 32, False, _zero),
    File("resp_cqe_flush_error", 32, False, _zero),
    File("resp_local_length_error", 32, False, _zero),
    File("resp_remote_access_errors", 32, False, _zero),
    File("rnr_nak_retry_err", 32, False, _zero),
    File("rx_atomic_requests", 32, False, _zero, aged=True),
    File("rx_dct_connect", 32, False, _zero),
    File("rx_read_requests", 32, False, _zero, aged=True),
    File("rx_write_requests", 32, False, _lanes("rx_bytes", REQUEST_BYTES), aged=True),
)

CONGESTION_COUNTERS = (  # RoCE only
    File("np_cnp_sent", 64, False, _port("cnp_tx")),
    File("np_ecn_marked_roce_packets", 64, False, _port("ce_rx")),
    File("roce_adp_retrans", 32, False, _zero),
    File("roce_adp_retrans_to", 32, False, _zero),
    File("roce_slow_restart", 32, False, _zero),
    File("roce_slow_restart_cnps", 32, False, _zero),
    File("roce_slow_restart_trans", 32, False, _zero),
    File("rp_cnp_handled", 64, False, _port("cnp_rx")),
    File("rp_cnp_ignored", 64, False, _zero),
    File("rx_icrc_encapsulated", 64, False, _zero),
)


def show(file: File, values: U64, base: U64 | None) -> U64:
    """What the file shows: sticky counters stop at all-ones, the others wrap."""
    if file.sticky:
        return values if file.bits == 64 else np.minimum(values, np.uint64((1 << file.bits) - 1))
    counted = values if base is None else values + base
    return counted if file.bits == 64 else counted & np.uint64((1 << file.bits) - 1)
