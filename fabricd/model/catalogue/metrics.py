"""The canonical counters: one name, unit and meaning for what every vendor, driver and kernel generation calls its own way.

Names follow Prometheus habits without the ``fabricd_`` prefix and the ``_total`` suffix. A unit of time is not part of the
name: durations are integers of nanoseconds here, and the exposition appends ``_seconds`` (:func:`fabricd.model.catalogue.exposed`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MetricKind = Literal["counter", "gauge", "state"]


class Metric(NamedTuple):
    """One canonical counter or gauge. ``unit`` is that of the value on the wire."""

    name: str
    unit: str
    help: str
    kind: MetricKind = "counter"


def _metrics(kind: MetricKind, text: str) -> list[Metric]:
    rows = (line.split("|") for line in text.strip().splitlines() if line.strip())
    return [Metric(name.strip(), unit.strip(), words.strip(), kind) for name, unit, words in rows]


# Port counters of the InfiniBand architecture: PortCounters, PortCountersExtended and the optional groups. sysfs shows the same.
_INFINIBAND = """
port_transmit_data_bytes | bytes | Bytes sent by the port, headers included, link packets excluded
port_receive_data_bytes | bytes | Bytes received by the port, headers included, link packets excluded
port_transmit_packets | packets | Packets sent by the port
port_receive_packets | packets | Packets received by the port
port_unicast_transmit_packets | packets | Unicast packets sent by the port
port_unicast_receive_packets | packets | Unicast packets received by the port
port_multicast_transmit_packets | packets | Multicast packets sent by the port
port_multicast_receive_packets | packets | Multicast packets received by the port
port_transmit_wait | ticks | Ticks in which the port had data to send and sent none, for lack of credits or of arbitration
symbol_error | errors | Minor link errors on the physical lanes
link_error_recovery | events | Times the port trained itself out of a link error successfully
link_downed | events | Times link error recovery failed and the link went down
port_receive_errors | errors | Packets received with an error
port_receive_remote_physical_errors | errors | Packets received with the end-bad-packet delimiter: damaged further up the path
port_receive_switch_relay_errors | errors | Packets received that the switch could not relay
port_transmit_discards | packets | Packets not sent because the port was down or congested, head-of-queue lifetime included
port_transmit_constraint_errors | errors | Packets not sent because of partition or raw filtering
port_receive_constraint_errors | errors | Packets received and dropped because of partition or raw filtering
local_link_integrity_errors | events | Times the count of local physical errors passed its threshold
excessive_buffer_overrun_errors | events | Times consecutive flow control periods each had an overrun
vl15_dropped | packets | Subnet management packets dropped for lack of a buffer
qp1_dropped | packets | General management packets dropped for lack of a buffer
receive_local_physical_errors | errors | Received packets with a CRC, length or delimiter error of this link
receive_malformed_packet_errors | errors | Received packets with a wrong header: virtual lane, length or version
receive_buffer_overrun_errors | errors | Received packets dropped because the input buffer was full
receive_dlid_mapping_errors | errors | Received packets whose destination LID leads nowhere
receive_vl_mapping_errors | errors | Received packets whose service level maps to no usable lane
receive_looping_errors | errors | Received packets that would leave by the port they came in
transmit_inactive_discards | packets | Packets dropped because the egress port was not active
transmit_neighbor_mtu_discards | packets | Packets dropped because they exceed the neighbour's MTU
transmit_lifetime_discards | packets | Packets dropped because the switch lifetime limit passed
transmit_hoq_lifetime_discards | packets | Packets dropped because they stood at the head of a queue past the limit
vl_transmit_wait | ticks | Ticks in which one virtual lane had data to send and sent none
vl_congestion_events | events | Times this virtual lane of the switch port was a point of congestion
receive_fecn_packets | packets | Packets received with the forward congestion mark
receive_becn_packets | packets | Packets received with the backward congestion mark
sl_receive_fecn_packets | packets | Packets of one service level received with the forward congestion mark
sl_receive_becn_packets | packets | Packets of one service level received with the backward congestion mark
transmit_congestion_time | ticks | Time the port was in the congestion state, in the unit of its ASIC
vl_transmit_congestion_time | ticks | Time one virtual lane was in the congestion state, in the unit of its ASIC
sl_transmit_data_bytes | bytes | Bytes sent on one service level
sl_receive_data_bytes | bytes | Bytes received on one service level
vl_transmit_packets | packets | Packets sent on one virtual lane
vl_transmit_data_bytes | bytes | Bytes sent on one virtual lane
transmit_flow_control_packets | packets | Flow control packets sent
receive_flow_control_packets | packets | Flow control packets received
vl_flow_control_update_errors | errors | Flow control updates of one virtual lane that were late
sync_header_errors | errors | Blocks received with a wrong synchronisation header
unknown_blocks | errors | Blocks received of an unknown type
fec_correctable_blocks | blocks | Blocks with errors that forward error correction mended
fec_uncorrectable_blocks | blocks | Blocks with errors that forward error correction could not mend
fec_corrected_symbols | symbols | Symbols mended by forward error correction
"""

# What a RoCE port shows by priority and for the whole port. "receive pause": the peer paused us; "transmit pause": we paused it.
_ETHERNET = """
pfc_receive_frames | frames | Priority pause frames received: the peer asked this port to stop
pfc_transmit_frames | frames | Priority pause frames sent: this port asked the peer to stop
pfc_receive_pause_duration | ns | Time this port did not send because of received pause
pfc_transmit_pause_duration | ns | Time this port asked the peer not to send
pfc_receive_pause_transitions | events | Changes between paused and running because of received pause
pfc_transmit_pause_transitions | events | Changes between paused and running of the peer because of sent pause
pfc_receive_resume_frames | frames | Priority frames received that end a pause
pfc_transmit_resume_frames | frames | Priority frames sent that end a pause
pfc_requests | frames | Priority pause requests as the driver counts them; its direction is not known
pfc_indications | frames | Priority pause indications as the driver counts them; its direction is not known
pfc_storm_warning_events | events | Times the device sent pause for longer than its first threshold
pfc_storm_error_events | events | Times the device sent pause for too long and then withheld it
pause_receive_frames | frames | Pause frames of any kind received by the MAC
pause_transmit_frames | frames | Pause frames of any kind sent by the MAC
global_pause_receive_frames | frames | Link pause (802.3x) frames received
global_pause_transmit_frames | frames | Link pause (802.3x) frames sent
global_pause_receive_duration | ns | Time this port did not send because of received link pause
global_pause_transmit_duration | ns | Time this port asked the peer not to send by link pause
global_pause_receive_transitions | events | Changes between paused and running because of received link pause
priority_receive_bytes | bytes | Bytes received with this priority
priority_transmit_bytes | bytes | Bytes sent with this priority
priority_receive_packets | packets | Packets received with this priority
priority_transmit_packets | packets | Packets sent with this priority
priority_receive_discards | packets | Packets of this priority discarded on receipt, for any reason
priority_receive_buffer_discards | packets | Packets of this priority dropped for lack of a receive buffer
priority_receive_congestion_discards | packets | Packets of this priority dropped by congestion management (WRED)
priority_receive_marked_packets | packets | Packets of this priority marked as congested by the adapter
physical_receive_discards | packets | Packets dropped at the physical port for lack of a receive buffer
physical_transmit_discards | packets | Packets dropped at the physical port before sending, head-of-line lifetime included
physical_receive_bytes | bytes | Bytes received by the physical port
physical_transmit_bytes | bytes | Bytes sent by the physical port
physical_receive_packets | packets | Packets received by the physical port
physical_transmit_packets | packets | Packets sent by the physical port
physical_receive_crc_errors | errors | Frames received with a bad check sum
physical_receive_symbol_errors | errors | Symbol errors of the physical port
physical_receive_corrected_bits | bits | Bits mended by forward error correction
link_down_events | events | Times the physical link went down
receive_buffer_threshold_events | events | Times the port's receive buffer passed its threshold
receive_ecn_marked_packets | packets | Packets with the congestion mark seen by the network stack
receive_out_of_buffer_packets | packets | Packets dropped because the receive ring had no buffer
pcie_stalled_read_events | events | Seconds in which PCIe reads were stalled for more than the limit
pcie_stalled_write_events | events | Seconds in which PCIe writes were stalled for more than the limit
vport_rdma_receive_bytes | bytes | RDMA bytes received by this function
vport_rdma_transmit_bytes | bytes | RDMA bytes sent by this function
vport_rdma_receive_packets | packets | RDMA packets received by this function
vport_rdma_transmit_packets | packets | RDMA packets sent by this function
netdev_receive_bytes | bytes | Bytes received by the network interface
netdev_transmit_bytes | bytes | Bytes sent by the network interface
netdev_receive_packets | packets | Packets received by the network interface
netdev_transmit_packets | packets | Packets sent by the network interface
netdev_receive_errors | errors | Receive errors of the network interface
netdev_transmit_errors | errors | Transmit errors of the network interface
netdev_receive_drops | packets | Packets the network interface received and dropped
netdev_transmit_drops | packets | Packets the network interface dropped before sending
ip_receive_ce_packets | packets | IP packets received with congestion experienced
ip_receive_ect0_packets | packets | IP packets received with ECT(0)
ip_receive_ect1_packets | packets | IP packets received with ECT(1)
ip_receive_not_ect_packets | packets | IP packets received without ECN capability
"""

# What a switch tells of its egress queues by SNMP.
_QUEUES = """
queue_drops | packets | Packets of an egress queue dropped, for any reason
queue_wred_drops | packets | Packets of an egress queue dropped by random early detection
queue_marked_packets | packets | Packets of an egress queue sent with the congestion mark
"""

# RDMA transport counters of the device: congestion notification, losses, retries, errors.
_RDMA = """
rdma_transmit_bytes | bytes | RDMA bytes sent
rdma_receive_bytes | bytes | RDMA bytes received
rdma_transmit_packets | packets | RDMA packets sent
rdma_receive_packets | packets | RDMA packets received
rdma_read_bytes | bytes | Bytes read by RDMA read
rdma_write_bytes | bytes | Bytes written by RDMA write
rdma_send_bytes | bytes | Bytes sent by send requests
rdma_receive_request_bytes | bytes | Bytes received into posted receives
rdma_read_response_bytes | bytes | Bytes answered to RDMA reads of the peer
rdma_write_receive_bytes | bytes | Bytes received by RDMA writes of the peer
rdma_receive_ecn_marked_packets | packets | RoCE packets received with congestion experienced (notification point)
rdma_transmit_cnp_packets | packets | Congestion notification packets sent (notification point)
rdma_receive_cnp_packets | packets | Congestion notification packets received and used to throttle (reaction point)
rdma_receive_cnp_ignored_packets | packets | Congestion notification packets received and not used
rdma_receive_icrc_errors | errors | RoCE packets received with a bad invariant CRC
rdma_receive_out_of_sequence | packets | Packets received out of order
rdma_receive_sequence_naks | packets | Negative acknowledgements for a sequence error received
rdma_implied_naks | events | Acknowledgements that skipped a read or atomic response
rdma_ack_timeouts | events | Acknowledgement timers that expired
rdma_rnr_naks | packets | Receiver-not-ready answers received
rdma_transmit_rnr_naks | packets | Receiver-not-ready answers sent
rdma_duplicate_requests | requests | Requests received again
rdma_no_receive_buffer | packets | Packets dropped because no receive was posted
rdma_retransmitted_packets | packets | Packets sent again
rdma_retransmitted_bytes | bytes | Bytes sent again
rdma_retry_exceeded | events | Queue pairs that gave up after retries
rdma_rnr_retry_exceeded | events | Queue pairs that gave up because the receiver stayed unready
rdma_receive_drops | packets | RDMA packets received and dropped
rdma_receive_errors | errors | RDMA packets received with an error
rdma_transmit_errors | errors | RDMA requests that failed locally
rdma_transmit_drops | packets | RDMA packets dropped before sending
rdma_receive_good_packets | packets | RDMA packets received without error
rdma_receive_good_bytes | bytes | RDMA bytes received without error
rdma_requester_completion_errors | errors | Requester completions in error
rdma_responder_completion_errors | errors | Responder completions in error
rdma_requester_flush_errors | errors | Requester completions flushed because the queue pair failed
rdma_responder_flush_errors | errors | Responder completions flushed because the queue pair failed
rdma_requester_remote_access_errors | errors | Requests of this node that the remote memory protection refused
rdma_responder_remote_access_errors | errors | Requests of others that this node's memory protection refused
rdma_requester_invalid_request_errors | errors | Requests of this node that the remote end found invalid
rdma_responder_length_errors | errors | Received requests longer than the buffer posted for them
rdma_requester_retries | events | Times the requester went back to resend
rdma_sends_completed | requests | Send requests completed
rdma_receives_completed | requests | Receive requests completed
rdma_write_requests | requests | RDMA write requests received
rdma_read_requests | requests | RDMA read requests received
rdma_atomic_requests | requests | Atomic requests received
rdma_send_requests | requests | Send requests received
rdma_dct_connects | requests | Connection requests of dynamically connected transport received
rdma_adaptive_retransmissions | events | Adaptive retransmissions
rdma_adaptive_retransmission_timeouts | events | Timeouts that led to adaptive retransmission
rdma_slow_restarts | events | Times slow restart was used
rdma_slow_restart_cnps | packets | Congestion notification packets made by slow restart
rdma_slow_restart_transitions | events | State changes of slow restart
rdma_impaired_connections | events | Connections found impaired
rdma_unresponsive_remotes | events | Times the remote end did not answer
rdma_links_downed | events | RDMA link down events
"""

# The node agent about itself.
_AGENT_COUNTERS = """
agent_intervals_skipped | intervals | Intervals the agent let pass because the one before took too long
agent_rejects | events | Files, devices and values the agent refused
agent_spool_dropped_frames | frames | Frames dropped because the spool was full
agent_reconnects | events | Times the connection to the broker was made again
"""
_AGENT_GAUGES = """
agent_read_duration | ns | Time one reading of all counters took
agent_lateness | ns | How long after its due time the last reading began
agent_spool_frames | frames | Frames on disk that are not yet stored by the aggregator
"""

_STATES = """
port_state | state | Logical state of the port: 1 down, 2 initialising, 3 armed, 4 active, 5 active deferred
port_physical_state | state | Physical state of the port: 1 sleep, 2 polling, 3 disabled, 4 training, 5 up, 6 recovering, 7 test
pfc_enabled | state | Whether priority flow control is on for this priority: 1 on, 0 off
"""

_GAUGES = """
queue_depth | bytes | Bytes waiting in the egress queue of a priority when it was read
link_rate | bytes_per_second | Data rate of the link as configured now
pcie_stalled_read | percent | Share of time PCIe reads were stalled
pcie_stalled_write | percent | Share of time PCIe writes were stalled
ets_bandwidth | percent | Share of the link promised to this traffic class
rdma_active_queue_pairs | objects | Queue pairs in use
rdma_active_completion_queues | objects | Completion queues in use
rdma_active_shared_receive_queues | objects | Shared receive queues in use
rdma_active_memory_regions | objects | Memory regions in use
rdma_active_memory_windows | objects | Memory windows in use
rdma_active_protection_domains | objects | Protection domains in use
rdma_active_address_handles | objects | Address handles in use
"""

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *_metrics("counter", _INFINIBAND),
        *_metrics("counter", _ETHERNET),
        *_metrics("counter", _QUEUES),
        *_metrics("counter", _RDMA),
        *_metrics("counter", _AGENT_COUNTERS),
        *_metrics("gauge", _AGENT_GAUGES),
        *_metrics("state", _STATES),
        *_metrics("gauge", _GAUGES),
    )
}
