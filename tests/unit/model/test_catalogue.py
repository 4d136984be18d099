import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.model.catalogue import METRICS, TABLES, exposed, lookup, metric, saturated, scaled


def test_every_alias_names_a_known_metric() -> None:
    for table in TABLES:
        aliases = [e if isinstance(e, str) else e.metric for e in table.names.values()]
        aliases += [family.alias.metric for family in table.patterns]
        assert {name for name in aliases if name not in METRICS} == set(), table.drivers


def test_every_metric_is_used_and_described() -> None:
    used = {e if isinstance(e, str) else e.metric for table in TABLES for e in table.names.values()}
    used |= {family.alias.metric for table in TABLES for family in table.patterns}
    assert set(METRICS) == used
    for m in METRICS.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]+", m.name)
        assert m.unit and m.help and m.help[0].isupper() and not m.help.endswith(".")
        assert not m.name.endswith(("_total", "_ns", "_us", "_ms"))
        assert ("bytes" in m.name) <= (m.unit in ("bytes", "bytes_per_second"))


def test_no_two_raw_names_of_one_generation_meet_in_one_metric() -> None:
    """Within a table two raw names may share a metric only as renamings of each other, never in the InfiniBand tables."""
    for table in TABLES:
        if table.interface in ("counters", "counters_ext") or table.interface.startswith("pma:"):
            names = [e if isinstance(e, str) else e.metric for e in table.names.values()]
            assert len(names) == len(set(names)), table.interface


@pytest.mark.parametrize(
    ("driver", "interface", "raw", "name", "unit", "width", "sticky", "priority"),
    [
        ("mlx5_core", "counters", "port_xmit_data", "port_transmit_data_bytes", "bytes", 64, True, None),
        ("mlx5_core", "counters", "port_xmit_wait", "port_transmit_wait", "ticks", 32, True, None),
        ("mlx5_core", "counters", "symbol_error", "symbol_error", "errors", 16, True, None),
        ("mlx5_core", "counters", "link_downed", "link_downed", "events", 8, True, None),
        (
            "mlx5_core",
            "counters",
            "local_link_integrity_errors",
            "local_link_integrity_errors",
            "events",
            4,
            True,
            None,
        ),
        ("", "pma:0x12", "PortXmitData", "port_transmit_data_bytes", "bytes", 32, True, None),
        ("", "pma:0x1d", "PortXmitWait", "port_transmit_wait", "ticks", 64, True, None),
        ("", "pma:0x16", "PortSwHOQLifetimeLimitDiscards", "transmit_hoq_lifetime_discards", "packets", 16, True, None),
        ("", "pma:0x15", "PortDLIDMappingErrors", "receive_dlid_mapping_errors", "errors", 16, True, None),
        ("", "pma:0x1c", "PortVLXmitWait7", "vl_transmit_wait", "ticks", 16, True, 7),
        ("", "pma:0x36", "XmtDataSL15", "sl_transmit_data_bytes", "bytes", 32, True, 15),
        ("mlx5_core", "hw_counters", "np_cnp_sent", "rdma_transmit_cnp_packets", "packets", 64, False, None),
        ("mlx5_core", "hw_counters", "out_of_sequence", "rdma_receive_out_of_sequence", "packets", 32, False, None),
        ("mlx5_core", "hw_counters", "vport_out_of_buffer", "rdma_no_receive_buffer", "packets", 32, False, None),
        ("mlx4_core", "hw_counters", "rq_num_oos", "rdma_receive_out_of_sequence", "packets", 32, False, None),
        ("bnxt_en", "hw_counters", "tx_cnp_pkts", "rdma_transmit_cnp_packets", "packets", 64, False, None),
        ("bnxt_en", "hw_counters", "np_cnp_pkts", "rdma_transmit_cnp_packets", "packets", 64, False, None),
        ("bnxt_re", "hw_counters", "np_cnp_sent", "rdma_transmit_cnp_packets", "packets", 64, False, None),
        ("ice", "hw_counters", "RxECNMrkd", "rdma_receive_ecn_marked_packets", "packets", 64, False, None),
        ("ionic", "hw_counters", "resp_rx_outouf_seq", "rdma_receive_out_of_sequence", "packets", 64, False, None),
        ("efa", "hw_counters", "rdma_write_recv_bytes", "rdma_write_receive_bytes", "bytes", 64, False, None),
        ("rxe", "hw_counters", "sent_pkts", "rdma_transmit_packets", "packets", 64, False, None),
        ("hns3", "hw_counters", "rx_cnp_pkt", "rdma_receive_cnp_packets", "packets", 64, False, None),
        ("erdma", "hw_counters", "tx_bytes_cnt", "rdma_transmit_bytes", "bytes", 64, False, None),
        ("mlx5_core", "ethtool", "rx_prio3_pause", "pfc_receive_frames", "frames", 64, False, 3),
        ("mlx5_core", "ethtool", "rx_prio3_pause_duration", "pfc_receive_pause_duration", "ns", 64, False, 3),
        (
            "mlx5_core",
            "ethtool",
            "tx_pause_storm_warning_events ",
            "pfc_storm_warning_events",
            "events",
            64,
            False,
            None,
        ),
        ("mlx5_core", "ethtool", "rx_prio0_marked", "priority_receive_marked_packets", "packets", 64, False, 0),
        ("bnxt_en", "ethtool", "pfc_pri5_tx_duration_us", "pfc_transmit_pause_duration", "ns", 64, False, 5),
        ("bnxt_en", "ethtool", "rx_pfc_ena_frames_pri0", "pfc_receive_frames", "frames", 64, False, 0),
        ("ice", "ethtool", "rx_priority_3_xoff.nic", "pfc_receive_frames", "frames", 64, False, 3),
        ("ice", "ethtool", "port-tx-xoff_prio-4_events", "pfc_transmit_frames", "frames", 64, False, 4),
        ("ionic", "ethtool", "frames_rx_pri_3", "priority_receive_packets", "packets", 64, False, 3),
        ("mlx5_core", "dcb", "requests3", "pfc_transmit_frames", "frames", 64, False, 3),
        ("ixgbe", "dcb", "requests3", "pfc_receive_frames", "frames", 64, False, 3),
        ("kvx", "dcb", "indications0", "pfc_transmit_frames", "frames", 64, False, 0),
        ("somebody", "dcb", "requests3", "pfc_requests", "frames", 64, False, 3),
        ("", "netstat", "InCEPkts", "ip_receive_ce_packets", "packets", 64, False, None),
    ],
)
def test_lookup(
    driver: str, interface: str, raw: str, name: str, unit: str, width: int, sticky: bool, priority: int | None
) -> None:
    d = lookup(driver, interface, raw)
    assert (d.name, d.unit, d.width, d.sticky, d.priority) == (name, unit, width, sticky, priority)
    assert d.known and d.raw == raw and d.source and d.help


