"""The RDMA devices of a node as sysfs shows them: identity, ports, links, network interfaces. Counters are another file's job.

``/sys/class/infiniband/<device>/…`` is documented in the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fabricd.model.ident import parse_guid
from fabricd.model.rejects import Rejects
from fabricd.sources import roles
from fabricd.sources.files import (
    Files,
    errno_name,
    read_text,
    try_int,
    try_link_name,
    try_list,
    try_text,
)
from fabricd.sources.link_text import LINK_UP, parse_rate, parse_state
from fabricd.sources.netdevs import Netdev, find_netdev, read_netdev

_PCI_VENDORS = {
    0x15B3: "mlx5_core",
    0x14E4: "bnxt_en",
    0x8086: "irdma",
    0x1DD8: "ionic",
    0x1D0F: "efa",
    0x19E5: "hns3",
    0x1DED: "erdma",
}
_NAME_PREFIXES = (
    ("mlx5", "mlx5_core"),
    ("mlx4", "mlx4_core"),
    ("bnxt_re", "bnxt_re"),
    ("irdma", "irdma"),
    ("ionic", "ionic"),
    ("efa", "efa"),
    ("hfi1", "hfi1"),
    ("rxe", "rxe"),
    ("siw", "siw"),
    ("erdma", "erdma"),
    ("hns", "hns3"),
)
_MANY_SLOTS = 16  # of a GID table that are looked at for a network interface; the first ones are always the port's own


@dataclass(slots=True)
class Port:
    """A port of a device. None is "not known here", never a value."""

    number: int
    path: str
    link_layer: str | None = None
    state: str | None = None
    phys_state: str | None = None
    rate_gbps: float | None = None
    lid: int | None = None
    port_guid: int | None = None
    netdev: str | None = None
    role: str = roles.PHYSICAL
    visible_only_from: str | None = None
    interface: Netdev | None = None  # the network interface, when it is readable here
    members: list[Netdev] = field(default_factory=list)  # of a bond


@dataclass(slots=True)
class Device:
    name: str
    path: str
    identity: int  # of the directory: another number means the driver registered the device anew
    driver: str = ""
    bus_path: str | None = None  # the PCI function, None for software devices
    node_guid: int | None = None
    fw_ver: str | None = None
    board_id: str | None = None
    node_desc: str | None = None
    role: str = roles.PHYSICAL
    parent: str | None = None  # of a plane: the device that aggregates it
    dpu: bool = False  # a function of a data processing unit seen from its host
    ports: list[Port] = field(default_factory=list)


class DeviceReader:
    """Finds the devices below ``sysfs`` (``/sys`` or a directory that stands for it)."""

    def __init__(self, sysfs: str, files: Files, rejects: Rejects) -> None:
        self._sysfs, self._files, self._rejects = sysfs.rstrip("/"), files, rejects
        self._roles: dict[tuple[str, int], str] = {}  # by name and identity: reading product data is slow

    @property
    def directory(self) -> str:
        return f"{self._sysfs}/class/infiniband"

    def identities(self) -> dict[str, int]:
        """Devices now and what tells one registration from the next; cheap enough to call each interval."""
        try:
            return self._files.identities(self.directory)
        except OSError:
            return {}

    def read(self, wanted: Callable[[str], bool]) -> list[Device]:
        """Every device whose name is wanted. One that cannot be read is rejected and costs only itself."""
        devices = []
        for name in filter(wanted, try_list(self._files, self.directory)):
            try:
                devices.append(self._device(name))
            except OSError as error:
                self._rejects.add("device_unreadable", errno_name(error), f"{self.directory}/{name}")
        roles.assign_planes(devices)
        return devices

    def _device(self, name: str) -> Device:
        files, path = self._files, f"{self.directory}/{name}"
        device = Device(name, path, files.identity(path))
        device.driver = self._driver(name, path)
        device.bus_path = self._bus_path(path)
        device.node_guid = self._guid(f"{path}/node_guid")
        device.fw_ver = try_text(files, f"{path}/fw_ver")
        device.board_id = try_text(files, f"{path}/board_id")
        device.node_desc = try_text(files, f"{path}/node_desc")
        known = self._roles.get((name, device.identity))
        device.role = known or roles.device_role(files, device)
        self._roles[name, device.identity] = device.role
        device.dpu = roles.is_dpu_seen_from_host(files, self._sysfs, path)
        for text in sorted(try_list(files, f"{path}/ports"), key=lambda t: (len(t), t)):
            number = try_int(text)
            if number is None or number < 1:
                self._rejects.add("port_name", text, f"{path}/ports")
                continue
            device.ports.append(self._port(device, number))
        if not device.ports:
            self._rejects.add("device_without_ports", name, path)
        return device

    def _driver(self, name: str, path: str) -> str:
        """As the kernel says, else by PCI vendor, else by the name."""
        linked = try_link_name(self._files, f"{path}/device/driver")
        if linked:
            return linked
        for line in (try_text(self._files, f"{path}/device/uevent") or "").splitlines():
            if line.startswith("DRIVER="):
                return line.removeprefix("DRIVER=").strip()
        by_name = next((driver for prefix, driver in _NAME_PREFIXES if name.startswith(prefix)), "")
        vendor = try_int(try_text(self._files, f"{path}/device/vendor"), 16)
        return by_name or _PCI_VENDORS.get(vendor or 0, "")

    def _bus_path(self, path: str) -> str | None:
        try:
            self._files.identity(f"{path}/device")
            return self._files.realpath(f"{path}/device")
        except OSError:
            return None

    def _guid(self, path: str) -> int | None:
        """A GUID file; None when it is absent, malformed or all zero (a function that was given none)."""
        text = self._text(path)
        if text is None:
            return None
        try:
            return parse_guid(text) or None
        except ValueError:
            self._rejects.add("guid_text", text, path)
            return None

    def _text(self, path: str) -> str | None:
        try:
            return read_text(self._files, path)
        except OSError as error:
            self._rejects.add("file_unreadable", errno_name(error), path)
            return None

    def _port(self, device: Device, number: int) -> Port:
        files, path = self._files, f"{device.path}/ports/{number}"
        port = Port(number, path, role=device.role)
        port.link_layer = try_text(files, f"{path}/link_layer")
        state, phys = self._state(f"{path}/state"), self._state(f"{path}/phys_state")
        port.state = state[1] if state else None
        port.phys_state = phys[1] if phys else None
        rate = self._rate(f"{path}/rate")
        # A port that is down shows a default rate that is not its own.
        port.rate_gbps = rate if phys is None or phys[0] == LINK_UP else None
        lid = try_int(try_text(files, f"{path}/lid"), 16)
        port.lid = lid or None  # 0: not given by a subnet manager
        port.port_guid = self._port_guid(f"{path}/gids/0")
        self._attach_netdev(device, port)
        return port

    def _state(self, path: str) -> tuple[int, str] | None:
        text = self._text(path)
        parsed = parse_state(text) if text is not None else None
        if text is not None and parsed is None:
            self._rejects.add("state_text", text, path)
        return parsed

    def _rate(self, path: str) -> float | None:
        text = self._text(path)
        parsed = parse_rate(text) if text is not None else None
        if text is not None and parsed is None and not text.startswith("0"):
            self._rejects.add("rate_text", text, path)
        return parsed

    def _port_guid(self, path: str) -> int | None:
        gid = try_text(self._files, path)
        try:
            return parse_guid("".join(gid.split(":")[-4:])) or None if gid else None
        except ValueError:
            return None

    def _attach_netdev(self, device: Device, port: Port) -> None:
        found = find_netdev(
            self._files,
            self._sysfs,
            bus_path=device.bus_path,
            device_path=device.path,
            port=port.number,
            slots=_MANY_SLOTS,
        )
        port.netdev, port.interface = found.name, found.interface
        if found.elsewhere or (
            found.name is None
            and port.link_layer == "Ethernet"
            and port.state == "ACTIVE"
            and device.bus_path is not None
        ):
            port.visible_only_from = "another network namespace"
        interface = port.interface
        if interface is None:
            return
        if interface.members:
            port.role = roles.BOND
            port.members = [read_netdev(self._files, self._sysfs, name) for name in interface.members]
            # The device shows the rate of one leg; the bond knows its own.
            port.rate_gbps = interface.rate_gbps or port.rate_gbps
        elif roles.is_representor(interface.phys_port_name):
            port.role = roles.REPRESENTOR
