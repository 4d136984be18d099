"""RDMA statistics over netlink, against bytes laid out from the kernel's include/uapi/rdma/rdma_netlink.h."""

from __future__ import annotations

import errno
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.sources.base import LayoutChanged, SourceGone
from fabricd.sources.netlink import NetlinkSocket, messages
from fabricd.sources.rdma_netlink import (
    RdmaStatistics,
    decode_devices,
    decode_statistics,
    encode_devices,
    encode_statistics,
)
from tests.unit.sources.test_dcb import Kernel, attribute

NLDEV_GET, NLDEV_STAT_GET = 5 << 10 | 1, 5 << 10 | 17
DEV_INDEX, DEV_NAME, PORT_INDEX = 1, 2, 3
HWCOUNTERS, ENTRY, ENTRY_NAME, ENTRY_VALUE = 80, 81, 82, 83
NESTED = 0x8000


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


def device(index: int, name: str) -> bytes:
    return message(
        NLDEV_GET, attribute(DEV_INDEX, struct.pack("=I", index)) + attribute(DEV_NAME, name.encode() + b"\0"), 2
    )


def statistics(values: dict[str, int]) -> bytes:
    entries = b"".join(
        attribute(
            ENTRY | NESTED, attribute(ENTRY_NAME, n.encode() + b"\0") + attribute(ENTRY_VALUE, struct.pack("=Q", v))
        )
        for n, v in values.items()
    )
    body = attribute(DEV_INDEX, struct.pack("=I", 0)) + attribute(PORT_INDEX, struct.pack("=I", 1))
    return message(NLDEV_STAT_GET, body + attribute(HWCOUNTERS | NESTED, entries))


def test_requests_are_the_kernels_layout() -> None:
    assert encode_devices() == struct.pack("=IHHII", 16, NLDEV_GET, 0x301, 1, 0)
    body = attribute(DEV_INDEX, struct.pack("=I", 7)) + attribute(PORT_INDEX, struct.pack("=I", 2))
    assert encode_statistics(7, 2) == struct.pack("=IHHII", 16 + len(body), NLDEV_STAT_GET, 1, 1, 0) + body


def test_devices_of_a_dump() -> None:
    done = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)
    assert decode_devices(device(0, "mlx5_0") + device(3, "rxe0") + done) == {"mlx5_0": 0, "rxe0": 3}


@given(st.dictionaries(st.text("abc_xyz09", min_size=1, max_size=30), st.integers(0, 2**64 - 1), max_size=20))
def test_statistics(values: dict[str, int]) -> None:
    assert decode_statistics(statistics(values)) == values


class Datagrams:
    """A socket that answers in parts."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)

    def send(self, data: bytes) -> None: ...

    def recv(self, size: int, flags: int = 0) -> bytes:
        return self.parts.pop(0)


def test_a_dump_is_read_to_its_end() -> None:
    """The kernel puts the end of a dump in a datagram of its own: left unread it would be taken for the next answer."""
    done = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)
    sock = NetlinkSocket(0)
    sock.close()
    sock._socket = Datagrams(device(0, "rxe0"), device(1, "rxe1"), done, statistics({"sent_pkts": 5}))  # type: ignore[assignment]
    assert decode_devices(sock.ask(encode_devices())) == {"rxe0": 0, "rxe1": 1}
    assert decode_statistics(sock.ask(encode_statistics(0, 1))) == {"sent_pkts": 5}


@given(st.binary(max_size=80))
def test_any_bytes_end(data: bytes) -> None:
    assert sum(16 + len(body) for _, body in messages(data)) <= len(data)


def read(group: RdmaStatistics) -> dict[str, int | None]:
    values, flags = array("Q", bytes(8 * len(group.columns))), bytearray(len(group.columns))
    group.read(values, flags, 0, 0)
    return {c.name: v if f & 1 else None for c, v, f in zip(group.columns, values, flags, strict=True)}


def test_only_what_sysfs_does_not_show() -> None:
    kernel = Kernel(statistics({"np_cnp_sent": 1, "cc_rx_ce_pkts": 2, "rdma_tx_bytes": 3}))
    group = RdmaStatistics(kernel, 0, "mlx5_0", 1, "mlx5_core", {"np_cnp_sent"})  # type: ignore[arg-type]
    assert read(group) == {"rdma_receive_ecn_marked_packets": 2, "rdma_transmit_bytes": 3}


def test_optional_counters_come_and_go() -> None:
    kernel = Kernel(statistics({"cc_rx_ce_pkts": 2}))
    group = RdmaStatistics(kernel, 0, "mlx5_0", 1, "mlx5_core", ())  # type: ignore[arg-type]
    kernel.reply = statistics({"cc_rx_ce_pkts": 2, "cc_tx_cnp_pkts": 1})
    with pytest.raises(LayoutChanged):
        read(group)


def test_failures() -> None:
    kernel = Kernel(statistics({"cc_rx_ce_pkts": 2}))
    group = RdmaStatistics(kernel, 0, "mlx5_0", 1, "mlx5_core", ())  # type: ignore[arg-type]
    kernel.reply = OSError(errno.EIO, "I/O error")
    assert read(group) == {"rdma_receive_ecn_marked_packets": None}
    kernel.reply = OSError(errno.ENODEV, "No such device")
    with pytest.raises(SourceGone):
        read(group)
