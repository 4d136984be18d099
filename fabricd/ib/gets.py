"""Typed Gets for processes that may not open umad: one JSON line asks, one answers, over the collector's Unix socket.

    → {"id": 1, "get": "PortInfo", "lid": 9, "port": 3}
    ← {"id": 1, "reply": "ok", "data": "00112233…"}          the attribute's data, hexadecimal

Only the attributes listed here can be asked for, and only read. ``reply`` is a name of mad.Reply in lower case; ``refused`` when the
request itself was not allowed, with ``error`` saying why.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.ib.mad import CLASS_PMA, PMA_DATA_SIZE, SMP_DATA_AT, SMP_DATA_SIZE, Pma, Reply, Smp, pma_get, smp_get
from fabricd.ib.scheduler import Answer, Request
from fabricd.ib.transport import gmp_address, smp_address

MAX_LINE = 1024
REFUSED = "refused"


class GetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """``port``: port, or output port of SLtoVL; ``in_port``: its input port; ``block``: of a table (LFT: 64 LIDs a block)."""

    get: str
    lid: Annotated[int, Meta(ge=1, lt=0xC000)]
    port: Annotated[int, Meta(ge=0, le=255)] = 0
    in_port: Annotated[int, Meta(ge=0, le=255)] = 0
    block: Annotated[int, Meta(ge=0, le=0xFFFF)] = 0
    id: int = 0


class GetReply(msgspec.Struct, omit_defaults=True):
    """``data``: hexadecimal; present when ``reply`` is ok."""

    reply: str
    id: int = 0
    data: str = ""
    error: str = ""

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self.data)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A subnet management attribute and how a request makes its modifier."""

    attribute: Smp
    modifier: Callable[[GetRequest], int]


_SMP = {
    "NodeInfo": _Kind(Smp.NODE_INFO, lambda r: 0),
    "NodeDescription": _Kind(Smp.NODE_DESCRIPTION, lambda r: 0),
    "SwitchInfo": _Kind(Smp.SWITCH_INFO, lambda r: 0),
    "PortInfo": _Kind(Smp.PORT_INFO, lambda r: r.port),
    "PKeyTable": _Kind(Smp.PKEY_TABLE, lambda r: r.port << 16 | r.block),
    "SLtoVL": _Kind(Smp.SL_TO_VL, lambda r: r.in_port << 8 | r.port),
    "VLArbitration": _Kind(Smp.VL_ARBITRATION, lambda r: r.block << 16 | r.port),
    "LinearForwarding": _Kind(Smp.LINEAR_FORWARDING, lambda r: r.block),
}
_PMA = {
    "ClassPortInfo": Pma.CLASS_PORT_INFO,
    "PortSamplesControl": Pma.SAMPLES_CONTROL,
    "PortCounters": Pma.PORT_COUNTERS,
    "PortRcvErrorDetails": Pma.RCV_ERROR_DETAILS,
    "PortXmitDiscardDetails": Pma.XMIT_DISCARD_DETAILS,
    "PortOpRcvCounters": Pma.OP_RCV_COUNTERS,
    "PortFlowCtlCounters": Pma.FLOW_CTL_COUNTERS,
    "PortVLOpPackets": Pma.VL_OP_PACKETS,
    "PortVLOpData": Pma.VL_OP_DATA,
    "PortVLXmitFlowCtlUpdateErrors": Pma.VL_XMIT_FLOW_CTL_ERRORS,
    "PortVLXmitWaitCounters": Pma.VL_XMIT_WAIT,
    "PortCountersExtended": Pma.PORT_COUNTERS_EXTENDED,
    "PortExtendedSpeedsCounters": Pma.EXTENDED_SPEEDS,
    "SwPortVLCongestion": Pma.SW_VL_CONGESTION,
    "PortRcvConCtrl": Pma.RCV_CON_CTRL,
    "PortSLRcvFECN": Pma.SL_RCV_FECN,
    "PortSLRcvBECN": Pma.SL_RCV_BECN,
    "PortXmitConCtrl": Pma.XMIT_CON_CTRL,
    "PortVLXmitTimeCong": Pma.VL_XMIT_TIME_CONG,
    "PortXmitDataSL": Pma.XMIT_DATA_SL,
    "PortRcvDataSL": Pma.RCV_DATA_SL,
}
ALLOWED = (*_SMP, *_PMA)


def build(request: GetRequest, m_key: int = 0, pm_key: int = 0) -> Request:
    """The MAD of a request. Raises ValueError when it is not on the list."""
    if request.get in _SMP:
        kind = _SMP[request.get]
        return Request(
            smp_get(kind.attribute, kind.modifier(request), m_key=m_key), smp_address(request.lid), request.lid
        )
    if request.get in _PMA:
        mad = pma_get(_PMA[request.get], request.port)
        if pm_key:
            mad[24:32] = pm_key.to_bytes(8, "big")
        return Request(mad, gmp_address(request.lid, CLASS_PMA), request.lid)
    raise ValueError(f"{request.get!r} is not one of {', '.join(ALLOWED)}")


def reply_of(request: GetRequest, answer: Answer) -> GetReply:
    reply = GetReply(answer.reply.name.lower(), request.id)
    if answer.reply is Reply.OK and answer.mad is not None:
        size = SMP_DATA_SIZE if request.get in _SMP else PMA_DATA_SIZE
        reply.data = answer.mad[SMP_DATA_AT : SMP_DATA_AT + size].hex()
    return reply


class _Numbered(msgspec.Struct):
    id: int = 0


_requests = msgspec.json.Decoder(GetRequest)
_numbered = msgspec.json.Decoder(_Numbered)
_replies = msgspec.json.Decoder(GetReply)
_encoder = msgspec.json.Encoder()


def decode_request(line: bytes) -> GetRequest:
    """Raises ValueError with the reason."""
    try:
        request = _requests.decode(line)
    except BAD_DOCUMENT as error:
        raise ValueError(str(error)) from None
    if request.get not in ALLOWED:
        raise ValueError(f"{request.get!r} is not one of {', '.join(ALLOWED)}")
    return request


def refuse(line: bytes, why: str) -> GetReply:
    """The answer to a line that is no allowed request, with its number where it can be made out."""
    try:
        number = _numbered.decode(line).id
    except BAD_DOCUMENT:
        number = 0
    return GetReply(REFUSED, number, error=why)


def encode_line(message: GetRequest | GetReply) -> bytes:
    return _encoder.encode(message) + b"\n"


class GetClient:
    """Blocking client of the collector's socket. Raises FabricdError when the collector is not there or does not answer."""

    def __init__(self, path: str, timeout: float = 5.0) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        self._number = 0
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise FabricdError(f"collector socket {path}: {error.strerror or error}") from None
        self._file = self._socket.makefile("rb")

    def get(self, name: str, lid: int, *, port: int = 0, in_port: int = 0, block: int = 0) -> GetReply:
        """Ask and wait. Look at ``reply`` before ``raw``."""
        self._number += 1
        request = GetRequest(name, lid, port, in_port, block, self._number)
        try:
            self._socket.sendall(encode_line(request))
            line = self._file.readline(1 << 16)
            reply = _replies.decode(line)
        except (OSError, *BAD_DOCUMENT) as error:
            raise FabricdError(f"collector socket {self._path}: {error or 'no answer'}") from None
        if reply.id != self._number:
            raise FabricdError(f"collector socket {self._path}: answer to another request")
        return reply

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> GetClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
