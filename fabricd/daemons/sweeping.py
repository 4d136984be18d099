"""Putting a sweep together from the configuration: the transport, what to sweep, how hard. Used by the command and the daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from fabricd.config.collector import CollectorConfig
from fabricd.errors import UsageError
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.keys import read_keys
from fabricd.ib.limits import Limits
from fabricd.ib.transport import Transport
from fabricd.ib.umad import UmadTransport
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Topology
from fabricd.sources.pma import PmaSweeper, SweepOptions
from fabricd.sources.pma_targets import Target, targets_of
from fabricd.topology.discovery import Discoverer, to_topology
from fabricd.topology.golden import topology_from_json
from fabricd.topology.ibnetdiscover import parse_ibnetdiscover


def open_transport(config: CollectorConfig) -> Transport:
    """The MAD device or the simulator's socket. Raises TransportError."""
    if config.mad_socket:
        return SimTransport(config.mad_socket, config.mad_host)
    return UmadTransport(config.device, config.port)


def limits_of(config: CollectorConfig) -> Limits:
    return Limits(
        per_destination=config.per_switch,
        total=config.in_flight,
        timeout_ms=config.timeout_ms,
        retries=config.retries,
    )


def find_topology(
    config: CollectorConfig, transport: Transport | None, fabric: str, progress: Callable[[int], None] | None = None
) -> Topology:
    """The configured file, else discovery over the transport. Raises UsageError, TransportError."""
    if config.topology_file is not None:
        return read_topology(config.topology_file)
    if transport is None:
        raise UsageError("collector.topology_file is needed where the MAD device cannot be opened")
    key = read_keys(config.m_key_file).default
    return to_topology(Discoverer(transport, limits_of(config), m_key=key).discover(progress=progress), fabric)


def read_topology(name: str) -> Topology:
    """A file written by ibnetdiscover or by ``fabricd topo export``. Raises UsageError."""
    try:
        text = Path(name).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    if text.lstrip().startswith("{"):
        try:
            return topology_from_json(msgspec.json.decode(text), name)
        except msgspec.DecodeError as error:
            raise UsageError(f"{name}: not JSON: {error}") from None
    return parse_ibnetdiscover(text, name)


def find_targets(config: CollectorConfig, topology: Topology) -> tuple[list[Target], Rejects]:
    return targets_of(topology, adapters=config.adapters, sl=config.sl, pkey_index=config.pkey_index)


def make_sweeper(
    config: CollectorConfig, transport: Transport, targets: list[Target], *, slow_sweeps: int | None = None
) -> PmaSweeper:
    """``slow_sweeps`` None: as the configured slow interval says."""
    if slow_sweeps is None:
        slow_sweeps = round(config.slow_interval / config.interval) if config.slow_interval else 0
    return PmaSweeper(
        transport,
        targets,
        limits_of(config),
        SweepOptions(errors=config.errors, details=config.details, slow_sweeps=slow_sweeps),
        pm_keys=read_keys(config.pm_key_file),
    )