def test_words_become_bytes_and_microseconds_nanoseconds() -> None:
    assert scaled(lookup("mlx5_core", "counters", "port_xmit_data"), 25) == 100
    assert scaled(lookup("mlx5_core", "ethtool", "rx_prio3_pause_duration"), 7) == 7000
    # these count plain bytes
    for driver, raw in (("efa", "tx_bytes"), ("bnxt_en", "tx_bytes"), ("ionic", "tx_rdma_ucast_bytes")):
        assert scaled(lookup(driver, "hw_counters", raw), 25) == 25


def test_only_port_data_counters_are_words() -> None:
    for table in TABLES:
        for raw, entry in table.names.items():
            if not isinstance(entry, str) and entry.scale == 4:
                assert "data" in raw.lower(), raw


@given(st.sampled_from(["port_xmit_wait", "symbol_error", "link_downed", "excessive_buffer_overrun_errors"]), st.data())
def test_saturation(raw: str, data: st.DataObject) -> None:
    d = lookup("", "counters", raw)
    top = (1 << d.width) - 1
    value = data.draw(st.integers(0, top))
    assert saturated(d, value) == (value == top)
    assert (value < d.limit) == (value != top)


def test_wrapping_counters_never_saturate() -> None:
    d = lookup("mlx5_core", "hw_counters", "out_of_sequence")
    assert not saturated(d, 2**32 - 1)
    assert d.limit > 2**40


def test_a_constant_zero_is_not_an_observation() -> None:
    assert not lookup("hfi1", "counters", "symbol_error").observable
    assert lookup("mlx5_core", "counters", "symbol_error").observable


@given(
    st.text(max_size=40),
    st.sampled_from(["counters", "hw_counters", "ethtool", "pma:0x12", "nonsense"]),
    st.text(max_size=60),
)
def test_any_name_passes_through(driver: str, interface: str, raw: str) -> None:
    d = lookup(driver, interface, raw)
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", d.name)
    assert d.known or d.unit == ""


def test_omni_path_widths() -> None:
    d = lookup("hfi1", "hw_counters", "RxBufOvfl,32")
    assert (d.name, d.width, d.unit, d.known) == ("rxbufovfl", 32, "", False)
    assert lookup("hfi1", "hw_counters", "TxWords").width == 64


def test_exposition_uses_base_units() -> None:
    assert exposed("pfc_receive_pause_duration", "ns") == ("pfc_receive_pause_duration_seconds", 1e-9)
    assert exposed("port_receive_data_bytes", "bytes") == ("port_receive_data_bytes", 1.0)
    assert metric("never_heard_of").unit == ""
