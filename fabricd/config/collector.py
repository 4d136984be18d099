"""[collector]: the in-band sweep of switch ports: through which port, how hard, what is read, who else may sweep."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class CollectorConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    node: Annotated[str, Meta(description="name this collector publishes under; unset: sweep-HOSTNAME")] = ""
    device: Annotated[
        str, Meta(description="InfiniBand device to sweep through, such as mlx5_0; unset: first active")
    ] = ""
    port: Annotated[int, Meta(ge=0, le=254, description="port of that device; 0: the first active")] = 0
    mad_socket: Annotated[
        str, Meta(description="sweep an ibsim-compatible simulator by its socket name instead of a device")
    ] = ""
    mad_host: Annotated[str, Meta(description="node of the simulated fabric to sit at; unset: its first")] = ""
    source: Annotated[
        Literal["auto", "umad", "perfquery"],
        Meta(description="how counters are read; auto: umad, and perfquery where we have no right to umad"),
    ] = "auto"
    perfquery_command: Annotated[
        list[str],
        Meta(min_length=1, description="how perfquery is called; a prefix such as sudo or ssh HOST may go before it"),
    ] = msgspec.field(default_factory=lambda: ["perfquery"])
    perfquery_timeout: Annotated[float, Meta(gt=0, le=600, description="seconds one perfquery may take")] = 5.0
    interval: Annotated[float, Meta(ge=0.05, le=3600, description="seconds from sweep to sweep")] = 1.0
    in_flight: Annotated[int, Meta(ge=1, le=128, description="requests in flight in all")] = 64
    per_switch: Annotated[
        int, Meta(ge=1, le=4, description="requests in flight per switch; more than 2 gains nothing")
    ] = 2
    timeout_ms: Annotated[
        int, Meta(ge=10, le=5000, description="milliseconds until a request counts as unanswered")
    ] = 200
    retries: Annotated[int, Meta(ge=0, le=3, description="times an unanswered request is repeated")] = 1
    errors: Annotated[
        bool, Meta(description="read PortCounters too where a switch has no 64-bit errors (one more request per port)")
    ] = True
    details: Annotated[bool, Meta(description="read error and discard details of ports whose errors moved")] = True
    slow_interval: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="seconds to go once round the optional per-lane, congestion and FEC counters; 0: never",
        ),
    ] = 60.0
    adapters: Annotated[bool, Meta(description="sweep channel adapter ports as well, for hosts that run no agent")] = (
        False
    )
    sl: Annotated[int, Meta(ge=0, le=15, description="service level of the requests")] = 0
    pkey_index: Annotated[int, Meta(ge=0, le=65535, description="index of the partition key of the requests")] = 0
    m_key_file: Annotated[
        str | None,
        Meta(description="management keys, lines GUID KEY or one KEY; a bare name is a systemd credential"),
    ] = None
    pm_key_file: Annotated[
        str | None,
        Meta(description="performance management keys, lines GUID KEY or one KEY; a bare name is a systemd credential"),
    ] = None
    topology_file: Annotated[
        str | None,
        Meta(
            description="take switches and LIDs from this ibnetdiscover or topology file where discovery is not allowed"
        ),
    ] = None
    rediscover: Annotated[float, Meta(ge=5, le=86400, description="seconds between looks at the topology")] = 300.0
    rows_per_frame: Annotated[int, Meta(ge=1, le=8192, description="switch ports in one published frame")] = 1024
    socket: Annotated[str, Meta(description="Unix socket on which other processes may ask for typed Gets")] = (
        "/run/fabricd/collector.sock"
    )
    spool: Annotated[str, Meta(description="directory of the frames not yet stored by the aggregator")] = (
        "/var/lib/fabricd/collector"
    )
    shards: Annotated[
        int, Meta(ge=1, le=256, description="parts the switches are divided into, for collectors that share a fabric")
    ] = 1
    lease: Annotated[
        Literal["mqtt", "file", "none"],
        Meta(
            description="where collectors agree who sweeps a shard: the broker, a directory they share, or not at all"
        ),
    ] = "mqtt"
    lease_dir: Annotated[str, Meta(description="directory of lease files, for lease = file")] = (
        "/var/lib/fabricd/leases"
    )
    lease_seconds: Annotated[
        float, Meta(ge=1, le=600, description="seconds after which the lease of a silent collector may be taken over")
    ] = 10.0
