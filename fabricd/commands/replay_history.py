"""``fabricd replay --from SOURCE``: which reader, which topology, which span of time."""

from __future__ import annotations

import argparse
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fabricd.errors import UsageError

if TYPE_CHECKING:
    from fabricd.model.topology import Topology
    from fabricd.outputs.trace import Trace
    from fabricd.sources.prometheus_history import Span
    from fabricd.topology.routes import RouteTable

DAY_NS = 86_400 * 1_000_000_000


def load_history(args: argparse.Namespace) -> Trace:
    """The trace that ``--from`` names. Raises UsageError and FabricdError."""
    from fabricd.outputs.history_trace import build

    kind, colon, where = args.source.partition(":")
    topology, routes = read_topology(args.topology) if args.topology else (None, None)
    if not colon or not where:
        raise UsageError(f"--from {args.source}: begin with prometheus:, ufm-csv: or ibdiagnet:")
    if kind == "prometheus":
        from fabricd.sources import prometheus_history

        return build(prometheus_history.read(where, span_of(args)), topology, routes)
    if kind == "ufm-csv":
        from fabricd.sources import ufm_csv

        if topology is None:
            raise UsageError(
                "--from ufm-csv: needs --topology FILE: telemetry rows do not say what a port is cabled to"
            )
        return build(ufm_csv.read(Path(where)), topology, routes)
    if kind == "ibdiagnet":
        from fabricd.outputs.ibdiagnet_trace import load_ibdiagnet

        return load_ibdiagnet(Path(where), topology, routes)
    raise UsageError(f"--from {args.source}: begin with prometheus:, ufm-csv: or ibdiagnet:")


def read_topology(path: str) -> tuple[Topology, RouteTable | None]:
    """A file of any kind ``topo`` reads; a links file brings its routes. Raises UsageError."""
    from fabricd.topology.load import complete, load_roce, parse_topology, read_text

    if Path(path).suffix == ".toml":
        topology, routes = load_roce(path)
        return complete(topology), routes
    return complete(parse_topology(read_text(path), Path(path).name)), None


def span_of(args: argparse.Namespace) -> Span:
    """--start, --end and --step. Raises UsageError."""
    from fabricd.sources.prometheus_history import Span

    end = instant(args.end, "--end") if args.end else time.time_ns()
    start = instant(args.start, "--start") if args.start else end - DAY_NS
    if not start < end:
        raise UsageError(f"--start {args.start or '(a day before)'}: must be before the end, {args.end or 'now'}")
    if args.step is None:
        return Span(start, end)
    if not 0.001 <= args.step < math.inf:
        raise UsageError(f"--step {args.step:g}: must be at least 0.001 seconds")
    return Span(start, end, round(args.step * 1e9))


def instant(text: str, option: str) -> int:
    """ns of RFC 3339 (UTC where no zone is given), seconds since 1970, ``now`` or ``2h`` (s, m, h, d ago). Raises UsageError."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    try:
        if text == "now":
            return time.time_ns()
        if text[-1:] in units and text[:-1].replace(".", "", 1).isdecimal():
            seconds = time.time() - float(text[:-1]) * units[text[-1]]
        else:
            try:
                seconds = float(text)
            except ValueError:
                at = datetime.fromisoformat(text)
                seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if not 0 <= seconds < 1e10:
            raise ValueError
        return round(seconds * 1e9)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} {text}: not a time: RFC 3339, seconds since 1970, now, or 2h (ago)") from None
