"""Intel: irdma over ice or i40e, the Ethernet drivers themselves, and Omni-Path's hfi1."""

from __future__ import annotations

from fabricd.model.catalogue.base import Alias, Table, pattern

IRDMA = ("irdma", "ice", "i40e", "i40iw", "idpf", "iavf")

_HW = {
    "cnpSent": "rdma_transmit_cnp_packets",
    "cnpHandled": "rdma_receive_cnp_packets",
    "cnpIgnored": "rdma_receive_cnp_ignored_packets",
    "RxECNMrkd": "rdma_receive_ecn_marked_packets",
    "InRdmaWrites": "rdma_write_requests",
    "InRdmaReads": "rdma_read_requests",
    "InRdmaSends": "rdma_send_requests",
    "iwInRdmaWrites": "rdma_write_requests",
    "iwInRdmaReads": "rdma_read_requests",
    "iwInRdmaSends": "rdma_send_requests",
    "tcpRetransSegs": "rdma_retransmitted_packets",
}

# Drivers before the present names and those built outside the kernel put the direction and the priority elsewhere.
_ICE_PRIORITY = (
    pattern(r"rx_priority_([0-7])_xoff\.nic", "pfc_receive_frames"),
    pattern(r"tx_priority_([0-7])_xoff\.nic", "pfc_transmit_frames"),
    pattern(r"rx_priority_([0-7])_xon\.nic", "pfc_receive_resume_frames"),
    pattern(r"tx_priority_([0-7])_xon\.nic", "pfc_transmit_resume_frames"),
    pattern(r"port-rx-xoff_prio-([0-7])_events", "pfc_receive_frames"),
    pattern(r"port-tx-xoff_prio-([0-7])_events", "pfc_transmit_frames"),
    pattern(r"port-rx-xon_prio-([0-7])_events", "pfc_receive_resume_frames"),
    pattern(r"port-tx-xon_prio-([0-7])_events", "pfc_transmit_resume_frames"),
)
_I40E_PRIORITY = (
    pattern(r"port\.rx_priority_([0-7])_xoff", "pfc_receive_frames"),
    pattern(r"port\.tx_priority_([0-7])_xoff", "pfc_transmit_frames"),
    pattern(r"port\.rx_priority_([0-7])_xon", "pfc_receive_resume_frames"),
    pattern(r"port\.tx_priority_([0-7])_xon", "pfc_transmit_resume_frames"),
    pattern(r"port\.rx_priority_([0-7])_xon_2_xoff", "pfc_receive_pause_transitions"),
)
_LINK = {
    "link_xoff_rx": "global_pause_receive_frames",
    "link_xoff_tx": "global_pause_transmit_frames",
    "rx_crc_errors": "physical_receive_crc_errors",
}

TABLES = (
    # The driver adds the narrow hardware counters up in 64 bits.
    Table(IRDMA, "hw_counters", "Linux drivers/infiniband/hw/irdma/verbs.c", _HW),
    Table(
        ("ice",),
        "ethtool",
        "Linux drivers/net/ethernet/intel/ice/ice_ethtool.c",
        {f"{name}.nic": metric for name, metric in _LINK.items()},
        _ICE_PRIORITY,
        scope="netdev",
    ),
    Table(
        ("i40e",),
        "ethtool",
        "Linux drivers/net/ethernet/intel/i40e/i40e_ethtool.c",
        {f"port.{name}": metric for name, metric in _LINK.items()},
        _I40E_PRIORITY,
        scope="netdev",
    ),
    Table(
        ("ixgbe",),
        "ethtool",
        "Linux drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c",
        {
            "rx_flow_control_xoff": "global_pause_receive_frames",
            "tx_flow_control_xoff": "global_pause_transmit_frames",
        },
        (
            pattern(r"rx_pb_([0-7])_pxoff", "pfc_receive_frames"),
            pattern(r"tx_pb_([0-7])_pxoff", "pfc_transmit_frames"),
            pattern(r"rx_pb_([0-7])_pxon", "pfc_receive_resume_frames"),
            pattern(r"tx_pb_([0-7])_pxon", "pfc_transmit_resume_frames"),
        ),
        scope="netdev",
    ),
    # Omni-Path answers InfiniBand's port counters from its own; these two it has not, and says 0.
    Table(
        ("hfi1",),
        "counters",
        "Linux drivers/infiniband/hw/hfi1/mad.c",
        {
            "symbol_error": Alias("symbol_error", 16, sticky=True, observable=False),
            "VL15_dropped": Alias("vl15_dropped", 16, sticky=True, observable=False),
        },
    ),
)
