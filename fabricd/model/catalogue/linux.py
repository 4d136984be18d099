"""What the kernel itself counts, whatever the adapter: DCB, IP-level ECN, network interfaces.

Whether a DCB "request" was sent or received depends on the driver (read in the kernel's drivers); an unknown driver's figures
keep the neutral names.
"""

from __future__ import annotations

from fabricd.model.catalogue.base import Table, pattern

# requests = frames sent, indications = frames received
_REQUESTS_ARE_SENT = ("mlx5_core", "mlx5", "i40e", "hns3", "hclge")
# the other way round
_REQUESTS_ARE_RECEIVED = ("ixgbe", "kvx", "kvx-eth")

_UAPI = "Linux include/uapi/linux/dcbnl.h and the drivers' ieee_getpfc"


def _dcb(drivers: tuple[str, ...], requests: str, indications: str) -> Table:
    return Table(
        drivers,
        "dcb",
        _UAPI,
        {},
        (
            pattern(r"requests([0-7])", requests),
            pattern(r"indications([0-7])", indications),
            pattern(r"pfc_en([0-7])", "pfc_enabled"),
            pattern(r"tc_tx_bw([0-7])", "ets_bandwidth"),
        ),
        scope="netdev",
    )


TABLES = (
    _dcb(_REQUESTS_ARE_SENT, "pfc_transmit_frames", "pfc_receive_frames"),
    _dcb(_REQUESTS_ARE_RECEIVED, "pfc_receive_frames", "pfc_transmit_frames"),
    _dcb(("*",), "pfc_requests", "pfc_indications"),
    Table(
        ("*",),
        "netstat",
        "Linux Documentation/networking/snmp_counter.rst",
        {
            "InCEPkts": "ip_receive_ce_packets",
            "InECT0Pkts": "ip_receive_ect0_packets",
            "InECT1Pkts": "ip_receive_ect1_packets",
            "InNoECTPkts": "ip_receive_not_ect_packets",
        },
        scope="node",
    ),
    Table(
        ("*",),
        "netdev",
        "Linux Documentation/networking/statistics.rst",
        {
            f"{short}_{raw}": f"netdev_{long}_{name}"
            for short, long in (("rx", "receive"), ("tx", "transmit"))
            for raw, name in (("bytes", "bytes"), ("packets", "packets"), ("errors", "errors"), ("dropped", "drops"))
        },
        scope="netdev",
    ),
    Table(
        ("*",),
        "port",
        "Linux Documentation/ABI/stable/sysfs-class-infiniband",
        {"state": "port_state", "phys_state": "port_physical_state", "rate": "link_rate"},
    ),
    Table(
        ("*",),
        "agent",
        "fabricd",
        {
            "read_duration": "agent_read_duration",
            "lateness": "agent_lateness",
            "intervals_skipped": "agent_intervals_skipped",
            "rejects": "agent_rejects",
            "spool_frames": "agent_spool_frames",
            "spool_dropped": "agent_spool_dropped_frames",
            "reconnects": "agent_reconnects",
        },
        scope="node",
    ),
)
