"""The interfaces of the running kernel that are not files: ethtool, DCB, RDMA netlink. Absent when reading another machine's tree."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from fabricd.config.agent import AgentConfig
from fabricd.model.rejects import Rejects
from fabricd.sources.base import CounterGroup, SourceGone
from fabricd.sources.netdevs import Netdev

log = logging.getLogger(__name__)


class HostInterfaces:
    """What can be asked of this kernel beside files. The base class asks nothing: for a directory that stands for ``/sys``."""

    def groups(self, netdev: Netdev, extra: Callable[[str], bool]) -> list[CounterGroup | None]:
        return []

    def labels(self, netdev: Netdev) -> dict[str, str]:
        return {}

    def rdma_group(self, device: str, port: int, driver: str, besides: Collection[str]) -> CounterGroup | None:
        return None

    def begin(self) -> None:
        """A new search for devices begins: forget device numbers and labels."""

    def close(self) -> None: ...


class FileHost(HostInterfaces):
    """A tree with statistics files beside it (see sources.statistics_files), made by a recording or a simulated fabric."""

    def __init__(self, config: AgentConfig, rejects: Rejects) -> None:
        self._directory = Path(config.sysfs) / "ethtool"
        self._wanted = config.ethtool and self._directory.is_dir()
        self._rejects = rejects

    def groups(self, netdev: Netdev, extra: Callable[[str], bool]) -> list[CounterGroup | None]:
        from fabricd.sources.statistics_files import open_statistics

        try:
            return [open_statistics(self._directory, netdev.name, netdev.driver, extra) if self._wanted else None]
        except (SourceGone, OSError) as error:
            self._rejects.add("ethtool_error", error, netdev.name)
            return []


class LiveHost(HostInterfaces):
    """This kernel. Loads pyroute2 only here; a family the kernel lacks is asked no more."""

    def __init__(self, config: AgentConfig, rejects: Rejects) -> None:
        from fabricd.sources import dcb, ethtool, rdma_netlink
        from fabricd.sources.netlink import NetlinkSocket, NetlinkUnavailable

        def connect(wanted: bool, family: int, name: str) -> NetlinkSocket | None:
            try:
                return NetlinkSocket(family) if wanted else None
            except NetlinkUnavailable as error:
                log.info("no %s netlink here: %s", name, error)
                return None

        self._config, self._rejects = config, rejects
        self._dcb, self._ethtool, self._rdma = dcb, ethtool, rdma_netlink
        self._route = connect(config.dcb, 0, "route")
        self._nldev = connect(config.rdma_netlink, rdma_netlink.NETLINK_RDMA, "RDMA")
        self._indexes: dict[str, int] | None = None
        self._labels: dict[str, dict[str, str]] = {}

    def begin(self) -> None:
        self._indexes = None
        self._labels.clear()

    def groups(self, netdev: Netdev, extra: Callable[[str], bool]) -> list[CounterGroup | None]:
        """ethtool statistics and DCB state; the latter's frame counts only where the former have none."""
        statistics = self._statistics(netdev, extra)
        counted = statistics is not None and any(d.name == "pfc_receive_frames" for d in statistics.columns)
        return [statistics, self._bridging(netdev, counts=not counted)]

    def _statistics(self, netdev: Netdev, extra: Callable[[str], bool]) -> CounterGroup | None:
        if not self._config.ethtool:
            return None
        try:
            return self._ethtool.open_ethtool(netdev.name, netdev.driver, extra)
        except (SourceGone, OSError) as error:
            self._rejects.add("ethtool_error", error, netdev.name)
            return None

    def _bridging(self, netdev: Netdev, *, counts: bool) -> CounterGroup | None:
        if self._route is None:
            return None
        try:
            group = self._dcb.open_dcb(self._route, netdev.name, netdev.driver, self._rejects, counts=counts)
        except SourceGone:
            return None  # it was there a moment ago; the next search will tell
        if group is not None:
            self._labels[netdev.name] = group.dcb.labels()
        return group

    def labels(self, netdev: Netdev) -> dict[str, str]:
        return self._labels.get(netdev.name, {})

    def rdma_group(self, device: str, port: int, driver: str, besides: Collection[str]) -> CounterGroup | None:
        if self._nldev is None:
            return None
        try:
            if self._indexes is None:
                self._indexes = self._rdma.decode_devices(self._nldev.ask(self._rdma.encode_devices()))
            if device not in self._indexes:
                return None
            group = self._rdma.RdmaStatistics(self._nldev, self._indexes[device], device, port, driver, besides)
        except OSError as error:
            log.debug("%s port %d: no RDMA statistics over netlink: %s", device, port, error)
            return None
        return group if group.columns else None

    def close(self) -> None:
        for sock in (self._route, self._nldev):
            if sock is not None:
                sock.close()
