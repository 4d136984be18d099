"""DCB over rtnetlink, against bytes laid out by hand from the kernel's include/uapi/linux/dcbnl.h and netlink.h."""

from __future__ import annotations

import errno
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.rejects import Rejects
from fabricd.sources.base import SourceGone
from fabricd.sources.dcb import Dcb, DcbCounters, decode, encode_get, open_dcb
from fabricd.sources.netlink import NetlinkSocket
from tests.netns import veth_pair

RTM_GETDCB, RTM_SETDCB = 78, 79
ATTR_IFNAME, ATTR_IEEE = 1, 13
IEEE_ETS, IEEE_PFC, IEEE_APP_TABLE, DCB_BUFFER, IEEE_APP = 1, 2, 3, 10, 1
NESTED = 0x8000


def attribute(kind: int, body: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(body), kind) + body + b"\0" * (-len(body) % 4)


def pfc(enabled: int, requests: list[int], indications: list[int], cap: int = 8) -> bytes:
    """struct ieee_pfc { u8 pfc_cap, pfc_en, mbc; u16 delay; u64 requests[8], indications[8]; } with the compiler's padding."""
    head = bytes([cap, enabled, 0, 0]) + struct.pack("=H", 99) + b"\0\0"
    return head + b"".join(struct.pack("=Q", n) for n in (*requests, *indications))


def ets(bandwidth: list[int], algorithm: list[int], priority_to_class: list[int]) -> bytes:
    """struct ieee_ets { u8 willing, ets_cap, cbs, tc_tx_bw[8], tc_rx_bw[8], tc_tsa[8], prio_tc[8], tc_reco_*[8] x 3; }"""
    return bytes([0, 8, 0, *bandwidth, *([0] * 8), *algorithm, *priority_to_class, *([0] * 24)])


def answer(*ieee: bytes, nested: int = NESTED, netdev: str = "eth0") -> bytes:
    body = struct.pack("=BBH", 0, 21, 0)  # struct dcbmsg
    body += attribute(ATTR_IFNAME, netdev.encode() + b"\0") + attribute(ATTR_IEEE | nested, b"".join(ieee))
    return struct.pack("=IHHII", 16 + len(body), RTM_GETDCB, 0, 1, 0) + body


def apps(*entries: tuple[int, int, int]) -> bytes:
    """struct dcb_app { u8 selector, priority; u16 protocol; } each in its own attribute."""
    return attribute(
        IEEE_APP_TABLE | NESTED, b"".join(attribute(IEEE_APP, struct.pack("=BBH", s, q, p)) for s, q, p in entries)
    )


def test_request_is_the_kernels_layout() -> None:
    name = attribute(ATTR_IFNAME, b"eth0\0")
    body = struct.pack("=BBH", 0, 21, 0) + name
    assert encode_get("eth0") == struct.pack("=IHHII", 16 + len(body), RTM_GETDCB, 1, 1, 0) + body


@pytest.mark.parametrize("nested", [NESTED, 0])
def test_answer(nested: int) -> None:
    requests, indications = list(range(8)), list(range(100, 108))
    dcb = decode(
        answer(
            attribute(IEEE_PFC, pfc(0b0000_1000, requests, indications)),
            attribute(IEEE_ETS, ets([50, 0, 0, 50, 0, 0, 0, 0], [2, 0, 0, 2, 0, 255, 1, 7], [0, 0, 0, 1, 0, 0, 2, 0])),
            apps((5, 3, 26), (5, 6, 48), (1, 3, 0x8915)),
            attribute(
                DCB_BUFFER, bytes([0, 0, 0, 1, 0, 0, 0, 0]) + struct.pack("=9I", 1000, 2000, 0, 0, 0, 0, 0, 0, 3000)
            ),
            nested=nested,
        )
    )
    assert (dcb.pfc_cap, dcb.pfc_delay, dcb.enabled_priorities) == (8, 99, [3])
    assert (dcb.requests, dcb.indications) == (requests, indications)
    assert dcb.ets_bandwidth == [50, 0, 0, 50, 0, 0, 0, 0] and dcb.priority_to_class == [0, 0, 0, 1, 0, 0, 2, 0]
    assert dcb.ets_algorithm == ["ets", "strict", "strict", "ets", "strict", "vendor", "cbs", "7"]
    assert dcb.dscp_to_priority == {26: 3, 48: 6}
    assert dcb.apps == [("dscp", 26, 3), ("dscp", 48, 6), ("ethertype", 0x8915, 3)]
    assert dcb.buffer_bytes == [1000, 2000, 0, 0, 0, 0, 0, 0] and dcb.buffer_total == 3000
    assert dcb.priority_to_buffer == [0, 0, 0, 1, 0, 0, 0, 0]
    assert dcb.labels() == {"pfc": "3", "dscp": "26:3,48:6", "prio_tc": "0,0,0,1,0,0,2,0"}
    assert dcb.to_json()["buffer"]["total"] == 3000


