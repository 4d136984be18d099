"""Putting a sweep together from the configuration: the transport, what to sweep, how hard. Used by the command and the daemon."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from fabricd.config.collector import CollectorConfig
from fabricd.errors import FabricdError, UsageError
from fabricd.ib.ibsim import SimTransport
from fabricd.ib.keys import read_keys
from fabricd.ib.limits import Limits, TidSpace
from fabricd.ib.transport import Transport, TransportError
from fabricd.ib.umad import UmadTransport
from fabricd.model.rejects import Rejects
from fabricd.model.topology import PortRef, Topology
from fabricd.sources.perfquery import PerfquerySweeper
from fabricd.sources.pma import PmaSweeper, SweepOptions
from fabricd.sources.pma_targets import Target, targets_of
from fabricd.sources.sweeper import Sweeper
from fabricd.topology.discovery import Discoverer, to_topology
from fabricd.topology.load import load_topology, parse_topology

log = logging.getLogger(__name__)

_DISCOVERY_S = 120.0


def open_device(config: CollectorConfig) -> Transport:
    """The MAD device or the simulator's socket. Raises TransportError."""
    if config.mad_socket:
        return SimTransport(config.mad_socket, config.mad_host)
    return UmadTransport(config.device, config.port)


def open_transport(config: CollectorConfig) -> Transport | None:
    """The MAD device; None where counters are to be read by spawning perfquery instead. Raises TransportError."""
    if config.source == "perfquery":
        return None
    try:
        return open_device(config)
    except TransportError as error:
        # The tool needs the same device: it helps only with a prefix (sudo, ssh), or where it has rights that we lack.
        hopeful = len(config.perfquery_command) > 1 or _device_is_forbidden()
        if config.source == "umad" or config.mad_socket or not hopeful:
            raise
        if shutil.which(config.perfquery_command[0]) is None:
            raise
        log.warning("%s; reading by %s instead, which is far slower", error, " ".join(config.perfquery_command))
        return None


def _device_is_forbidden(directory: Path = Path("/dev/infiniband")) -> bool:
    devices = list(directory.glob("umad*"))
    return bool(devices) and not any(os.access(device, os.R_OK | os.W_OK) for device in devices)


def limits_of(config: CollectorConfig) -> Limits:
    return Limits(
        per_destination=config.per_switch,
        total=config.in_flight,
        timeout_ms=config.timeout_ms,
        retries=config.retries,
    )


def find_topology(
    config: CollectorConfig,
    transport: Transport | None,
    fabric: str,
    tids: TidSpace,
    progress: Callable[[int], None] | None = None,
) -> tuple[Topology, PortRef | None]:
    """The configured file, else discovery over the transport; and the port we sit at where that is known.

    ``tids``: that of the transport's other users, so that no transaction id is used twice. Raises FabricdError.
    """
    if config.topology_file is not None:
        return load_topology(config.topology_file), None
    if transport is None:
        return _by_ibnetdiscover(config), None
    key = read_keys(config.m_key_file).default
    snapshot = Discoverer(transport, limits_of(config), m_key=key, tids=tids).discover(progress=progress)
    topology = to_topology(snapshot, fabric)
    if not topology.nodes:
        raise TransportError("the local port does not answer subnet management: keyed, or the link is down")
    local = next(iter(snapshot.nodes.values()))
    return topology, next(((local.info.node_guid, port) for port in local.port_guids), None)


def _by_ibnetdiscover(config: CollectorConfig) -> Topology:
    """The topology by the tool beside perfquery, called with the same prefix."""
    command = [*config.perfquery_command[:-1], str(Path(config.perfquery_command[-1]).with_name("ibnetdiscover"))]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DISCOVERY_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FabricdError(f"{' '.join(command)}: {getattr(error, 'strerror', None) or 'takes too long'}") from None
    try:
        return parse_topology(done.stdout.decode(errors="replace"), "ibnetdiscover")
    except UsageError as error:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise FabricdError(f"{' '.join(command)}: {said[-1] if said else error}") from None


def find_targets(config: CollectorConfig, topology: Topology) -> tuple[list[Target], Rejects]:
    return targets_of(topology, adapters=config.adapters, sl=config.sl, pkey_index=config.pkey_index)


def make_sweeper(
    config: CollectorConfig,
    transport: Transport | None,
    targets: list[Target],
    tids: TidSpace,
    *,
    slow_sweeps: int | None = None,
) -> Sweeper:
    """``slow_sweeps`` None: as the configured slow interval says."""
    if transport is None:
        command, limit = config.perfquery_command, config.perfquery_timeout
        return PerfquerySweeper(targets, command, timeout=limit, errors=config.errors)
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
