"""AMD Pensando (ionic), Amazon (EFA), HiSilicon (hns), Alibaba (erdma), and the software devices rxe and siw."""

from __future__ import annotations

from fabricd.model.catalogue.base import MICROSECOND, Table, pattern

_IONIC = {
    "rx_rdma_ecn_pkts": "rdma_receive_ecn_marked_packets",
    "rx_rdma_cnp_pkts": "rdma_receive_cnp_packets",
    "tx_rdma_cnp_pkts": "rdma_transmit_cnp_packets",
    "rx_rdma_ucast_bytes": "rdma_receive_bytes",
    "tx_rdma_ucast_bytes": "rdma_transmit_bytes",
    "rx_rdma_ucast_pkts": "rdma_receive_packets",
    "tx_rdma_ucast_pkts": "rdma_transmit_packets",
    "tx_rdma_retx_pkts": "rdma_retransmitted_packets",
    "tx_rdma_retx_bytes": "rdma_retransmitted_bytes",
    "tx_rdma_ack_timeout": "rdma_ack_timeouts",
    "rx_rdma_mtu_discard_pkts": "rdma_receive_drops",
    "req_rx_pkt_seq_err": "rdma_receive_sequence_naks",
    "req_rx_impl_nak_seq_err": "rdma_implied_naks",
    "req_rx_rnr_retry_err": "rdma_rnr_naks",
    "req_tx_retry_excd_err": "rdma_retry_exceeded",
    "req_rx_rmt_acc_err": "rdma_requester_remote_access_errors",
    "req_rx_cqe_err": "rdma_requester_completion_errors",
    "req_rx_cqe_flush": "rdma_requester_flush_errors",
    "resp_rx_outof_buf": "rdma_no_receive_buffer",
    "resp_rx_outouf_seq": "rdma_receive_out_of_sequence",
    "resp_rx_dup_request": "rdma_duplicate_requests",
    "resp_rx_cqe_err": "rdma_responder_completion_errors",
    "resp_rx_cqe_flush": "rdma_responder_flush_errors",
    "resp_tx_rmt_acc_err": "rdma_responder_remote_access_errors",
    "resp_tx_rnr_retry_err": "rdma_transmit_rnr_naks",
}

_EFA = {
    "tx_bytes": "rdma_transmit_bytes",
    "tx_pkts": "rdma_transmit_packets",
    "rx_bytes": "rdma_receive_bytes",
    "rx_pkts": "rdma_receive_packets",
    "rx_drops": "rdma_receive_drops",
    "send_bytes": "rdma_send_bytes",
    "recv_bytes": "rdma_receive_request_bytes",
    "rdma_read_bytes": "rdma_read_bytes",
    "rdma_read_resp_bytes": "rdma_read_response_bytes",
    "rdma_write_bytes": "rdma_write_bytes",
    "rdma_write_recv_bytes": "rdma_write_receive_bytes",
    "retrans_bytes": "rdma_retransmitted_bytes",
    "retrans_pkts": "rdma_retransmitted_packets",
    "retrans_timeout_events": "rdma_ack_timeouts",
    "impaired_remote_conn_events": "rdma_impaired_connections",
    "unresponsive_remote_events": "rdma_unresponsive_remotes",
}

_HNS = {
    "rx_pkt": "rdma_receive_packets",
    "tx_pkt": "rdma_transmit_packets",
    "rx_err_pkt": "rdma_receive_errors",
    "tx_err_pkt": "rdma_transmit_errors",
    "rx_cnp_pkt": "rdma_receive_cnp_packets",
    "tx_cnp_pkt": "rdma_transmit_cnp_packets",
}

_ERDMA = {
    "tx_packets_cnt": "rdma_transmit_packets",
    "tx_bytes_cnt": "rdma_transmit_bytes",
    "rx_packets_cnt": "rdma_receive_packets",
    "rx_bytes_cnt": "rdma_receive_bytes",
    "rx_disable_drop_cnt": "rdma_receive_drops",
    "tx_disable_drop_cnt": "rdma_transmit_drops",
}

_SOFT = {
    "sent_pkts": "rdma_transmit_packets",
    "rcvd_pkts": "rdma_receive_packets",
    "sent_bytes": "rdma_transmit_bytes",
    "rcvd_bytes": "rdma_receive_bytes",
    "duplicate_request": "rdma_duplicate_requests",
    "out_of_seq_request": "rdma_receive_out_of_sequence",
    "rcvd_rnr_err": "rdma_rnr_naks",
    "send_rnr_err": "rdma_transmit_rnr_naks",
    "rcvd_seq_err": "rdma_receive_sequence_naks",
    "retry_exceeded_err": "rdma_retry_exceeded",
    "retry_rnr_exceeded_err": "rdma_rnr_retry_exceeded",
    "completer_retry_err": "rdma_requester_retries",
    "send_err": "rdma_transmit_errors",
    "link_downed": "rdma_links_downed",
    "rdma_sends": "rdma_sends_completed",
    "rdma_recvs": "rdma_receives_completed",
}

TABLES = (
    Table(("ionic", "ionic_rdma"), "hw_counters", "Linux drivers/infiniband/hw/ionic/ionic_hw_stats.c", _IONIC),
    Table(
        ("ionic", "ionic_rdma"),
        "ethtool",
        "Linux drivers/net/ethernet/pensando/ionic/ionic_stats.c",
        {"frames_rx_pripause": "pause_receive_frames", "frames_tx_pripause": "pause_transmit_frames"},
        (
            pattern(r"rx_pripause_([0-7])_1us_count", "pfc_receive_pause_duration", scale=MICROSECOND),
            pattern(r"tx_pripause_([0-7])_1us_count", "pfc_transmit_pause_duration", scale=MICROSECOND),
            # The names look like pause frames; they count data frames of the priority.
            pattern(r"frames_rx_pri_([0-7])", "priority_receive_packets"),
            pattern(r"frames_tx_pri_([0-7])", "priority_transmit_packets"),
        ),
        scope="netdev",
    ),
    Table(("efa",), "hw_counters", "Linux drivers/infiniband/hw/efa/efa_verbs.c", _EFA),
    Table(
        ("hns3", "hns_roce_hw_v2", "hns-roce-hw-v2", "hns"),
        "hw_counters",
        "Linux drivers/infiniband/hw/hns/hns_roce_main.c",
        _HNS,
    ),
    Table(
        ("hns3", "hinic", "hinic3"),
        "ethtool",
        "Linux drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_main.c",
        {"mac_rx_mac_pause_num": "global_pause_receive_frames", "mac_tx_mac_pause_num": "global_pause_transmit_frames"},
        (
            pattern(r"mac_rx_pfc_pri([0-7])_pkt_num", "pfc_receive_frames"),
            pattern(r"mac_tx_pfc_pri([0-7])_pkt_num", "pfc_transmit_frames"),
        ),
        scope="netdev",
    ),
    Table(("erdma",), "hw_counters", "Linux drivers/infiniband/hw/erdma/erdma_verbs.c", _ERDMA),
    Table(("rxe", "siw"), "hw_counters", "Linux drivers/infiniband/sw/rxe/rxe_hw_counters.c", _SOFT),
)
