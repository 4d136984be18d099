"""What a device can show: ClassPortInfo, where a redirect leads, and the optional attributes of a device type.

Offsets and bits: InfiniBand Architecture Specification 13.4.8.1 and rdma-core's ``iba_types.h``, ``fields.c``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from fabricd.ib.mad import CLASS_PMA, GMP_DATA_AT, Pma, Reply, pma_get
from fabricd.ib.scheduler import Answer, Request, Scheduler
from fabricd.ib.transport import Address
from fabricd.sources.pma_targets import DeviceType, Target

_INFO = struct.Struct(">BBHI16xIHHII")

EXTENDED = 1 << 9
EXTENDED_WITHOUT_CAST = 1 << 10
XMIT_WAIT = 1 << 12
QP1_DROPPED = 1 << 15
PM_KEY = 1 << 0  # of the second mask
WIDE_ERRORS = 1 << 1

OPTIONAL = (
    Pma.VL_XMIT_WAIT,
    Pma.SW_VL_CONGESTION,
    Pma.RCV_CON_CTRL,
    Pma.SL_RCV_FECN,
    Pma.SL_RCV_BECN,
    Pma.XMIT_CON_CTRL,
    Pma.VL_XMIT_TIME_CONG,
    Pma.XMIT_DATA_SL,
    Pma.RCV_DATA_SL,
    Pma.VL_OP_PACKETS,
    Pma.VL_OP_DATA,
    Pma.FLOW_CTL_COUNTERS,
    Pma.VL_XMIT_FLOW_CTL_ERRORS,
    Pma.EXTENDED_SPEEDS,
)
_TRIES_PER_TYPE = 3

# Bytes of link time per tick of PortXmitWait, and whether they count per lane, by PCI-like device id of NVIDIA switches
# (ibdiagnet 2.13 manual, congestion assessment). Asked for where the device tells it (PortSamplesControl.Tick).
_PER_LANE_DEVICES = {51000, 52000, 53000}  # Switch-X, Switch-IB, Switch-IB 2
_KNOWN_TICKS = {51000: 31, 52000: 31, 53000: 31, 54000: 7, 54002: 7, 54004: 7}  # … Quantum, Quantum-2, Quantum-3


class Width(IntEnum):
    """How a port's counters are read."""

    WIDE = 0  # PortCountersExtended alone: 64-bit data and errors
    MIXED = 1  # 64-bit data from PortCountersExtended, narrow errors from PortCounters
    NARROW = 2  # PortCounters alone


@dataclass(frozen=True, slots=True)
class Capability:
    """ClassPortInfo of one management agent. ``known`` False: it did not tell, and the usual is assumed."""

    mask: int
    mask2: int
    known: bool = True

    @property
    def width(self) -> Width:
        if not self.mask & (EXTENDED | EXTENDED_WITHOUT_CAST):
            return Width.NARROW
        return Width.WIDE if self.mask2 & WIDE_ERRORS else Width.MIXED

    def without_extended(self) -> Capability:
        """Of a device that claimed PortCountersExtended and then said it has none."""
        return Capability(self.mask & ~(EXTENDED | EXTENDED_WITHOUT_CAST), self.mask2, self.known)


ASSUMED = Capability(EXTENDED | XMIT_WAIT, 0, known=False)


@dataclass(frozen=True, slots=True)
class ClassPortInfo:
    capability: Capability
    redirect: Address | None


def parse_class_port_info(mad: bytes) -> ClassPortInfo:
    """``mad``: a 256-byte answer to ClassPortInfo, or any answer whose status says redirect (its data is a ClassPortInfo)."""
    _, _, mask, word, flow, lid, _, qp, qkey = _INFO.unpack_from(mad, GMP_DATA_AT)
    redirect = None
    if lid:
        redirect = Address(lid, CLASS_PMA, qp=qp & 0xFFFFFF, qkey=qkey, sl=flow >> 20 & 15)
    return ClassPortInfo(Capability(mask, word >> 5), redirect)


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """Of a device type: the optional attributes it answers, and Tick (PortXmitWait counts ticks of Tick + 1 symbol times)."""

    attributes: frozenset[int] = frozenset()
    tick: int | None = None

    def wait_tick_bytes(self, device: DeviceType, lanes: int) -> int | None:
        """Bytes of link time lost per tick of PortXmitWait; None when nobody says."""
        tick = self.tick if self.tick is not None else _KNOWN_TICKS.get(device[1])
        if tick is None:
            return None
        if device[1] in _PER_LANE_DEVICES:
            return (tick + 1) * lanes if lanes else None
        return tick + 1


def probe_devices(
    scheduler: Scheduler, targets: list[Target], address: dict[int, Address], attributes: tuple[Pma, ...] = OPTIONAL
) -> dict[DeviceType, DeviceTraits]:
    """Ask one device of each type for its tick, and which of ``attributes`` it has: once, as many keep silent about what they lack.

    ``targets``: those that answered before; ``address``: by LID. A type is asked at up to three devices until one shows something.
    """
    by_type: dict[DeviceType, list[Target]] = {}
    for target in targets:
        by_type.setdefault(target.device, []).append(target)
    return {
        device: _probe(scheduler, group[:_TRIES_PER_TYPE], address, attributes) for device, group in by_type.items()
    }


def _probe(
    scheduler: Scheduler, candidates: list[Target], address: dict[int, Address], attributes: tuple[Pma, ...]
) -> DeviceTraits:
    answers: dict[int, Answer] = {}
    for target in candidates:
        port = next((p for p in target.ports if target.rates.get(p)), target.ports[0])
        for attribute in (Pma.SAMPLES_CONTROL, *attributes):
            request = Request(pma_get(attribute, port), address[target.lid], target.key)
            scheduler.submit(request, partial(answers.__setitem__, int(attribute)))
        scheduler.run(deadline_s=10)
        scheduler.forgive()
        if any(answer.ok for answer in answers.values()):
            break
    found = frozenset(a for a, answer in answers.items() if answer.ok and a != Pma.SAMPLES_CONTROL)
    control = answers.get(Pma.SAMPLES_CONTROL)
    tick = control.data[2] if control is not None and control.reply is Reply.OK else None
    return DeviceTraits(found, tick)
