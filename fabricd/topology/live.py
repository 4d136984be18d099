"""The topology the configuration asks for: discovered now, or read from its file, with every addition the configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fabricd.config.topology import TopologyConfig
from fabricd.errors import FabricdError
from fabricd.ib.keys import read_keys
from fabricd.ib.limits import Limits, TidSpace
from fabricd.ib.transport import Transport
from fabricd.model.rejects import Rejects
from fabricd.model.topology import Topology
from fabricd.topology.discovery import Discoverer, Snapshot, to_topology
from fabricd.topology.ibdiagnet import parse_far
from fabricd.topology.load import (
    apply_ibdiagnet_dir,
    apply_name_map,
    apply_racks,
    complete,
    load_roce,
    parse_topology,
    read_text,
)
from fabricd.topology.minhop import assumed_routes
from fabricd.topology.names import parse_name_map
from fabricd.topology.opensm_files import parse_lfts
from fabricd.topology.routes import RouteTable
from fabricd.topology.tables import Lft, read_lfts, routes_from_lfts


@dataclass(slots=True)
class Picture:
    """The fabric and its routes. ``snapshot`` is there when it was discovered in-band. ``routes`` is None when not asked for."""

    topology: Topology
    routes: RouteTable | None = None
    snapshot: Snapshot | None = None


def open_transport(config: TopologyConfig) -> Transport:
    """The port to discover from. Raises TransportError when there is none or no permission."""
    if config.mad_socket:
        from fabricd.ib.ibsim import SimTransport

        return SimTransport(config.mad_socket, config.mad_host)
    from fabricd.ib.umad import UmadTransport

    return UmadTransport(config.device, config.port)


def take_picture(
    config: TopologyConfig,
    fabric: str = "default",
    *,
    transport: Transport | None = None,
    limits: Limits | None = None,
    tids: TidSpace | None = None,
    known: Mapping[int, str] | None = None,
    routes: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Picture:
    """Look at the fabric as the configuration says. ``transport``: one already open (it stays open), with the ``tids`` of its other
    users; ``known``: descriptions not to be read again. Raises UsageError, TransportError."""
    if config.source != "smp":
        return _from_file(config, fabric, routes)
    opened = transport or open_transport(config)
    try:
        return _discover(config, fabric, opened, limits, tids or TidSpace(), known, routes, progress)
    finally:
        if transport is None:
            opened.close()


def _discover(
    config: TopologyConfig,
    fabric: str,
    transport: Transport,
    limits: Limits | None,
    tids: TidSpace,
    known: Mapping[int, str] | None,
    routes: bool,
    progress: Callable[[int], None] | None,
) -> Picture:
    keys = read_keys(config.m_key_file or None)
    snapshot = Discoverer(transport, limits, m_key=keys.default, m_keys=keys.by_guid, tids=tids).discover(
        known, progress
    )
    if not snapshot.nodes:
        raise FabricdError("the local port does not answer: is it up, and is the M_Key right (topology.m_key_file)?")
    names, rejects = dict[int, str](), Rejects()
    if config.node_name_map:
        names = parse_name_map(read_text(config.node_name_map), rejects, config.node_name_map)
    topology = to_topology(snapshot, fabric, names, rejects)
    _additions(config, topology)
    picture = Picture(complete(topology), None, snapshot)
    if routes:
        tables = read_lfts(transport, snapshot, limits, keys=keys, tids=tids, rejects=topology.rejects)
        picture.routes = routes_from_lfts(topology, tables, _adaptive(config, topology))
    return picture


def _from_file(config: TopologyConfig, fabric: str, routes: bool) -> Picture:
    table: RouteTable | None = None
    if config.source.endswith(".toml"):
        topology, table = load_roce(config.source)
    else:
        topology = parse_topology(read_text(config.source), Path(config.source).name)
    topology.fabric = topology.fabric if fabric == "default" else fabric
    if config.node_name_map:
        apply_name_map(topology, read_text(config.node_name_map), config.node_name_map)
    _additions(config, topology)
    complete(topology)
    if routes and table is None:
        tables, adaptive = _lfts(config, topology), _adaptive(config, topology)
        table = routes_from_lfts(topology, tables, adaptive) if tables or adaptive else assumed_routes(topology)
    return Picture(topology, table if routes else None)


def _additions(config: TopologyConfig, topology: Topology) -> None:
    if config.ibdiagnet_dir:
        apply_ibdiagnet_dir(topology, config.ibdiagnet_dir)
    if config.racks:
        apply_racks(topology, read_text(config.racks), config.racks)


def _lfts(config: TopologyConfig, topology: Topology) -> dict[int, Lft]:
    """Forwarding tables of the file the configuration names, else of ibdiagnet's directory."""
    path = config.lft_file
    if not path and config.ibdiagnet_dir and (found := Path(config.ibdiagnet_dir) / "ibdiagnet2.fdbs").exists():
        path = str(found)
    return parse_lfts(read_text(path), topology.rejects, Path(path).name) if path else {}


def _adaptive(config: TopologyConfig, topology: Topology) -> dict[int, dict[int, tuple[int, ...]]]:
    far = Path(config.ibdiagnet_dir) / "ibdiagnet2.far"
    if not config.ibdiagnet_dir or not far.exists():
        return {}
    return parse_far(read_text(far), topology.rejects)
