"""What carries MADs: one small Protocol. A *frame* is a transport's header (address, status) followed by the 256-byte MAD.

Frames are built once and sent many times, so the hot path writes only transaction ids. Two transports exist: ``ib/umad.py``
(the kernel's umad device) and ``ib/ibsim.py`` (the datagram socket of ibsim and of fabricd's own simulated fabric).

Every transport refuses, in ``send``, a MAD whose method is not Get: fabricd never clears a counter nor changes a fabric in-band.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fabricd.errors import FabricdError
from fabricd.ib.mad import CLASS_SMP, CLASS_SMP_DIRECTED, GET, METHOD_AT, PERMISSIVE_LID, QKEY_GMP, QP_GMP, QP_SMP


class TransportError(FabricdError):
    """The transport could not be opened or used."""


class DeviceGone(TransportError):
    """The device went away (driver reload, hot unplug, simulator ended): close, wait, open again."""


class NotAGet(TransportError):
    """A MAD that would write was refused."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a MAD goes. ``lid`` 65535 with a directed-route MAD: the route inside the MAD decides."""

    lid: int
    management_class: int
    qp: int = QP_GMP
    qkey: int = QKEY_GMP
    sl: int = 0
    pkey_index: int = 0


def gmp_address(lid: int, management_class: int, *, sl: int = 0, pkey_index: int = 0) -> Address:
    """QP1 of a LID, for performance management."""
    return Address(lid, management_class, sl=sl, pkey_index=pkey_index)


DIRECTED = Address(PERMISSIVE_LID, CLASS_SMP_DIRECTED, qp=QP_SMP, qkey=0)


def smp_address(lid: int) -> Address:
    """QP0 of a LID, for LID-routed subnet management."""
    return Address(lid, CLASS_SMP, qp=QP_SMP, qkey=0)


class Transport(Protocol):
    """One open port of the fabric. Not thread-safe: one transport per thread.

    ``size`` bytes a frame, the MAD at ``mad_at``; the u32 at ``status_at`` of a received frame is non-zero when the request
    failed (110 = timed out) and the frame is then only the request's own header. ``drains``: ``recv`` may be repeated until
    it raises BlockingIOError; otherwise ``poll`` must say yes before every ``recv``. ``reports_timeouts``: a request without an
    answer comes back failed after its time; otherwise nothing comes back and the scheduler's own watchdog is all there is.
    """

    size: int
    mad_at: int
    status_at: int
    drains: bool
    reports_timeouts: bool

    @property
    def send(self) -> Callable[[memoryview], None]:
        """Send one frame. Raises BlockingIOError (try again after receiving), NotAGet, OSError."""
        ...

    @property
    def recv(self) -> Callable[[], bytes]:
        """One frame. Raises BlockingIOError when there is none, OSError when the device is gone."""
        ...

    @property
    def poll(self) -> Callable[[float], object]:
        """Wait up to so many milliseconds; true when ``recv`` has something."""
        ...

    def address(self, frame: memoryview, to: Address, timeout_ms: int) -> None:
        """Fill the frame's header. Transports that time requests out themselves do so after ``timeout_ms``."""
        ...

    def close(self) -> None: ...


def get_only(raw: Callable[[memoryview], object], mad_at: int) -> Callable[[memoryview], None]:
    """``raw`` behind the check that the MAD's method is Get."""
    method_at = mad_at + METHOD_AT

    def send(frame: memoryview) -> None:
        if frame[method_at] != GET:
            raise NotAGet(f"MAD method {frame[method_at]:#04x} refused: fabricd sends Gets only")
        raw(frame)

    return send


_GONE = {
    errno.EIO,
    errno.ENODEV,
    errno.EBADF,
    errno.ECONNREFUSED,
    errno.ENOTCONN,
    errno.ECONNRESET,
    errno.EPIPE,
    0,
    None,
}


def device_error(error: OSError) -> TransportError:
    """What an OSError of ``send`` or ``recv`` means."""
    text = error.strerror or str(error)
    if error.errno in _GONE:
        return DeviceGone(f"the MAD device is gone: {text}")
    if error.errno == errno.EINVAL:
        return TransportError("the kernel refused a MAD: transaction id still outstanding, or the agent is gone")
    return TransportError(f"MAD transport: {text}")
