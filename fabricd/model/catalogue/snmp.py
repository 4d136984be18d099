"""Objects of switches' SNMP agents, by their MIB names; where a MIB's own name is unwieldy, by vendor and column.

A priority is an index there, so it is not part of these names. Which agent has which object: ``devices/profiles``.
"""

from __future__ import annotations

from fabricd.model.catalogue.base import Alias, Table

MILLISECOND = 1_000_000  # Onyx counts pause time in milliseconds

_SWITCH = Table(
    drivers=("switch",),
    interface="snmp",
    source="IF-MIB, EtherLike-MIB, IEEE8021-PFC-MIB, CISCO-PFC-EXT-MIB, MELLANOX-QOS-MIB, ARISTA-PFC-MIB, ARISTA-ECN-COUNTER-MIB, "
    "JUNIPER-COS-MIB, FASTPATH-QOS-COS-MIB",
    names={
        "aristaPfcRequests": "pfc_transmit_frames",
        "aristaPfcIndications": "pfc_receive_frames",
        "aristaEcnCounter": "queue_marked_packets",
        "cpfcIfPriorityRequests": "pfc_transmit_frames",
        "cpfcIfPriorityIndications": "pfc_receive_frames",
        "fastpathPfcTx": Alias("pfc_transmit_frames", 32),
        "fastpathPfcRx": Alias("pfc_receive_frames", 32),
        "dot3InPauseFrames": Alias("global_pause_receive_frames", 32),
        "dot3OutPauseFrames": Alias("global_pause_transmit_frames", 32),
        "ieee8021PfcRequests": Alias("pfc_transmit_frames", 32),
        "ieee8021PfcIndications": Alias("pfc_receive_frames", 32),
        "ifHCInOctets": "netdev_receive_bytes",
        "ifHCOutOctets": "netdev_transmit_bytes",
        "ifHCInUcastPkts": "netdev_receive_packets",
        "ifHCOutUcastPkts": "netdev_transmit_packets",
        "ifInDiscards": Alias("netdev_receive_drops", 32),
        "ifInErrors": Alias("netdev_receive_errors", 32),
        "ifOutDiscards": Alias("netdev_transmit_drops", 32),
        "ifOutErrors": Alias("netdev_transmit_errors", 32),
        "jnxCosQstatQedDepthCurrent": "queue_depth",
        "jnxCosQstatTotalDrop": "queue_drops",
        "jnxCosQstatRedDrop": "queue_wred_drops",
        "onyxPriorityRxPause": "pfc_receive_frames",
        "onyxPriorityRxPauseDuration": Alias("pfc_receive_pause_duration", scale=MILLISECOND),
        "onyxPriorityTxPause": "pfc_transmit_frames",
        "onyxUcastQueueDepth": "queue_depth",
        "onyxNoBufferDiscard": "queue_drops",
        "onyxWredDiscard": "queue_wred_drops",
    },
)
TABLES = (_SWITCH,)
