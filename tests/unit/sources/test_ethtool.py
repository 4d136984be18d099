"""ethtool statistics: the ioctl on a real veth, and what happens when names change under us."""

from __future__ import annotations

import subprocess
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.sources.base import LayoutChanged, SourceGone
from fabricd.sources.ethtool import EthtoolCounters, EthtoolStrings, open_ethtool
from tests.netns import veth_pair

pytestmark = pytest.mark.root


def read(group: Any) -> dict[str, int]:
    values, flags = array("Q", bytes(8 * len(group.columns))), bytearray(len(group.columns))
    group.read(values, flags, 0, 0)
    assert set(flags) <= {1}
    return {
        c.name if c.priority is None else f"{c.name}{c.priority}": v for c, v in zip(group.columns, values, strict=True)
    }


def ethtool_s(netdev: str) -> dict[str, int]:
    out = subprocess.run(["ethtool", "-S", netdev], check=True, capture_output=True, text=True).stdout
    pairs = (line.rsplit(":", 1) for line in out.splitlines()[1:] if ":" in line)
    return {name.strip(): int(value) for name, value in pairs}


def test_a_real_interface_gives_what_ethtool_prints() -> None:
    with veth_pair() as (one, _):
        group = open_ethtool(one, "veth", lambda name: True)
        assert group is not None
        try:
            # An interface that has just come up speaks by itself: compare once the numbers stand still between two readings.
            for _attempt in range(50):
                before, theirs, after = read(group), ethtool_s(one), read(group)
                if before == after:
                    break
            assert before == theirs == after != {}
            assert before["peer_ifindex"] > 0
        finally:
            group.close()


def test_raw_names_and_numbers() -> None:
    with veth_pair() as (one, _):
        strings = EthtoolStrings(one)
        names = list(strings.names)
        assert "rx_queue_0_xdp_packets" in names
        assert len(strings.read()) == len(names)
        assert dict(zip(names, strings.read(), strict=True)) == ethtool_s(one)
        strings.close()


def test_a_real_name_set_that_grows() -> None:
    """veth has statistics for each queue; with more queues there are more names."""
    with veth_pair() as (one, two):
        subprocess.run(["ip", "link", "del", one], check=True)
        subprocess.run(
            ["ip", "link", "add", one, "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "name", two],
            check=True,
        )
        subprocess.run(["ethtool", "-L", one, "rx", "1", "tx", "1"], check=True, capture_output=True)
        group = open_ethtool(one, "veth", lambda name: True)
        assert group is not None
        before = read(group)
        subprocess.run(["ethtool", "-L", one, "rx", "4"], check=True, capture_output=True)
        with pytest.raises(LayoutChanged):
            read(group)
        group.close()
        again = open_ethtool(one, "veth", lambda name: True)
        assert again is not None
        assert len(read(again)) > len(before)
        again.close()


def test_interface_that_goes_away() -> None:
    with veth_pair() as (one, _):
        group = open_ethtool(one, "veth", lambda name: True)
        assert group is not None
        subprocess.run(["ip", "link", "del", one], check=True)
        with pytest.raises(SourceGone):
            read(group)
        group.close()
        with pytest.raises(SourceGone):
            open_ethtool(one, "veth", lambda name: True)


def test_interface_without_statistics() -> None:
    assert open_ethtool("lo", "", lambda name: True) is None


class Strings:
    """Statistics of a driver that is not here."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers
        self.names = list(numbers)

    def read(self) -> memoryview:
        if list(self.numbers) != self.names:
            self.names = list(self.numbers)
            raise LayoutChanged
        return memoryview(array("Q", self.numbers.values()))

    def close(self) -> None: ...


def group_of(driver: str, numbers: dict[str, int], extra: tuple[str, ...] = ()) -> EthtoolCounters:
    return EthtoolCounters("eth0", driver, lambda name: name in extra, source=Strings(numbers))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("driver", "numbers", "normal"),
    [
        (
            "mlx5_core",
            {
                "rx_prio3_pause": 1, "rx_prio3_pause_duration": 2, "rx_prio3_pause_transition": 3, "tx_prio3_pause": 4,
                "tx_prio3_pause_duration": 5, "tx_prio3_pause_transition": 6, "rx_prio3_discards": 7, "rx_prio3_marked": 8,
                "rx_prio3_buf_discard": 9, "rx_prio3_cong_discard": 10, "tx_pause_storm_warning_events": 11,
                "tx_pause_storm_error_events": 12, "rx_ecn_mark": 13, "rx0_packets": 14, "ch0_events": 15,
            },
            {
                "pfc_receive_frames3": 1, "pfc_receive_pause_duration3": 2000, "pfc_receive_pause_transitions3": 3,
                "pfc_transmit_frames3": 4, "pfc_transmit_pause_duration3": 5000, "pfc_transmit_pause_transitions3": 6,
                "priority_receive_discards3": 7, "priority_receive_marked_packets3": 8, "priority_receive_buffer_discards3": 9,
                "priority_receive_congestion_discards3": 10, "pfc_storm_warning_events": 11, "pfc_storm_error_events": 12,
                "receive_ecn_marked_packets": 13,
            },
        ),
        (
            "bnxt_en",
            {"rx_pfc_ena_frames_pri3": 1, "pfc_pri3_rx_duration_us": 2, "pfc_pri3_tx_transitions": 3},
            {"pfc_receive_frames3": 1, "pfc_receive_pause_duration3": 2000, "pfc_transmit_pause_transitions3": 3},
        ),
        (
            "ice",
            {"tx_priority_3_xoff.nic": 1, "rx_priority_3_xon.nic": 2},
            {"pfc_transmit_frames3": 1, "pfc_receive_resume_frames3": 2},
        ),
        ("ionic", {"frames_rx_pripause": 1, "frames_rx_pri_3": 2}, {"pause_receive_frames": 1, "priority_receive_packets3": 2}),
        ("hns3", {"mac_tx_pfc_pri3_pkt_num": 1}, {"pfc_transmit_frames3": 1}),
        ("mlx4_en", {"rx_pause_prio_3": 1, "tx_pause_prio_3": 2}, {"pfc_receive_frames3": 1, "pfc_transmit_frames3": 2}),
        ("somebody", {"rx_prio3_pause": 1}, {}),
    ],
)  # fmt: skip
def test_normal_form(driver: str, numbers: dict[str, int], normal: dict[str, int]) -> None:
    assert read(group_of(driver, numbers)) == normal


def test_names_that_come_and_go_with_flow_control() -> None:
    numbers = {"rx_prio0_bytes": 1, "rx_prio3_pause": 5}
    strings = Strings(numbers)
    group = EthtoolCounters("eth0", "mlx5_core", lambda name: False, source=strings)  # type: ignore[arg-type]
    assert read(group) == {"priority_receive_bytes0": 1, "pfc_receive_frames3": 5}
    del numbers["rx_prio3_pause"]
    numbers["rx_prio4_pause"] = 9  # as many names as before, but others
    with pytest.raises(LayoutChanged):
        read(group)


def test_wanted_beyond_the_catalogue() -> None:
    assert read(group_of("mlx5_core", {"rx0_cache_full": 4, "other": 1}, ("rx0_cache_full",))) == {"rx0_cache_full": 4}


@given(st.integers(0, 2**64 - 1))
def test_durations_stay_64_bit(value: int) -> None:
    assert read(group_of("mlx5_core", {"rx_prio0_pause_duration": value})) == {
        "pfc_receive_pause_duration0": value * 1000 & (2**64 - 1)
    }
