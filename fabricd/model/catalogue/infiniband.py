"""InfiniBand port counters: sysfs ``counters/`` and the performance management attributes (PMA) of a MAD.

Widths and stickiness: IBTA performance management, as libibmad's field table and the kernel's ``core/sysfs.c`` lay them out.
Raw PMA names are those that perfquery prints; lanes and service levels are appended as a number.
"""

from __future__ import annotations

from fabricd.model.catalogue.base import WORD, Alias, Pattern, Table, pattern

# raw PMA name, sysfs name, canonical name, bits in PortCounters (0x12)
_ERRORS = (
    ("SymbolErrorCounter", "symbol_error", "symbol_error", 16),
    ("LinkErrorRecoveryCounter", "link_error_recovery", "link_error_recovery", 8),
    ("LinkDownedCounter", "link_downed", "link_downed", 8),
    ("PortRcvErrors", "port_rcv_errors", "port_receive_errors", 16),
    ("PortRcvRemotePhysicalErrors", "port_rcv_remote_physical_errors", "port_receive_remote_physical_errors", 16),
    ("PortRcvSwitchRelayErrors", "port_rcv_switch_relay_errors", "port_receive_switch_relay_errors", 16),
    ("PortXmitDiscards", "port_xmit_discards", "port_transmit_discards", 16),
    ("PortXmitConstraintErrors", "port_xmit_constraint_errors", "port_transmit_constraint_errors", 8),
    ("PortRcvConstraintErrors", "port_rcv_constraint_errors", "port_receive_constraint_errors", 8),
    ("LocalLinkIntegrityErrors", "local_link_integrity_errors", "local_link_integrity_errors", 4),
    ("ExcessiveBufferOverrunErrors", "excessive_buffer_overrun_errors", "excessive_buffer_overrun_errors", 4),
    ("VL15Dropped", "VL15_dropped", "vl15_dropped", 16),
    ("PortXmitWait", "port_xmit_wait", "port_transmit_wait", 32),
)
_QP1 = ("QP1Dropped", "qp1_dropped", 16)

# raw PMA name, sysfs name, canonical name, scale
_TRAFFIC = (
    ("PortXmitData", "port_xmit_data", "port_transmit_data_bytes", WORD),
    ("PortRcvData", "port_rcv_data", "port_receive_data_bytes", WORD),
    ("PortXmitPkts", "port_xmit_packets", "port_transmit_packets", 1),
    ("PortRcvPkts", "port_rcv_packets", "port_receive_packets", 1),
)
_CAST = (
    ("PortUnicastXmitPkts", "unicast_xmit_packets", "port_unicast_transmit_packets", 1),
    ("PortUnicastRcvPkts", "unicast_rcv_packets", "port_unicast_receive_packets", 1),
    ("PortMulticastXmitPkts", "multicast_xmit_packets", "port_multicast_transmit_packets", 1),
    ("PortMulticastRcvPkts", "multicast_rcv_packets", "port_multicast_receive_packets", 1),
)

_SYSFS = {
    **{sysfs: Alias(name, bits, sticky=True) for _, sysfs, name, bits in _ERRORS},
    **{sysfs: Alias(name, 64, sticky=True, scale=scale) for _, sysfs, name, scale in (*_TRAFFIC, *_CAST)},
}

_SYSFS_SOURCE = "Linux drivers/infiniband/core/sysfs.c"
_PMA_SOURCE = "IBTA performance management; rdma-core libibmad/fields.c"


def _pma(attribute: str, names: dict[str, Alias], *patterns: Pattern) -> Table:
    return Table(("*",), f"pma:{attribute}", _PMA_SOURCE, names, patterns)


