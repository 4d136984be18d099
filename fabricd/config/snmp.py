"""[snmp]: switches whose counters are polled by SNMP, for Ethernet fabrics without streaming telemetry."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class SnmpConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    targets: Annotated[str, Meta(description="TOML file of switches: name, address, profile, user or community")] = ""
    secrets_file: Annotated[str, Meta(description="credential file with SNMPv3 keys and communities for reading")] = ""
    node: Annotated[str, Meta(description="name the poller publishes under; unset: snmp-HOSTNAME")] = ""
    interval: Annotated[float, Meta(ge=1, le=3600, description="seconds from poll to poll")] = 5.0
    workers: Annotated[
        int, Meta(ge=1, le=64, description="processes that poll; each reads about 10,000 rows a second")
    ] = 2
    at_once: Annotated[int, Meta(ge=1, le=512, description="switches a process asks at the same time")] = 32
    spool: Annotated[str, Meta(description="directory of the frames not yet stored by the aggregator")] = (
        "/var/lib/fabricd/snmp"
    )
