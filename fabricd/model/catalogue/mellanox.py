"""NVIDIA (Mellanox) ConnectX and BlueField: mlx5 and mlx4.

Facts: Linux drivers/infiniband/hw/mlx5/counters.c and Documentation/networking/.../mlx5/counters.rst; the queue counters are
32-bit in firmware and wrap although sysfs prints 64 bits, the congestion group is 64-bit.
"""

from __future__ import annotations

from fabricd.model.catalogue.base import MICROSECOND, Alias, Table, pattern

MLX5 = ("mlx5_core", "mlx5_ib", "mlx5")
MLX4 = ("mlx4_core", "mlx4_ib", "mlx4_en", "mlx4")

_CONGESTION = {
    "np_ecn_marked_roce_packets": "rdma_receive_ecn_marked_packets",
    "np_cnp_sent": "rdma_transmit_cnp_packets",
    "rp_cnp_handled": "rdma_receive_cnp_packets",
    "rp_cnp_ignored": "rdma_receive_cnp_ignored_packets",
    "rx_icrc_encapsulated": "rdma_receive_icrc_errors",
    # optional counters, in netlink only
    "cc_rx_ce_pkts": "rdma_receive_ecn_marked_packets",
    "cc_rx_cnp_pkts": "rdma_receive_cnp_packets",
    "cc_tx_cnp_pkts": "rdma_transmit_cnp_packets",
    "rdma_tx_packets": "rdma_transmit_packets",
    "rdma_rx_packets": "rdma_receive_packets",
    "rdma_tx_bytes": "rdma_transmit_bytes",
    "rdma_rx_bytes": "rdma_receive_bytes",
}

_QUEUE = {
    "out_of_sequence": "rdma_receive_out_of_sequence",
    "packet_seq_err": "rdma_receive_sequence_naks",
    "implied_nak_seq_err": "rdma_implied_naks",
    "local_ack_timeout_err": "rdma_ack_timeouts",
    "rnr_nak_retry_err": "rdma_rnr_naks",
    "duplicate_request": "rdma_duplicate_requests",
    "out_of_buffer": "rdma_no_receive_buffer",
    "rx_write_requests": "rdma_write_requests",
    "rx_read_requests": "rdma_read_requests",
    "rx_atomic_requests": "rdma_atomic_requests",
    "rx_dct_connect": "rdma_dct_connects",
    "req_cqe_error": "rdma_requester_completion_errors",
    "resp_cqe_error": "rdma_responder_completion_errors",
    "req_cqe_flush_error": "rdma_requester_flush_errors",
    "resp_cqe_flush_error": "rdma_responder_flush_errors",
    "req_remote_access_errors": "rdma_requester_remote_access_errors",
    "resp_remote_access_errors": "rdma_responder_remote_access_errors",
    "req_remote_invalid_request": "rdma_requester_invalid_request_errors",
    "resp_local_length_error": "rdma_responder_length_errors",
    "req_transport_retries_exceeded": "rdma_retry_exceeded",
    "req_rnr_retries_exceeded": "rdma_rnr_retry_exceeded",
    "roce_adp_retrans": "rdma_adaptive_retransmissions",
    "roce_adp_retrans_to": "rdma_adaptive_retransmission_timeouts",
    "roce_slow_restart": "rdma_slow_restarts",
    "roce_slow_restart_cnps": "rdma_slow_restart_cnps",
    "roce_slow_restart_trans": "rdma_slow_restart_transitions",
}

# A switchdev function's queue counters carry the prefix of its virtual port.
_HW = (
    {raw: Alias(name, 64) for raw, name in _CONGESTION.items()}
    | {raw: Alias(name, 32) for raw, name in _QUEUE.items()}
    | {f"vport_{raw}": Alias(name, 32) for raw, name in _QUEUE.items()}
)

_MLX4_HW = {
    "rq_num_oos": "rdma_receive_out_of_sequence",
    "sq_num_oos": "rdma_receive_sequence_naks",
    "rq_num_dup": "rdma_duplicate_requests",
    "sq_num_to": "rdma_ack_timeouts",
    "sq_num_rnr": "rdma_rnr_naks",
    "rq_num_rnr": "rdma_transmit_rnr_naks",
    "sq_num_tree": "rdma_retry_exceeded",
    "sq_num_rree": "rdma_rnr_retry_exceeded",
    "rq_num_rae": "rdma_responder_remote_access_errors",
    "sq_num_rae": "rdma_requester_remote_access_errors",
    "rq_num_udsdprd": "rdma_no_receive_buffer",
    "sq_num_rire": "rdma_requester_invalid_request_errors",
    "rq_num_lle": "rdma_responder_length_errors",
}

