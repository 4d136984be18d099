"""[broker]: the MQTT broker, how to reach it, and how much an outage may queue on a node's disk."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class BrokerConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    host: Annotated[str, Meta(min_length=1, description="name or address of the MQTT broker")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535, description="TCP port of the broker; 8883 is usual with TLS")] = 1883
    tls: Annotated[bool, Meta(description="speak TLS to the broker and verify its certificate")] = False
    ca_file: Annotated[
        str | None,
        Meta(description="PEM file of the authorities that may sign the broker's certificate; unset: the system's"),
    ] = None
    cert_file: Annotated[str | None, Meta(description="PEM file of this client's certificate (mutual TLS)")] = None
    key_file: Annotated[
        str | None, Meta(description="PEM file of the certificate's private key; a bare name is a systemd credential")
    ] = None
    username: Annotated[str | None, Meta(description="user name at the broker; unset: anonymous or by certificate")] = (
        None
    )
    password_file: Annotated[
        str | None, Meta(description="file whose first line is the password; a bare name is a systemd credential")
    ] = None
    keepalive: Annotated[int, Meta(ge=5, le=3600, description="seconds of silence after which a link is dead")] = 30
    reconnect_max: Annotated[
        float,
        Meta(ge=0.1, le=600, description="longest pause in seconds between attempts to connect (jittered, doubling)"),
    ] = 30.0
    spool_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="disk space in MiB for frames not yet stored; when full the oldest are dropped",
        ),
    ] = 64
    backlog_kb_per_s: Annotated[
        int, Meta(ge=1, le=1_000_000, description="rate limit in KiB/s of frames sent again after an outage")
    ] = 256
    resend_after: Annotated[
        float,
        Meta(ge=0.5, le=3600, description="seconds after which a frame sent but not reported stored is sent again"),
    ] = 15.0
    max_payload_kb: Annotated[
        int, Meta(ge=16, le=262_144, description="largest MQTT payload in KiB: the embedded broker's limit and ours")
    ] = 65_536