def test_parts_that_are_absent_or_short_are_unknown() -> None:
    dcb = decode(answer(attribute(IEEE_PFC, b"\x08\x08"), attribute(IEEE_ETS, b""), attribute(DCB_BUFFER, b"\0" * 20)))
    assert dcb == Dcb()
    assert dcb.enabled_priorities is None and dcb.labels() == {}
    assert decode(answer()) == Dcb()
    assert decode(b"") == Dcb()


def test_a_longer_structure_of_a_newer_kernel() -> None:
    assert decode(answer(attribute(IEEE_PFC, pfc(1, [0] * 8, [0] * 8) + b"\x07" * 64))).enabled_priorities == [0]


@given(st.integers(0, 255), st.lists(st.integers(0, 2**64 - 1), min_size=16, max_size=16))
def test_any_pfc_state(enabled: int, counts: list[int]) -> None:
    dcb = decode(answer(attribute(IEEE_PFC, pfc(enabled, counts[:8], counts[8:]))))
    assert dcb.enabled_priorities == [p for p in range(8) if enabled & 1 << p]
    assert dcb.requests == counts[:8] and dcb.indications == counts[8:]


class Kernel:
    """Answers what the test says; counts the questions."""

    def __init__(self, reply: bytes | OSError) -> None:
        self.reply = reply
        self.asked = 0

    def ask(self, request: bytes) -> bytes:
        self.asked += 1
        if isinstance(self.reply, OSError):
            raise self.reply
        return self.reply


def read(group: DcbCounters) -> dict[tuple[str, int | None], int]:
    values, flags = array("Q", bytes(8 * len(group.columns))), bytearray(len(group.columns))
    group.read(values, flags, 0, 0)
    return {(c.name, c.priority): v for c, v, f in zip(group.columns, values, flags, strict=True) if f & 1}


def counters(kernel: Kernel, driver: str, *, counts: bool = True) -> DcbCounters:
    return DcbCounters(kernel, "eth0", driver, Rejects(), counts=counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("driver", "sent", "received"),
    [
        ("mlx5_core", "requests", "indications"),
        ("i40e", "requests", "indications"),
        ("hns3", "requests", "indications"),
        ("ixgbe", "indications", "requests"),
        ("kvx", "indications", "requests"),
    ],
)
def test_direction_by_driver(driver: str, sent: str, received: str) -> None:
    numbers = {"requests": [11] * 8, "indications": [22] * 8}
    kernel = Kernel(answer(attribute(IEEE_PFC, pfc(8, numbers["requests"], numbers["indications"]))))
    found = read(counters(kernel, driver))
    assert found["pfc_transmit_frames", 3] == numbers[sent][3]
    assert found["pfc_receive_frames", 3] == numbers[received][3]
    assert (found["pfc_enabled", 3], found["pfc_enabled", 4]) == (1, 0)


def test_unknown_driver_has_no_direction() -> None:
    found = read(counters(Kernel(answer(attribute(IEEE_PFC, pfc(8, [1] * 8, [2] * 8)))), "somebody"))
    assert (found["pfc_requests", 0], found["pfc_indications", 0]) == (1, 2)


def test_counts_are_left_to_ethtool_where_it_has_them() -> None:
    group = counters(Kernel(answer(attribute(IEEE_PFC, pfc(8, [1] * 8, [2] * 8)))), "mlx5_core", counts=False)
    assert {name for name, _ in read(group)} == {"pfc_enabled"}


def test_state_that_changes_and_answers_that_fail() -> None:
    kernel = Kernel(answer(attribute(IEEE_PFC, pfc(8, [1] * 8, [2] * 8))))
    group = counters(kernel, "mlx5_core")
    assert read(group)["pfc_enabled", 3] == 1
    kernel.reply = answer(attribute(IEEE_PFC, pfc(0, [1] * 8, [2] * 8)))
    assert read(group)["pfc_enabled", 3] == 0
    kernel.reply = TimeoutError()
    assert read(group) == {}
    kernel.reply = OSError(errno.EIO, "I/O error")
    assert read(group) == {}
    kernel.reply = OSError(errno.ENODEV, "No such device")
    with pytest.raises(SourceGone):
        read(group)


@pytest.mark.root
def test_the_real_kernel_answers_in_this_form() -> None:
    """A veth has no DCB: the kernel says so by errno, which also proves that it understood the question."""
    sock = NetlinkSocket(0)
    with veth_pair() as (one, _):
        with pytest.raises(OSError) as caught:
            sock.ask(encode_get(one))
        assert caught.value.errno == errno.EOPNOTSUPP
        assert open_dcb(sock, one, "veth", Rejects(), counts=True) is None
    with pytest.raises(SourceGone):
        open_dcb(sock, one, "veth", Rejects(), counts=True)
    sock.close()
