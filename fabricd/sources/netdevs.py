"""Network interfaces as sysfs shows them, and which of them belongs to an RDMA port."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import NamedTuple

from fabricd.sources.files import Files, read_text, try_int, try_link_name, try_list, try_text


@dataclass(slots=True)
class Netdev:
    """A network interface of this namespace."""

    name: str
    path: str
    driver: str = ""
    mac: str | None = None  # of a bond's member its own, not the one all members share
    bus_path: str | None = None
    operstate: str | None = None
    rate_gbps: float | None = None
    phys_port_name: str | None = None
    phys_switch_id: str | None = None
    members: list[str] = field(default_factory=list)
    master: str | None = None


class FoundNetdev(NamedTuple):
    """``elsewhere``: the port has an interface of this name, but in another network namespace."""

    name: str | None = None
    interface: Netdev | None = None
    elsewhere: bool = False


def netdev_names(files: Files, sysfs: str) -> list[str]:
    """All network interfaces but the loopback. ``bonding_masters`` is a file, not an interface."""
    return [n for n in try_list(files, f"{sysfs}/class/net") if n not in ("lo", "bonding_masters")]


def read_netdev(files: Files, sysfs: str, name: str) -> Netdev:
    """What sysfs says of an interface; everything may be absent."""
    path = f"{sysfs}/class/net/{name}"
    netdev = Netdev(name, path)
    netdev.driver = try_link_name(files, f"{path}/device/driver") or ""
    netdev.mac = try_text(files, f"{path}/bonding_slave/perm_hwaddr") or try_text(files, f"{path}/address")
    netdev.bus_path = _resolved(files, f"{path}/device")
    netdev.operstate = try_text(files, f"{path}/operstate")
    speed = try_int(try_text(files, f"{path}/speed"))  # Mb/s; -1 and EINVAL when down
    netdev.rate_gbps = speed / 1000 if speed is not None and 0 < speed < 0xFFFFFFFF else None
    netdev.phys_port_name = try_text(files, f"{path}/phys_port_name")
    netdev.phys_switch_id = try_text(files, f"{path}/phys_switch_id")
    netdev.master = try_link_name(files, f"{path}/master")
    if (slaves := try_text(files, f"{path}/bonding/slaves")) is not None:
        netdev.members = sorted(slaves.split())
    return netdev


def find_netdev(
    files: Files, sysfs: str, *, bus_path: str | None, device_path: str, port: int, slots: int
) -> FoundNetdev:
    """The interface of an RDMA port: by its GID table, else by the PCI function, else (software devices) by the parent."""
    name = _by_gid_table(files, f"{device_path}/ports/{port}/gid_attrs/ndevs", slots)
    if name is None and bus_path is not None:
        name = _by_function(files, f"{device_path}/device/net", port)
    elif name is None:
        name = try_text(files, f"{device_path}/parent")
    return _checked(files, sysfs, name, bus_path) if name else FoundNetdev()


def _by_gid_table(files: Files, directory: str, slots: int) -> str | None:
    """The first slot that names an interface; an empty slot answers EINVAL, which says nothing."""
    for slot in range(slots):
        try:
            name = read_text(files, f"{directory}/{slot}")
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None  # no such table on this kernel, or its end
            continue
        if name:
            return name
    return None


def _by_function(files: Files, directory: str, port: int) -> str | None:
    names = try_list(files, directory)
    if len(names) <= 1:
        return names[0] if names else None
    for name in names:
        # dev_port counts from 0; older drivers filled dev_id, in hexadecimal, instead
        dev_port = try_int(try_text(files, f"{directory}/{name}/dev_port"))
        dev_id = try_int(try_text(files, f"{directory}/{name}/dev_id"), 16)
        if port - 1 in (dev_port or dev_id, dev_id or dev_port):
            return name
    return None


def _checked(files: Files, sysfs: str, name: str, bus_path: str | None) -> FoundNetdev:
    """The kernel names an interface of any namespace; ours may have none of that name, or one of another device."""
    try:
        files.identity(f"{sysfs}/class/net/{name}")
    except OSError:
        return FoundNetdev(name, None, elsewhere=True)
    netdev = read_netdev(files, sysfs, name)
    if bus_path is not None and netdev.bus_path is not None and netdev.bus_path != bus_path and not netdev.members:
        return FoundNetdev(name, None, elsewhere=True)
    return FoundNetdev(name, netdev)


def _resolved(files: Files, path: str) -> str | None:
    try:
        files.identity(path)
        return files.realpath(path)
    except OSError:
        return None
