"""[agent]: what the node agent reads, how often, and where it keeps what is not yet delivered."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class AgentConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    node: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9._:-]{0,128}$",
            description="node id in topics and keys; empty: the host name, or the machine id if that says nothing",
        ),
    ] = ""
    interval: Annotated[
        float, Meta(ge=0.01, le=3600, description="seconds between readings, aligned to the wall clock")
    ] = 1.0
    step_sampling: Annotated[
        bool, Meta(description="also read the sent bytes at random moments, so that jobs' step times can be observed")
    ] = False
    rediscover: Annotated[
        float,
        Meta(ge=1, le=86400, description="seconds between full searches for devices; new and lost ones show at once"),
    ] = 30.0
    sysfs: Annotated[str, Meta(min_length=1, description="where sysfs is mounted")] = "/sys"
    procfs: Annotated[str, Meta(min_length=1, description="where procfs is mounted")] = "/proc"
    device_include: Annotated[list[str], Meta(description="RDMA devices to read, as shell patterns of their names")] = (
        msgspec.field(default_factory=lambda: ["*"])
    )
    device_exclude: Annotated[
        list[str], Meta(description="RDMA devices never to read, as shell patterns of their names")
    ] = msgspec.field(default_factory=list)
    skip_roles: Annotated[
        list[Literal["switch_management", "aggregation_node", "switch", "virtual_function", "representor", "software"]],
        Meta(description="kinds of function that are listed but whose counters are not read"),
    ] = msgspec.field(default_factory=lambda: ["switch_management", "aggregation_node"])
    counter_exclude: Annotated[
        list[str],
        Meta(
            description="counter files never to read, as shell patterns: name, or interface/name (hw_counters/*_debug)"
        ),
    ] = msgspec.field(default_factory=list)
    ethtool: Annotated[bool, Meta(description="read ethtool statistics of the ports' network interfaces")] = True
    ethtool_include: Annotated[
        list[str],
        Meta(description="ethtool statistics to read beyond those the catalogue knows, as shell patterns"),
    ] = msgspec.field(default_factory=list)
    dcb: Annotated[bool, Meta(description="ask for flow control, traffic classes and DSCP maps over netlink")] = True
    rdma_netlink: Annotated[bool, Meta(description="ask for RDMA statistics over netlink that sysfs does not show")] = (
        True
    )
    ip_ecn: Annotated[bool, Meta(description="read the IP-level ECN counters of the node")] = True
    netdevs: Annotated[
        Literal["auto", "all", "none"],
        Meta(description="network interfaces without RDMA: auto = only on a node that has no RDMA device"),
    ] = "auto"
    netdev_exclude: Annotated[
        list[str], Meta(description="network interfaces never to read by themselves, as shell patterns")
    ] = msgspec.field(default_factory=lambda: ["docker*", "cni*", "cali*", "dummy*"])
    spool_dir: Annotated[
        str, Meta(min_length=1, description="directory of the frames that are not yet stored by the aggregator")
    ] = "/var/lib/fabricd/agent"
    status_interval: Annotated[
        float, Meta(ge=1, le=3600, description="seconds between two publications of the node's status")
    ] = 30.0
    metrics_listen: Annotated[
        str,
        Meta(
            pattern=r"^$|^\S+:\d{1,5}$",
            description="host:port of the agent's own /metrics for Prometheus; empty: none. Needs prometheus-client",
        ),
    ] = ""
    publish: Annotated[bool, Meta(description="publish to the broker; false: only the agent's own /metrics")] = True