_MLX5_ETHTOOL: dict[str, Alias | str] = {
    "rx_global_pause": "global_pause_receive_frames",
    "tx_global_pause": "global_pause_transmit_frames",
    "rx_global_pause_duration": Alias("global_pause_receive_duration", scale=MICROSECOND),
    "tx_global_pause_duration": Alias("global_pause_transmit_duration", scale=MICROSECOND),
    "rx_global_pause_transition": "global_pause_receive_transitions",
    "tx_pause_storm_warning_events": "pfc_storm_warning_events",
    "tx_pause_storm_error_events": "pfc_storm_error_events",
    "rx_pause_ctrl_phy": "pause_receive_frames",
    "tx_pause_ctrl_phy": "pause_transmit_frames",
    "rx_discards_phy": "physical_receive_discards",
    "tx_discards_phy": "physical_transmit_discards",
    "rx_bytes_phy": "physical_receive_bytes",
    "tx_bytes_phy": "physical_transmit_bytes",
    "rx_packets_phy": "physical_receive_packets",
    "tx_packets_phy": "physical_transmit_packets",
    "rx_crc_errors_phy": "physical_receive_crc_errors",
    "rx_symbol_err_phy": "physical_receive_symbol_errors",
    "rx_corrected_bits_phy": "physical_receive_corrected_bits",
    "link_down_events_phy": "link_down_events",
    "rx_buffer_passed_thres_phy": "receive_buffer_threshold_events",
    "outbound_pci_stalled_rd": "pcie_stalled_read",
    "outbound_pci_stalled_wr": "pcie_stalled_write",
    "outbound_pci_stalled_rd_events": "pcie_stalled_read_events",
    "outbound_pci_stalled_wr_events": "pcie_stalled_write_events",
    "rx_out_of_buffer": "receive_out_of_buffer_packets",
    "rx_ecn_mark": "receive_ecn_marked_packets",
    "rx_vport_rdma_unicast_bytes": "vport_rdma_receive_bytes",
    "tx_vport_rdma_unicast_bytes": "vport_rdma_transmit_bytes",
    "rx_vport_rdma_unicast_packets": "vport_rdma_receive_packets",
    "tx_vport_rdma_unicast_packets": "vport_rdma_transmit_packets",
}

_PRIORITY = (
    pattern(r"rx_prio([0-7])_pause", "pfc_receive_frames"),
    pattern(r"tx_prio([0-7])_pause", "pfc_transmit_frames"),
    pattern(r"rx_prio([0-7])_bytes", "priority_receive_bytes"),
    pattern(r"tx_prio([0-7])_bytes", "priority_transmit_bytes"),
    pattern(r"rx_prio([0-7])_packets", "priority_receive_packets"),
    pattern(r"tx_prio([0-7])_packets", "priority_transmit_packets"),
    pattern(r"rx_prio([0-7])_pause_duration", "pfc_receive_pause_duration", scale=MICROSECOND),
    pattern(r"tx_prio([0-7])_pause_duration", "pfc_transmit_pause_duration", scale=MICROSECOND),
    pattern(r"rx_prio([0-7])_pause_transition", "pfc_receive_pause_transitions"),
    pattern(r"tx_prio([0-7])_pause_transition", "pfc_transmit_pause_transitions"),
    pattern(r"rx_prio([0-7])_buf_discard", "priority_receive_buffer_discards"),
    pattern(r"rx_prio([0-7])_cong_discard", "priority_receive_congestion_discards"),
    pattern(r"rx_prio([0-7])_marked", "priority_receive_marked_packets"),
    pattern(r"rx_prio([0-7])_discards", "priority_receive_discards"),
)

_DOC = "Linux Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst"

_MLX4_ETHTOOL: dict[str, Alias | str] = {
    "rx_pause": "global_pause_receive_frames",
    "tx_pause": "global_pause_transmit_frames",
    "rx_pause_duration": Alias("global_pause_receive_duration", scale=MICROSECOND),
    "tx_pause_duration": Alias("global_pause_transmit_duration", scale=MICROSECOND),
    "rx_pause_transition": "global_pause_receive_transitions",
}

TABLES = (
    Table(MLX5, "hw_counters", "Linux drivers/infiniband/hw/mlx5/counters.c", _HW),
    Table(MLX5, "ethtool", _DOC, _MLX5_ETHTOOL, _PRIORITY, scope="netdev"),
    Table(MLX4, "hw_counters", "Linux drivers/infiniband/hw/mlx4/main.c", _MLX4_HW, width=32),
    Table(
        MLX4,
        "ethtool",
        "Linux drivers/net/ethernet/mellanox/mlx4/en_ethtool.c",
        _MLX4_ETHTOOL,
        (
            pattern(r"rx_pause_prio_([0-7])", "pfc_receive_frames"),
            pattern(r"tx_pause_prio_([0-7])", "pfc_transmit_frames"),
            pattern(r"rx_pause_duration_prio_([0-7])", "pfc_receive_pause_duration", scale=MICROSECOND),
            pattern(r"tx_pause_duration_prio_([0-7])", "pfc_transmit_pause_duration", scale=MICROSECOND),
            pattern(r"rx_pause_transition_prio_([0-7])", "pfc_receive_pause_transitions"),
            pattern(r"tx_pause_transition_prio_([0-7])", "pfc_transmit_pause_transitions"),
            pattern(r"rx_prio_([0-7])_packets", "priority_receive_packets"),
            pattern(r"tx_prio_([0-7])_packets", "priority_transmit_packets"),
            pattern(r"rx_prio_([0-7])_bytes", "priority_receive_bytes"),
            pattern(r"tx_prio_([0-7])_bytes", "priority_transmit_bytes"),
        ),
        scope="netdev",
    ),
)
