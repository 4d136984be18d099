"""[aggregator]: what it keeps on disk, when it acknowledges, when a node counts as gone."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class AggregatorConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    recording_dir: Annotated[
        str,
        Meta(
            min_length=1, description="directory of the recording: every frame received, bounded; read again at start"
        ),
    ] = "/var/lib/fabricd/recording"
    record: Annotated[
        bool,
        Meta(
            description="keep the recording; false: live view only, nodes are told that a frame is stored once it is here"
        ),
    ] = True
    recording_mb: Annotated[
        int, Meta(ge=4, le=100_000_000, description="disk space in MiB for the recording; the oldest segments go first")
    ] = 4096
    qos: Annotated[
        int,
        Meta(
            ge=0,
            le=1,
            description="1: frames are acknowledged once on disk; 0: less CPU, frames may be lost on the way",
        ),
    ] = 1
    sync: Annotated[
        bool,
        Meta(
            description="force frames to the disk before acknowledging; false survives a crash of ours, not of the machine"
        ),
    ] = True
    report_interval: Annotated[
        float,
        Meta(ge=0.05, le=60, description="seconds between reports to a node of what is stored, which frees its spool"),
    ] = 2.0
    stale_after: Annotated[
        float,
        Meta(
            ge=0.1, le=3600, description="seconds without a frame after which a node is stale and its series disappear"
        ),
    ] = 5.0
    forget_after: Annotated[
        float,
        Meta(ge=1, le=31_536_000, description="seconds without a frame after which a node is removed from the lists"),
    ] = 86_400.0
    socket: Annotated[
        str, Meta(min_length=1, description="unix socket on which the aggregator answers the api process")
    ] = "/run/fabricd/aggregator/socket"