TABLES = (
    Table(("*",), "counters", _SYSFS_SOURCE, _SYSFS),
    # Before kernel 4.19 the 64-bit counters had a directory of their own with a suffix to each name.
    Table(
        ("*",),
        "counters_ext",
        _SYSFS_SOURCE,
        {f"{sysfs}_64": Alias(name, 64, sticky=True, scale=scale) for _, sysfs, name, scale in (*_TRAFFIC, *_CAST)},
    ),
    _pma(
        "0x12",
        {raw: Alias(name, bits, sticky=True) for raw, _, name, bits in _ERRORS}
        | {raw: Alias(name, 32, sticky=True, scale=scale) for raw, _, name, scale in _TRAFFIC}
        | {_QP1[0]: Alias(_QP1[1], _QP1[2], sticky=True)},
    ),
    _pma(
        "0x1d",
        {raw: Alias(name, 64, sticky=True) for raw, _, name, _ in _ERRORS}
        | {raw: Alias(name, 64, sticky=True, scale=scale) for raw, _, name, scale in (*_TRAFFIC, *_CAST)}
        | {_QP1[0]: Alias(_QP1[1], 64, sticky=True)},
    ),
    _pma(
        "0x15",
        {
            "PortLocalPhysicalErrors": Alias("receive_local_physical_errors", 16, sticky=True),
            "PortMalformedPktErrors": Alias("receive_malformed_packet_errors", 16, sticky=True),
            "PortBufferOverrunErrors": Alias("receive_buffer_overrun_errors", 16, sticky=True),
            "PortDLIDMappingErrors": Alias("receive_dlid_mapping_errors", 16, sticky=True),
            "PortVLMappingErrors": Alias("receive_vl_mapping_errors", 16, sticky=True),
            "PortLoopingErrors": Alias("receive_looping_errors", 16, sticky=True),
        },
    ),
    _pma(
        "0x16",
        {
            "PortInactiveDiscards": Alias("transmit_inactive_discards", 16, sticky=True),
            "PortNeighborMTUDiscards": Alias("transmit_neighbor_mtu_discards", 16, sticky=True),
            "PortSwLifetimeLimitDiscards": Alias("transmit_lifetime_discards", 16, sticky=True),
            "PortSwHOQLifetimeLimitDiscards": Alias("transmit_hoq_lifetime_discards", 16, sticky=True),
        },
    ),
    _pma(
        "0x18",
        {
            "PortXmitFlowPkts": Alias("transmit_flow_control_packets", 32, sticky=True),
            "PortRcvFlowPkts": Alias("receive_flow_control_packets", 32, sticky=True),
        },
    ),
    _pma("0x19", {}, pattern(r"PortVLOpPackets(\d+)", "vl_transmit_packets", width=16, sticky=True)),
    _pma("0x1a", {}, pattern(r"PortVLOpData(\d+)", "vl_transmit_data_bytes", width=32, sticky=True, scale=WORD)),
    _pma(
        "0x1b",
        {},
        pattern(r"PortVLXmitFlowCtlUpdateErrors(\d+)", "vl_flow_control_update_errors", width=2, sticky=True),
    ),
    _pma("0x1c", {}, pattern(r"PortVLXmitWait(\d+)", "vl_transmit_wait", width=16, sticky=True)),
    _pma(
        "0x1f",
        {
            "SyncHeaderErrorCounter": Alias("sync_header_errors", 16, sticky=True),
            "UnknownBlockCounter": Alias("unknown_blocks", 16, sticky=True),
            "PortFECCorrectableBlockCtr": Alias("fec_correctable_blocks", 32, sticky=True),
            "PortFECUncorrectableBlockCtr": Alias("fec_uncorrectable_blocks", 32, sticky=True),
            "PortFECCorrectedSymbolCtr": Alias("fec_corrected_symbols", 32, sticky=True),
        },
    ),
    _pma("0x30", {}, pattern(r"SWPortVLCongestion(\d+)", "vl_congestion_events", width=16, sticky=True)),
    _pma(
        "0x31",
        {
            "PortPktRcvFECN": Alias("receive_fecn_packets", 32, sticky=True),
            "PortPktRcvBECN": Alias("receive_becn_packets", 32, sticky=True),
        },
    ),
    _pma("0x32", {}, pattern(r"PortSLRcvFECN(\d+)", "sl_receive_fecn_packets", width=32, sticky=True)),
    _pma("0x33", {}, pattern(r"PortSLRcvBECN(\d+)", "sl_receive_becn_packets", width=32, sticky=True)),
    _pma("0x34", {"PortXmitTimeCong": Alias("transmit_congestion_time", 32, sticky=True)}),
    _pma("0x35", {}, pattern(r"PortVLXmitTimeCong(\d+)", "vl_transmit_congestion_time", width=32, sticky=True)),
    _pma("0x36", {}, pattern(r"XmtDataSL(\d+)", "sl_transmit_data_bytes", width=32, sticky=True, scale=WORD)),
    _pma("0x37", {}, pattern(r"RcvDataSL(\d+)", "sl_receive_data_bytes", width=32, sticky=True, scale=WORD)),
)
