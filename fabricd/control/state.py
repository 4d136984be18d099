"""The fabric's present figures as control needs them: per port and priority what is sent and how long it waited.

Missing is nan, never 0: a port nobody reads has neither stall nor traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fabricd.detect.window import Window
from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model.ident import format_guid, parse_guid
from fabricd.model.topology import PortRef

Floats = npt.NDArray[np.float64]


class StateDocument(msgspec.Struct, kw_only=True):
    """The JSON of a state. Matrices are rows of ``ports`` by columns of ``priorities``; null = not observable or no fresh sample."""

    t_ns: int
    interval_ns: int
    ports: list[tuple[str, int]]
    priorities: list[int | None]
    tx_bytes_per_s: list[list[float | None]]
    stall: list[list[float | None]]
    rate_bps: list[float | None]
    age_intervals: list[float | None]
    errors_per_s: list[float | None] = []


@dataclass(slots=True)
class State:
    """P ports by Q priorities (None = the whole port).

    ``tx`` bytes/s and ``stall`` share of the interval (P, Q); ``rate_bps`` (P,) the speed the device reports now; ``age`` (P,)
    intervals since its newest sample (inf = none); ``errors`` (P,) symbol and link errors per second.
    """

    t_ns: int
    interval_ns: int
    ports: Sequence[PortRef]
    priorities: list[int | None]
    tx: Floats
    stall: Floats
    rate_bps: Floats
    age: Floats
    errors: Floats
    index: dict[PortRef, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.index:
            self.index = {ref: i for i, ref in enumerate(self.ports)}

    def column(self, priority: int | None) -> int | None:
        """Column of a priority; None when the state does not tell it apart."""
        return self.priorities.index(priority) if priority in self.priorities else None

    def stall_of(self, ports: Iterable[PortRef], priority: int | None) -> Floats:
        """(n,) of the ports this state knows: at the priority, or the worst of all where it is not told apart."""
        rows = [self.index[ref] for ref in ports if ref in self.index]
        column = self.column(priority)
        part = self.stall[rows]
        if column is not None:
            out: Floats = part[:, column]
            return out
        return worst(part)

    def tx_of(self, ref: PortRef) -> float:
        """Bytes per second over all priorities; nan when unknown."""
        row = self.index.get(ref)
        if row is None or np.isnan(self.tx[row]).all():
            return float("nan")
        return float(np.nansum(self.tx[row]))

    def rate_of(self, ref: PortRef) -> float:
        """Bytes per second the port can carry now; nan when unknown."""
        row = self.index.get(ref)
        return float("nan") if row is None else float(self.rate_bps[row]) / 8

    def use_of(self, ref: PortRef) -> float:
        """Share of its rate a port sends; nan when unknown."""
        return self.tx_of(ref) / self.rate_of(ref)

    def visible_share(self, wanted: Sequence[PortRef]) -> float:
        """Share of the wanted ports with a fresh figure of any kind; nan when nothing is wanted."""
        if not wanted:
            return float("nan")
        rows = [self.index[ref] for ref in wanted if ref in self.index]
        seen = ~np.isnan(self.tx[rows]).all(axis=1) | ~np.isnan(self.stall[rows]).all(axis=1)
        return float(seen.sum()) / len(wanted)

    def newest_age(self, now_ns: int) -> float:
        """Intervals since the newest sample of any port."""
        newest = float(self.age.min()) if len(self.age) else float("inf")
        return newest + max(0, now_ns - self.t_ns) / self.interval_ns


def from_window(
    window: Window,
    ports: Sequence[PortRef],
    priorities: Sequence[int | None],
    rate_bps: Floats,
    errors: Floats | None = None,
) -> State:
    """The state of the interval a detector has just been given; ``rate_bps`` nominal, where the device says nothing.

    The stall is what was measured (waits with data, else pause); what a detector infers beyond that is its own.
    """
    stall = np.full(window.age.shape, np.nan)
    for name in ("xmit_wait_ns", "paused_ns"):
        seen = window.rate(name)
        if seen is not None:
            stall = np.where(np.isnan(stall), seen, stall)
    sent = window.rate("tx_bytes")
    return State(
        t_ns=window.t_ns,
        interval_ns=int(window.interval_ns),
        ports=ports,
        priorities=list(priorities),
        tx=np.full(window.age.shape, np.nan) if sent is None else sent,
        stall=stall,
        rate_bps=np.where(np.isnan(window.rate_bps), rate_bps, window.rate_bps),
        age=window.age.min(axis=1),
        errors=np.full(len(ports), np.nan) if errors is None else errors,
    )


def worst(stall: Floats) -> Floats:
    """(n,) the largest of each row, nan where the whole row is unknown."""
    out = np.full(len(stall), np.nan)
    known = ~np.isnan(stall).all(axis=1)
    out[known] = np.nanmax(stall[known], axis=1)
    return out


def from_json(data: bytes) -> State:
    """Raises FabricdError when it is no state."""
    try:
        document = msgspec.json.decode(data, type=StateDocument)
        ports = [(parse_guid(guid), port) for guid, port in document.ports]
        shape = (len(ports), len(document.priorities))
        errors = document.errors_per_s or [None] * len(ports)
        state = State(
            t_ns=document.t_ns,
            interval_ns=document.interval_ns,
            ports=ports,
            priorities=document.priorities,
            tx=_array(document.tx_bytes_per_s, shape),
            stall=_array(document.stall, shape),
            rate_bps=_array(document.rate_bps, shape[:1]),
            age=np.nan_to_num(_array(document.age_intervals, shape[:1]), nan=np.inf),
            errors=_array(errors, shape[:1]),
        )
    except BAD_DOCUMENT as error:
        raise FabricdError(f"state of the fabric: {error}") from None
    if state.interval_ns <= 0:
        raise FabricdError(f"state of the fabric: interval_ns = {state.interval_ns}")
    return state


def _array(values: Any, shape: tuple[int, ...]) -> Floats:
    return np.asarray(values, np.float64).reshape(shape)


def to_json(state: State) -> bytes:
    """The inverse of ``from_json``."""
    return msgspec.json.encode(
        StateDocument(
            t_ns=state.t_ns,
            interval_ns=state.interval_ns,
            ports=[(format_guid(guid), port) for guid, port in state.ports],
            priorities=state.priorities,
            tx_bytes_per_s=_rows(state.tx),
            stall=_rows(state.stall),
            rate_bps=_row(state.rate_bps),
            age_intervals=_row(state.age),
            errors_per_s=_row(state.errors),
        )
    )


def _row(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _rows(values: Floats) -> list[list[float | None]]:
    return [_row(row) for row in values]


def average(states: Sequence[State]) -> State:
    """The mean of states of the same ports and priorities (others than the last one's are left out); at least one."""
    last = states[-1]
    alike = [s for s in states if s.ports == last.ports and s.priorities == last.priorities]

    def mean(name: str) -> Floats:
        stack = np.stack([getattr(state, name) for state in alike])
        known = ~np.isnan(stack)
        count = known.sum(axis=0)
        out: Floats = np.where(count > 0, np.where(known, stack, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)
        return out

    return State(
        t_ns=last.t_ns,
        interval_ns=last.interval_ns,
        ports=last.ports,
        priorities=last.priorities,
        tx=mean("tx"),
        stall=mean("stall"),
        rate_bps=last.rate_bps,
        age=last.age,
        errors=mean("errors"),
        index=last.index,
    )
