"""One netlink request and its answer over a plain socket; the messages themselves are pyroute2's ``nlmsg`` classes."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_MULTI, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR

_HEADER = struct.Struct("=IHHII")
_RECEIVE = 256 * 1024
_TIMEOUT_S = 2.0


class NetlinkUnavailable(Exception):
    """This kernel, or this sandbox, has no such netlink family (for RDMA: ib_core is not loaded)."""


class NetlinkSocket:
    """A socket of one netlink family. Raises NetlinkUnavailable, OSError."""

    def __init__(self, family: int) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        except OSError as error:
            if error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EACCES, errno.EPERM):
                raise NetlinkUnavailable(os.strerror(error.errno)) from None
            raise
        self._socket.bind((0, 0))
        self._socket.settimeout(_TIMEOUT_S)
        self._late = False  # an answer that we gave up waiting for may still come

    def ask(self, request: bytes) -> bytes:
        """Send one encoded request and return the bytes of its answer. Raises OSError with the errno the kernel answered."""
        if self._late:
            self._drain()
        self._late = True
        self._socket.send(request)
        answer = self._socket.recv(_RECEIVE)
        while _goes_on(answer):  # a dump comes in parts, and even a short one ends in a datagram of its own
            answer += self._socket.recv(_RECEIVE)
        self._late = False
        for kind, body in messages(answer):
            if kind == NLMSG_ERROR:
                code = -struct.unpack_from("=i", body)[0]
                if code:
                    raise OSError(code, os.strerror(code))
        return answer

    def _drain(self) -> None:
        try:
            while True:
                self._socket.recv(_RECEIVE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._socket.close()


def _goes_on(data: bytes) -> bool:
    """Whether the last message is one of several and not yet the end."""
    at, multi, ended = 0, False, False
    while at + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return False
        multi, ended = bool(flags & NLM_F_MULTI), kind in (NLMSG_DONE, NLMSG_ERROR)
        at += (length + 3) & ~3
    return multi and not ended


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, body) of each netlink message in ``data``; stops at a length that cannot be."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data) or kind == NLMSG_DONE:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def encode(message: Any, kind: int, *, flags: int = NLM_F_REQUEST, ack: bool = False) -> bytes:
    """The bytes of a request."""
    message["header"]["type"] = kind
    message["header"]["flags"] = flags | (NLM_F_ACK if ack else 0)
    message["header"]["sequence_number"] = 1  # one request at a time: the number carries nothing
    message["header"]["pid"] = 0
    message.encode()
    return bytes(message.data)
