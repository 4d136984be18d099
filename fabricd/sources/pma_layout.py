"""Where each counter lies in the answer of a performance attribute, and decoding many answers at once.

Offsets count from the attribute's data, byte 64 of the MAD. Source: rdma-core ``libibmad/src/fields.c``; those ibsim answers
were checked by values set on its console. Raw names are perfquery's; ``model.catalogue`` says what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fabricd.ib.mad import GMP_DATA_AT, Pma
from fabricd.model.catalogue import CounterDef, lookup

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

PORT_SELECT_AT = GMP_DATA_AT + 1


@dataclass(frozen=True, slots=True)
class Counter:
    """``bit``: position from the attribute's data, most significant bit first. ``bits``: 2, 4, 8, 16, 32 or 64."""

    raw: str
    bit: int
    bits: int


def _run(names: str, byte: int, bits: int) -> list[Counter]:
    return [Counter(raw, byte * 8 + i * bits, bits) for i, raw in enumerate(names.split())]


def _lanes(raw: str, bits: int, count: int = 16, byte: int = 4) -> list[Counter]:
    return [Counter(f"{raw}{i}", byte * 8 + i * bits, bits) for i in range(count)]


TRAFFIC = "PortXmitData PortRcvData PortXmitPkts PortRcvPkts"
CAST = "PortUnicastXmitPkts PortUnicastRcvPkts PortMulticastXmitPkts PortMulticastRcvPkts"

LAYOUT: dict[int, tuple[Counter, ...]] = {
    Pma.PORT_COUNTERS: (
        *_run("SymbolErrorCounter", 4, 16),
        *_run("LinkErrorRecoveryCounter LinkDownedCounter", 6, 8),
        *_run("PortRcvErrors PortRcvRemotePhysicalErrors PortRcvSwitchRelayErrors PortXmitDiscards", 8, 16),
        *_run("PortXmitConstraintErrors PortRcvConstraintErrors", 16, 8),
        *_run("LocalLinkIntegrityErrors ExcessiveBufferOverrunErrors", 19, 4),
        *_run("QP1Dropped VL15Dropped", 20, 16),
        *_run(f"{TRAFFIC} PortXmitWait", 24, 32),
    ),
    Pma.RCV_ERROR_DETAILS: tuple(
        _run(
            "PortLocalPhysicalErrors PortMalformedPktErrors PortBufferOverrunErrors PortDLIDMappingErrors"
            " PortVLMappingErrors PortLoopingErrors",
            4,
            16,
        )
    ),
    Pma.XMIT_DISCARD_DETAILS: tuple(
        _run(
            "PortInactiveDiscards PortNeighborMTUDiscards PortSwLifetimeLimitDiscards PortSwHOQLifetimeLimitDiscards",
            4,
            16,
        )
    ),
    Pma.OP_RCV_COUNTERS: tuple(_run("PortOpRcvPkts PortOpRcvData", 4, 32)),
    Pma.FLOW_CTL_COUNTERS: tuple(_run("PortXmitFlowPkts PortRcvFlowPkts", 4, 32)),
    Pma.VL_OP_PACKETS: tuple(_lanes("PortVLOpPackets", 16)),
    Pma.VL_OP_DATA: tuple(_lanes("PortVLOpData", 32)),
    Pma.VL_XMIT_FLOW_CTL_ERRORS: tuple(_lanes("PortVLXmitFlowCtlUpdateErrors", 2)),
    Pma.VL_XMIT_WAIT: tuple(_lanes("PortVLXmitWait", 16)),
    Pma.PORT_COUNTERS_EXTENDED: tuple(
        _run(
            f"{TRAFFIC} {CAST} SymbolErrorCounter LinkErrorRecoveryCounter LinkDownedCounter PortRcvErrors"
            " PortRcvRemotePhysicalErrors PortRcvSwitchRelayErrors PortXmitDiscards PortXmitConstraintErrors"
            " PortRcvConstraintErrors LocalLinkIntegrityErrors ExcessiveBufferOverrunErrors VL15Dropped PortXmitWait"
            " QP1Dropped",
            8,
            64,
        )
    ),
    Pma.EXTENDED_SPEEDS: (
        *_run("SyncHeaderErrorCounter UnknownBlockCounter", 16, 16),
        *_run("PortFECCorrectableBlockCtr PortFECUncorrectableBlockCtr PortFECCorrectedSymbolCtr", 140, 32),
    ),
    Pma.SW_VL_CONGESTION: tuple(_lanes("SWPortVLCongestion", 16)),
    Pma.RCV_CON_CTRL: tuple(_run("PortPktRcvFECN PortPktRcvBECN", 4, 32)),
    Pma.SL_RCV_FECN: tuple(_lanes("PortSLRcvFECN", 32)),
    Pma.SL_RCV_BECN: tuple(_lanes("PortSLRcvBECN", 32)),
    Pma.XMIT_CON_CTRL: tuple(_run("PortXmitTimeCong", 4, 32)),
    Pma.VL_XMIT_TIME_CONG: tuple(_lanes("PortVLXmitTimeCong", 32, count=15)),
    Pma.XMIT_DATA_SL: tuple(_lanes("XmtDataSL", 32)),
    Pma.RCV_DATA_SL: tuple(_lanes("RcvDataSL", 32)),
}


def interface(attribute: int) -> str:
    """The catalogue's name of an attribute: ``pma:0x1d``."""
    return f"pma:0x{attribute:02x}"


@lru_cache(maxsize=256)
def definitions(attribute: int) -> tuple[CounterDef, ...]:
    """What each counter of an attribute means, in the order ``decode`` gives them."""
    return tuple(lookup("", interface(attribute), counter.raw) for counter in LAYOUT[attribute])


@lru_cache(maxsize=256)
def _decoder(attribute: int) -> tuple[Callable[[U8], U64], ...]:
    """One reader for each run of neighbouring counters of one width."""
    runs: list[list[Counter]] = []
    for counter in LAYOUT[attribute]:
        last = runs[-1][-1] if runs else None
        if last is not None and last.bits == counter.bits and last.bit + last.bits == counter.bit:
            runs[-1].append(counter)
        else:
            runs.append([counter])
    return tuple(_reader(run[0].bit // 8 + GMP_DATA_AT, run[0].bits, len(run)) for run in runs)


def _reader(byte: int, bits: int, count: int) -> Callable[[U8], U64]:
    end = byte + (bits * count + 7) // 8
    if bits >= 8:
        kind = np.dtype(f">u{bits // 8}")
        return lambda mads: np.ascontiguousarray(mads[:, byte:end]).view(kind).astype(np.uint64)
    per_byte = 8 // bits
    shifts = np.array([8 - bits * (i % per_byte + 1) for i in range(count)], np.uint8)
    mask = np.uint8((1 << bits) - 1)

    def narrow(mads: U8) -> U64:
        spread = np.repeat(mads[:, byte:end], per_byte, axis=1)[:, :count]
        return (spread >> shifts & mask).astype(np.uint64)

    return narrow


def decode(attribute: int, mads: U8) -> U64:
    """Raw counters of many answers: (n, 256) bytes to (n, counters) in the order of ``LAYOUT[attribute]``."""
    parts = [read(mads) for read in _decoder(attribute)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
