"""A sweep for people and for programs: a sorted table with rates, and JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from fabricd.model.catalogue import CounterDef
from fabricd.model.ident import format_guid
from fabricd.model.rejects import Rejects
from fabricd.model.sample import Flag
from fabricd.sources.pma_reading import ERROR_COLUMNS, WAIT_COLUMN, PortTable, Sweep
from fabricd.sources.pma_targets import Target

F64 = npt.NDArray[np.float64]
_VALID = int(Flag.VALID)
_UNLESS_RESET = 0xFF ^ int(Flag.RESET)
_CLEAR = "\x1b[H\x1b[J"


def summary_json(ports: int, sweeps: list[dict[str, Any]], rejects: Rejects) -> dict[str, Any]:
    """The document of ``fabricd sweep --json``; ``answered`` is that of the last sweep."""
    answered = sweeps[-1]["answered"] if sweeps else 0
    return {"ports": ports, "answered": answered, "sweeps": sweeps, "rejects": rejects.to_json()}


def counters_json(sweep: Sweep) -> list[dict[str, Any]]:
    """Per port: guid, port, name, and each counter with value (None: not read), unit, width, flags, raw name and source."""
    extra: dict[int, dict[str, Any]] = {}
    for side in (*([sweep.details] if sweep.details is not None else []), *sweep.slow):
        for row, values, flags in zip(side.rows.tolist(), side.values.tolist(), side.flags.tolist(), strict=True):
            extra.setdefault(row, {}).update(_cells(side.definitions, values, flags))
    out = []
    table = sweep.table
    for row, (guid, port, target, values, flags) in enumerate(
        zip(
            table.guid.tolist(),
            table.port.tolist(),
            table.target.tolist(),
            sweep.values.tolist(),
            sweep.flags.tolist(),
            strict=True,
        )
    ):
        counters = _cells(table.definitions(row), values, flags) | extra.get(row, {})
        out.append({"guid": format_guid(guid), "port": port, "name": table.targets[target].name, "counters": counters})
    return out


def _cells(columns: list[CounterDef] | tuple[CounterDef, ...], values: list[int], flags: list[int]) -> dict[str, Any]:
    return {
        _key(column): {
            "value": value if flag & _VALID else None,
            "unit": column.unit,
            "width": column.width,
            "flags": Flag(flag).names,
            "raw": column.raw,
            "source": column.interface,
        }
        for column, value, flag in zip(columns, values, flags, strict=True)
    }


def _key(column: CounterDef) -> str:
    return column.name if column.priority is None else f"{column.name}_{column.priority}"


class Table:
    """Ports sorted by what deserves attention: new errors, then waiting, then traffic. ``live``: redraw in place."""

    def __init__(
        self,
        rows: int,
        wait_tick_bytes: Callable[[Target, int], int | None],
        *,
        live: bool,
        out: TextIO = sys.stdout,
    ) -> None:
        self._rows, self._live, self._out = rows, live, out
        self._tick_bytes = wait_tick_bytes
        self._last: Sweep | None = None

    def show(self, sweep: Sweep, silent: list[Target]) -> None:
        """Write one table. The first has totals; rates come with the second sweep."""
        lines = [*self._head(sweep, silent), *self._body(sweep)]
        self._out.write((_CLEAR if self._live else "") + "\n".join(lines) + "\n")
        self._out.flush()
        self._last = sweep

    def _head(self, sweep: Sweep, silent: list[Target]) -> Iterator[str]:
        count = len(sweep.table)
        yield f"sweep {sweep.number}: {sweep.answered} of {count} ports answered in {sweep.seconds:.3f} s"
        if silent:
            named = ", ".join(target.name or format_guid(target.guid) for target in silent[:3])
            more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
            yield f"no answer (refused, keyed or unreachable): {named}{more}"
        if sweep.qp1_dropped:
            yield f"switches dropped {sweep.qp1_dropped} management datagrams: they are asked too fast"
        if sweep.counts["resets"]:
            yield f"counters of {sweep.counts['resets']} ports were cleared by someone else"

    def _body(self, sweep: Sweep) -> Iterator[str]:
        before = self._last if self._last is not None and self._last.table is sweep.table else None
        errors = _sum_errors(sweep)
        if before is None:
            wait = sweep.values[:, WAIT_COLUMN].astype(np.float64)
            first = np.lexsort((-wait, -errors))[: self._rows]
            yield f"{'PORT':<28} {'PEER':<28} {'Gb/s':>6} {'SENT':>10} {'RECEIVED':>10} {'WAIT ticks':>14} {'ERRORS':>8}"
            for row in first.tolist():
                label, peer, rate = _names(sweep.table, row)
                out, into = (_bytes(sweep, row, column) for column in (0, 1))
                waited = _known(sweep, row, WAIT_COLUMN, f"{int(wait[row])}")
                yield f"{label:<28} {peer:<28} {rate:>6} {out:>10} {into:>10} {waited:>14} {int(errors[row]):>8}"
            return
        seconds = _elapsed(sweep, before)
        sent, received, wait = (_rate(sweep, before, column, seconds) for column in (0, 1, WAIT_COLUMN))
        new = np.maximum(errors - _sum_errors(before), 0)
        order = np.lexsort((-np.nan_to_num(sent + received), -np.nan_to_num(wait), -new))[: self._rows]
        yield f"{'PORT':<28} {'PEER':<28} {'Gb/s':>6} {'TX Gb/s':>8} {'RX Gb/s':>8} {'WAIT':>12} {'ERRORS':>8} {'NEW':>6}"
        for row in order.tolist():
            label, peer, rate = _names(sweep.table, row)
            waiting = self._waiting(sweep.table, row, float(wait[row]))
            tx, rx = _gbps(float(sent[row])), _gbps(float(received[row]))
            yield f"{label:<28} {peer:<28} {rate:>6} {tx:>8} {rx:>8} {waiting:>12} {int(errors[row]):>8} {int(new[row]):>6}"

    def _waiting(self, table: PortTable, row: int, ticks: float) -> str:
        """The share of time the port waited, where the length of its tick is known, else ticks per second."""
        if np.isnan(ticks):
            return "-"
        target, port = table.targets[table.target[row]], int(table.port[row])
        tick_bytes, rate = self._tick_bytes(target, port), target.rates.get(port, 0.0)
        if tick_bytes is None or not rate:
            return f"{ticks:.0f}/s"
        return f"{min(1.0, ticks * tick_bytes / (rate * 1e9 / 8)):.1%}"


def _names(table: PortTable, row: int) -> tuple[str, str, str]:
    target, port = table.targets[table.target[row]], int(table.port[row])
    label = target.labels.get(port, {})
    name, peer = target.name or format_guid(target.guid), label.get("peer", "")
    rate = target.rates.get(port, 0.0)
    return (
        f"{name}/{port}"[:28],
        f"{peer}/{label.get('peer_port', '')}"[:28] if peer else "-",
        f"{rate:g}" if rate else "-",
    )


def _known(sweep: Sweep, row: int, column: int, text: str) -> str:
    return text if sweep.flags[row, column] & _VALID else "-"


def _bytes(sweep: Sweep, row: int, column: int) -> str:
    amount = float(sweep.values[row, column])
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000:
            return _known(sweep, row, column, f"{amount:.4g} {unit}")
        amount /= 1000
    return _known(sweep, row, column, f"{amount:.4g} PB")


def _gbps(rate: float) -> str:
    return "-" if np.isnan(rate) else f"{rate * 8e-9:.3f}"


def _sum_errors(sweep: Sweep) -> F64:
    valid = sweep.flags[:, ERROR_COLUMNS] & _VALID != 0
    total: F64 = np.where(valid, sweep.values[:, ERROR_COLUMNS], 0).astype(np.float64).sum(axis=1)
    return total


def _elapsed(now: Sweep, before: Sweep) -> F64:
    """Seconds between the two readings of each port."""
    apart = now.when_ns.astype(np.float64) - before.when_ns.astype(np.float64)
    return (apart + float(now.mono_ns - before.mono_ns)) * 1e-9


def _rate(now: Sweep, before: Sweep, column: int, seconds: F64) -> F64:
    """Per second; NaN where either reading is missing, saturated or was reset."""
    good = (now.flags[:, column] == _VALID) & (before.flags[:, column] & _UNLESS_RESET == _VALID) & (seconds > 0)
    grown = now.values[:, column].astype(np.float64) - before.values[:, column].astype(np.float64)
    return np.where(good, grown / np.where(seconds > 0, seconds, 1), np.nan)
