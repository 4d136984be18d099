"""Data centre bridging of a network interface over rtnetlink (RTM_GETDCB, IEEE): flow control, traffic classes, DSCP map, buffers.

Layouts are those of the kernel's include/uapi/linux/dcbnl.h. fabricd only asks here; it changes nothing.
"""

from __future__ import annotations

import errno
import socket
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroute2.netlink import nla, nlmsg
from pyroute2.netlink.rtnl import RTM_GETDCB

from fabricd.model.catalogue import CounterDef, lookup, scaled
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.base import SourceGone, clear
from fabricd.sources.netlink import NetlinkSocket, encode, messages

DCB_CMD_IEEE_GET = 21
PRIORITIES = 8

_PFC = struct.Struct("=BBBxHxx8Q8Q")
_ETS = struct.Struct("=BBB8s8s8s8s8s8s8s")
_BUFFER = struct.Struct("=8s8II")
_APP = struct.Struct("=BBH")
_SELECTOR_DSCP = 5
_SELECTORS = {1: "ethertype", 2: "stream", 3: "datagram", 4: "port", 5: "dscp"}
_ALGORITHMS = {0: "strict", 1: "cbs", 2: "ets", 255: "vendor"}


class _Ieee(nla):  # type: ignore[misc]
    nla_map = (
        ("DCB_ATTR_IEEE_UNSPEC", "none"),
        ("DCB_ATTR_IEEE_ETS", "cdata"),
        ("DCB_ATTR_IEEE_PFC", "cdata"),
        ("DCB_ATTR_IEEE_APP_TABLE", "app_table"),
        ("DCB_ATTR_IEEE_PEER_ETS", "cdata"),
        ("DCB_ATTR_IEEE_PEER_PFC", "cdata"),
        ("DCB_ATTR_IEEE_PEER_APP", "cdata"),
        ("DCB_ATTR_IEEE_MAXRATE", "cdata"),
        ("DCB_ATTR_IEEE_QCN", "cdata"),
        ("DCB_ATTR_IEEE_QCN_STATS", "cdata"),
        ("DCB_ATTR_DCB_BUFFER", "cdata"),
    )

    class app_table(nla):  # type: ignore[misc]
        nla_map = (("DCB_ATTR_IEEE_APP_UNSPEC", "none"), ("DCB_ATTR_IEEE_APP", "cdata"))


class DcbMessage(nlmsg):  # type: ignore[misc]
    """``struct dcbmsg`` and the attributes of the IEEE part."""

    prefix = "DCB_ATTR_"
    fields = (("dcb_family", "B"), ("cmd", "B"), ("dcb_pad", "H"))
    nla_map = tuple(
        (f"DCB_ATTR_{name}", kind)
        for name, kind in (
            ("UNDEFINED", "none"), ("IFNAME", "asciiz"), ("STATE", "uint8"), ("PFC_STATE", "uint8"), ("PFC_CFG", "cdata"),
            ("NUM_TC", "uint8"), ("PG_CFG", "cdata"), ("SET_ALL", "uint8"), ("PERM_HWADDR", "cdata"), ("CAP", "cdata"),
            ("NUMTCS", "cdata"), ("BCN", "cdata"), ("APP", "cdata"), ("IEEE", "ieee"), ("DCBX", "uint8"),
            ("FEATCFG", "cdata"), ("CEE", "cdata"),
        )
    )  # fmt: skip
    ieee = _Ieee


@dataclass(slots=True)
class Dcb:
    """What the interface answered. Lists are by priority or traffic class, 8 long; None: the driver does not say."""

    pfc_cap: int | None = None
    pfc_enabled: list[bool] | None = None
    pfc_delay: int | None = None
    requests: list[int] | None = None
    indications: list[int] | None = None
    ets_bandwidth: list[int] | None = None
    ets_algorithm: list[str] | None = None
    priority_to_class: list[int] | None = None
    dscp_to_priority: dict[int, int] = field(default_factory=dict)
    apps: list[tuple[str, int, int]] = field(default_factory=list)  # selector, protocol, priority
    buffer_bytes: list[int] | None = None
    buffer_total: int | None = None
    priority_to_buffer: list[int] | None = None

    @property
    def enabled_priorities(self) -> list[int] | None:
        return None if self.pfc_enabled is None else [p for p, on in enumerate(self.pfc_enabled) if on]

    def labels(self) -> dict[str, str]:
        """What others must know to tell a mismatch of priorities along a path, as short texts."""
        out = {}
        if (enabled := self.enabled_priorities) is not None:
            out["pfc"] = ",".join(map(str, enabled)) or "none"
        if self.dscp_to_priority:
            out["dscp"] = ",".join(f"{dscp}:{priority}" for dscp, priority in sorted(self.dscp_to_priority.items()))
        if self.priority_to_class is not None:
            out["prio_tc"] = ",".join(map(str, self.priority_to_class))
        return out

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"pfc_cap": self.pfc_cap, "pfc_enabled": self.enabled_priorities}
        if self.ets_bandwidth is not None:
            out["ets"] = {
                "bandwidth_percent": self.ets_bandwidth,
                "algorithm": self.ets_algorithm,
                "priority_to_class": self.priority_to_class,
            }
        if self.apps:
            out["apps"] = [{"selector": s, "protocol": p, "priority": q} for s, p, q in self.apps]
        if self.buffer_bytes is not None:
            out["buffer"] = {
                "bytes": self.buffer_bytes,
                "total": self.buffer_total,
                "priority_to_buffer": self.priority_to_buffer,
            }
        return out


