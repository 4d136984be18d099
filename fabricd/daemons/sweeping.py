"""Putting a sweep together from the configuration: the transport, what to sweep, how hard. Used by the command and the daemon."""

from __future__ import annotations

from collections.abc import Callable

from fabricd.config.collector import CollectorConfig
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.keys import read_keys
from fabricd.ib.limits import Limits, TidSpace
from fabricd.ib.transport import Transport, TransportError
from fabricd.ib.umad import UmadTransport
from fabricd.model.rejects import Rejects
from fabricd.model.topology import PortRef, Topology
from fabricd.sources.pma import PmaSweeper, SweepOptions
from fabricd.sources.pma_targets import Target, targets_of
from fabricd.topology.discovery import Discoverer, to_topology
from fabricd.topology.load import load_topology


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
    config: CollectorConfig,
    transport: Transport,
    fabric: str,
    tids: TidSpace,
    progress: Callable[[int], None] | None = None,
) -> tuple[Topology, PortRef | None]:
    """The configured file, else discovery over the transport; and the port we sit at where that is known.

    ``tids``: that of the transport's other users, so that no transaction id is used twice. Raises FabricdError.
    """
    if config.topology_file is not None:
        return load_topology(config.topology_file), None
    key = read_keys(config.m_key_file).default
    snapshot = Discoverer(transport, limits_of(config), m_key=key, tids=tids).discover(progress=progress)
    topology = to_topology(snapshot, fabric)
    if not topology.nodes:
        raise TransportError("the local port does not answer subnet management: keyed, or the link is down")
    local = next(iter(snapshot.nodes.values()))
    return topology, next(((local.info.node_guid, port) for port in local.port_guids), None)


def find_targets(config: CollectorConfig, topology: Topology) -> tuple[list[Target], Rejects]:
    return targets_of(topology, adapters=config.adapters, sl=config.sl, pkey_index=config.pkey_index)


def make_sweeper(
    config: CollectorConfig,
    transport: Transport,
    targets: list[Target],
    tids: TidSpace,
    *,
    slow_sweeps: int | None = None,
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
        tids=tids,
    )
