"""Per port and priority: utilisation, stall, backlog; and what stands in for what cannot be seen.

Order of evidence for the stall: wait with data queued, pause time, pause frames (bounded estimate), pause frames the cable's other
end sent. Order for the volume: the port's own bytes, the other end's received bytes. Whatever was estimated is marked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricd.detect.fabric import Fabric
from fabricd.detect.window import Window

FRAME_BOUNDS = 30  # ports with pauses that must have been seen before frames are turned into time
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Features:
    """Arrays of P + 1 (the last is the spare port, all zero) by Q priorities.

    ``tx`` bits/s, ``stall`` share of the interval, ``use`` (P+1,) share of the current capacity over all priorities,
    ``blind`` (P+1,) neither end of the cable is seen, ``estimated`` (P+1, Q) the stall is not measured,
    ``unknown`` (P+1, Q) there is no evidence of a stall either way, ``capacity`` (P+1,) bits/s, ``marked`` share of packets
    ECN-marked, ``dark`` (P+1,) no volume is known from either end.
    """

    tx: Floats
    stall: Floats
    use: Floats
    capacity: Floats
    blind: Bools
    estimated: Bools
    unknown: Bools
    marked: Floats
    dark: Bools


class FeatureMaker:
    """Keeps what calibrates estimates: how long one pause frame typically stops a port on this fabric."""

    def __init__(self, fabric: Fabric, control: int | None) -> None:
        self.fabric = fabric
        self.control = control
        self._bounds: deque[npt.NDArray[np.float32]] = deque(maxlen=50)
        self._per_frame = np.nan  # share of a second one XOFF stops a port

    def make(self, window: Window, slower: Floats) -> Features:
        """``slower`` (P,): capacity inferred below nominal, nan where none."""
        fabric = self.fabric
        peer = fabric.peer
        shape = window.age.shape
        tx = _own_or_peer(window, "tx_bytes", "rx_bytes", peer, shape)
        seen = ~np.isnan(tx).all(axis=1)
        bits = np.nan_to_num(tx) * 8.0
        nominal = np.where(np.isnan(window.rate_bps), fabric.rate, window.rate_bps)
        capacity = np.fmin(nominal, slower)
        total = bits.sum(axis=1)
        capacity = np.where(np.isnan(capacity), np.maximum(total, 1.0), capacity)
        use = np.minimum(total / np.maximum(capacity, 1.0), 1.0)
        stall, estimated, unknown = self._stall(window, use, shape)
        marked = np.zeros(shape)
        ecn, pkts = window.rate("ecn_marked"), window.rate("tx_pkts")
        if ecn is not None and pkts is not None:
            marked = np.nan_to_num(ecn / np.maximum(pkts, 1e-9)).clip(0, 1)
        if self.control is not None:
            stall[:, self.control] = 0.0
            unknown[:, self.control] = False
        return Features(
            tx=_pad(bits),
            stall=_pad(stall),
            use=_pad(use),
            capacity=np.append(capacity, 1.0),
            blind=np.append(~seen & ~fabric.is_host, False),
            estimated=_pad(estimated.astype(np.float64)) > 0,
            unknown=_pad(unknown.astype(np.float64)) > 0,
            marked=_pad(marked),
            dark=np.append(~seen, False),
        )

    def _bound_frame(self, count: Floats, room: Floats) -> None:
        """No duration anywhere: a frame cannot have stopped a port for longer than the port's idle time (``room``, in
        seconds). Ports that are busy in spite of many frames bound it best; before enough of them were seen the
        stall is unknown rather than guessed."""
        some = np.nan_to_num(count) >= 3
        if some.any():
            self._bounds.append((np.broadcast_to(room, count.shape)[some] / count[some]).astype(np.float32))
        known = np.concatenate(self._bounds) if self._bounds else np.zeros(0, np.float32)
        if len(known) >= FRAME_BOUNDS:
            self._per_frame = float(np.quantile(known, 0.1))

    def _stall(self, window: Window, use: Floats, shape: tuple[int, ...]) -> tuple[Floats, Bools, Bools]:
        wait, paused = window.rate("xmit_wait_ns"), window.rate("paused_ns")
        stall = np.full(shape, np.nan)
        for source in (wait, paused):
            if source is not None:
                stall = np.where(np.isnan(stall), source, stall)
        measured = ~np.isnan(stall)
        frames = _own_or_peer(window, "pfc_rx", "pfc_tx", self.fabric.peer, shape)
        room = np.maximum(0.0, 1.0 - use)[:, None]
        paced = measured & (np.nan_to_num(frames) > 0)
        if paced.any():
            self._per_frame = float(np.median(stall[paced] / frames[paced]))
        elif not measured.any():
            seconds = window.interval_ns * 1e-9
            self._bound_frame(frames * seconds, room * seconds)
        estimate = np.where(frames == 0, 0.0, np.minimum(room, frames * self._per_frame))
        if window.pausing is not None:
            # An XOFF that was never taken back holds the other end, although no new frame is seen.
            still = (window.pausing[self.fabric.peer] > 0) & (frames == 0)
            estimate = np.where(still, room, estimate)
        stall = np.where(measured, stall, estimate)
        unknown = np.isnan(stall)
        return np.nan_to_num(stall), ~measured & ~unknown, unknown


def _own_or_peer(window: Window, own: str, other: str, peer: npt.NDArray[np.intp], shape: tuple[int, ...]) -> Floats:
    mine, theirs = window.rate(own), window.rate(other)
    out = np.full(shape, np.nan) if mine is None else mine
    return out if theirs is None else np.where(np.isnan(out), theirs[peer], out)


def _pad(values: Floats) -> Floats:
    """One more row of zeros for the spare port."""
    return np.concatenate([values, np.zeros((1, *values.shape[1:]))])