def encode_get(netdev: str) -> bytes:
    """The request for an interface's IEEE state."""
    message = DcbMessage()
    message["dcb_family"] = socket.AF_UNSPEC
    message["cmd"] = DCB_CMD_IEEE_GET
    message["attrs"] = [("DCB_ATTR_IFNAME", netdev)]
    return encode(message, RTM_GETDCB)


def decode(answer: bytes) -> Dcb:
    """Read an answer. Parts that are shorter than their layout are left out, longer ones are newer kernels'."""
    dcb = Dcb()
    if not any(True for _ in messages(answer)):
        return dcb
    message = DcbMessage(answer)
    message.decode()
    ieee = message.get_attr("DCB_ATTR_IEEE")
    if ieee is None:
        return dcb
    for name, value in ieee["attrs"]:
        data = value if isinstance(value, bytes | bytearray) else b""
        if name == "DCB_ATTR_IEEE_PFC" and len(data) >= _PFC.size:
            cap, enabled, _, delay, *counts = _PFC.unpack_from(data)
            dcb.pfc_cap, dcb.pfc_delay = cap, delay
            dcb.pfc_enabled = [bool(enabled >> priority & 1) for priority in range(PRIORITIES)]
            dcb.requests, dcb.indications = counts[:PRIORITIES], counts[PRIORITIES:]
        elif name == "DCB_ATTR_IEEE_ETS" and len(data) >= _ETS.size:
            _, _, _, tx_bw, _, algorithms, prio_tc, *_ = _ETS.unpack_from(data)
            dcb.ets_bandwidth, dcb.priority_to_class = list(tx_bw), list(prio_tc)
            dcb.ets_algorithm = [_ALGORITHMS.get(a, str(a)) for a in algorithms]
        elif name == "DCB_ATTR_IEEE_APP_TABLE":
            _decode_apps(dcb, value)
        elif name == "DCB_ATTR_DCB_BUFFER" and len(data) >= _BUFFER.size:
            to_buffer, *sizes, total = _BUFFER.unpack_from(data)
            dcb.priority_to_buffer, dcb.buffer_bytes, dcb.buffer_total = list(to_buffer), sizes, total
    return dcb


def _decode_apps(dcb: Dcb, table: Any) -> None:
    for name, data in table["attrs"]:
        if name != "DCB_ATTR_IEEE_APP" or len(data) < _APP.size:
            continue
        selector, priority, protocol = _APP.unpack_from(data)
        dcb.apps.append((_SELECTORS.get(selector, str(selector)), protocol, priority))
        if selector == _SELECTOR_DSCP:
            dcb.dscp_to_priority[protocol] = priority


class DcbCounters:
    """PFC state and counts, traffic class shares of one interface: a group of counters (see sources.base.CounterGroup).

    ``counts``: also the frame counts, for interfaces whose ethtool statistics have none. An answer that equals the one before
    is not decoded again.
    """

    def __init__(self, sock: NetlinkSocket, netdev: str, driver: str, rejects: Rejects, *, counts: bool) -> None:
        self._socket, self._netdev, self._rejects = sock, netdev, rejects
        self._request = encode_get(netdev)
        self._answer = b""
        self.dcb = Dcb()
        self._ask()
        groups: list[tuple[str, bool]] = [
            ("pfc_en", self.dcb.pfc_enabled is not None),
            ("tc_tx_bw", self.dcb.ets_bandwidth is not None),
            ("requests", counts and self.dcb.requests is not None),
            ("indications", counts and self.dcb.indications is not None),
        ]
        self._parts = [name for name, present in groups if present]
        self.columns: Sequence[CounterDef] = [
            lookup(driver, "dcb", f"{part}{number}") for part in self._parts for number in range(PRIORITIES)
        ]

    def _ask(self) -> None:
        answer = self._socket.ask(self._request)
        if answer != self._answer:
            self.dcb = decode(answer)
            self._answer = answer

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        try:
            self._ask()
        except TimeoutError:
            self._rejects.add("dcb_timeout", "no answer", self._netdev)
            clear(values, flags, at, len(self.columns))
            return
        except OSError as error:
            if error.errno == errno.ENODEV:
                raise SourceGone(self._netdev) from None
            self._rejects.add("dcb_error", error.strerror, self._netdev)
            clear(values, flags, at, len(self.columns))
            return
        cell = at
        for part in self._parts:
            numbers = self._numbers(part)
            for number in range(PRIORITIES):
                if numbers is None:
                    values[cell] = flags[cell] = 0
                else:
                    values[cell] = scaled(self.columns[cell - at], int(numbers[number]))
                    flags[cell] = Flag.VALID
                cell += 1

    def _numbers(self, part: str) -> list[int] | list[bool] | None:
        dcb = self.dcb
        by_part: dict[str, list[int] | list[bool] | None] = {
            "pfc_en": dcb.pfc_enabled,
            "tc_tx_bw": dcb.ets_bandwidth,
            "requests": dcb.requests,
            "indications": dcb.indications,
        }
        return by_part[part]

    def close(self) -> None:
        """The socket is shared and not ours."""


def open_dcb(sock: NetlinkSocket, netdev: str, driver: str, rejects: Rejects, *, counts: bool) -> DcbCounters | None:
    """The DCB state of an interface, or None where its driver has none. Raises SourceGone."""
    try:
        group = DcbCounters(sock, netdev, driver, rejects, counts=counts)
    except OSError as error:
        if error.errno == errno.ENODEV:
            raise SourceGone(netdev) from None
        return None  # EOPNOTSUPP: no DCB in this driver; EPERM, time-outs: not here
    return group if group.columns else None
