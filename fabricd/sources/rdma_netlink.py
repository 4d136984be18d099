"""RDMA statistics over NETLINK_RDMA: the hardware counters of a port, and the optional ones that sysfs never shows.

``rdma statistic show`` asks the same (kernel include/uapi/rdma/rdma_netlink.h). A kernel without ib_core has no such family:
no RDMA, no error. Useful where sysfs has no ``hw_counters`` (another network namespace) and for counters enabled by
``rdma statistic set``.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Collection, Sequence
from typing import Any

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, nla, nlmsg

from fabricd.model.catalogue import CounterDef, lookup, scaled
from fabricd.model.sample import Flag
from fabricd.sources.base import LayoutChanged, SourceGone
from fabricd.sources.netlink import NetlinkSocket, encode, messages

NETLINK_RDMA = 20
_CLIENT_NLDEV = 5
CMD_GET = 1
CMD_STAT_GET = 17

_DEV_INDEX, _DEV_NAME, _PORT_INDEX = 1, 2, 3
_STAT_HWCOUNTERS, _ENTRY, _ENTRY_NAME, _ENTRY_VALUE = 80, 81, 82, 83


def _type(command: int) -> int:
    return (_CLIENT_NLDEV << 10) + command


def _attributes() -> tuple[tuple[str, str], ...]:
    known = {
        _DEV_INDEX: ("DEV_INDEX", "uint32"),
        _DEV_NAME: ("DEV_NAME", "asciiz"),
        _PORT_INDEX: ("PORT_INDEX", "uint32"),
        _STAT_HWCOUNTERS: ("STAT_HWCOUNTERS", "hwcounters"),
    }
    return tuple(known.get(number, (f"ATTR_{number}", "cdata")) for number in range(_ENTRY_VALUE + 1))


class _CounterEntry(nla):  # type: ignore[misc]
    nla_map = tuple(
        {_ENTRY_NAME: ("NAME", "asciiz"), _ENTRY_VALUE: ("VALUE", "uint64")}.get(n, (f"ATTR_{n}", "cdata"))
        for n in range(_ENTRY_VALUE + 1)
    )


class _HwCounters(nla):  # type: ignore[misc]
    nla_map = tuple((("ENTRY", "entry") if n == _ENTRY else (f"ATTR_{n}", "cdata")) for n in range(_ENTRY_VALUE + 1))
    entry = _CounterEntry


class RdmaMessage(nlmsg):  # type: ignore[misc]
    """A message of the RDMA device interface; it has no header of its own."""

    nla_map = _attributes()
    hwcounters = _HwCounters


def encode_devices() -> bytes:
    """The request for all devices of this namespace."""
    return encode(RdmaMessage(), _type(CMD_GET), flags=NLM_F_REQUEST | NLM_F_DUMP)


def encode_statistics(index: int, port: int) -> bytes:
    """The request for the counters of one port."""
    message = RdmaMessage()
    message["attrs"] = [("DEV_INDEX", index), ("PORT_INDEX", port)]
    return encode(message, _type(CMD_STAT_GET))


def _decoded(answer: bytes) -> list[Any]:
    """Every message of an answer, decoded."""
    out, at = [], 0
    for kind, body in messages(answer):
        length = 16 + len(body)
        if kind >> 10 == _CLIENT_NLDEV:
            message = RdmaMessage(answer[at : at + length])
            message.decode()
            out.append(message)
        at += (length + 3) & ~3
    return out


def decode_devices(answer: bytes) -> dict[str, int]:
    """Index by device name."""
    return {m.get_attr("DEV_NAME"): m.get_attr("DEV_INDEX") for m in _decoded(answer) if m.get_attr("DEV_NAME")}


def decode_statistics(answer: bytes) -> dict[str, int]:
    """Raw value by counter name."""
    values: dict[str, int] = {}
    for message in _decoded(answer):
        table = message.get_attr("STAT_HWCOUNTERS")
        for entry in table.get_attrs("ENTRY") if table is not None else ():
            name, value = entry.get_attr("NAME"), entry.get_attr("VALUE")
            if name and value is not None:
                values[name] = value
    return values


class RdmaStatistics:
    """The counters of one port that ``besides`` does not have: a group of counters (see sources.base.CounterGroup).

    Raises OSError where the kernel has none for this port.
    """

    def __init__(
        self, sock: NetlinkSocket, index: int, device: str, port: int, driver: str, besides: Collection[str]
    ) -> None:
        self._socket, self._device = sock, device
        self._request = encode_statistics(index, port)
        names = sorted(decode_statistics(sock.ask(self._request)))
        self._names = [name for name in names if name not in besides]
        self._all = set(names)
        self.columns: Sequence[CounterDef] = [lookup(driver, "hw_counters", name) for name in self._names]

    def read(self, values: array[int], flags: bytearray, at: int, tick: int) -> None:
        try:
            now = decode_statistics(self._socket.ask(self._request))
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.EINVAL):
                raise SourceGone(self._device) from None
            now = {}
        if now and now.keys() != self._all:
            raise LayoutChanged  # an optional counter was switched on or off
        for cell, (name, definition) in enumerate(zip(self._names, self.columns, strict=True), at):
            value = now.get(name)
            values[cell] = scaled(definition, value) if value is not None else 0
            flags[cell] = Flag.VALID if value is not None else 0

    def close(self) -> None:
        """The socket is shared and not ours."""
