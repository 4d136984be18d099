"""Counters of yesterday out of a Prometheus server, as infiniband_exporter and node_exporter's collectors left them there.

Raw samples are asked for (a range selector), not ``rate()`` and not a grid of steps: a grid repeats the last value for up to five
minutes after a target went away, and shifts readings in time. Every sample keeps the instant of its scrape.

Names: treydock/infiniband_exporter 0.10 (``infiniband_switch_*``, ``infiniband_hca_*``), prometheus/node_exporter 1.11
(``node_infiniband_*``, ``node_ethtool_*``). Data counters come in bytes there, XmitWait in ticks of the ASIC.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import httpx

from fabricd.errors import BAD_DOCUMENT, FabricdError, UsageError
from fabricd.model.catalogue import lookup
from fabricd.model.ident import parse_guid
from fabricd.model.series import LINK_RATE, Collected, History, Owner, Readings, Series, Wire
from fabricd.model.topology import CA, SWITCH

SAMPLES_AT_ONCE = 1_000_000  # samples one answer may hold: about 200 MB while it is read; Prometheus refuses 50 million
_TIMEOUT_S = 120.0
_LOOKS = 200  # how often in the span the cabling is looked at, to find its newest description

_FABRIC = {
    "port_transmit_data_bytes_total": "port_transmit_data_bytes",
    "port_receive_data_bytes_total": "port_receive_data_bytes",
    "port_transmit_packets_total": "port_transmit_packets",
    "port_receive_packets_total": "port_receive_packets",
    "port_transmit_wait_total": "port_transmit_wait",
    "port_link_downed_total": "link_downed",
    "port_raw_rate_bytes_per_second": LINK_RATE,
}
_NODE = {
    "port_data_transmitted_bytes_total": "port_transmit_data_bytes",
    "port_data_received_bytes_total": "port_receive_data_bytes",
    "port_packets_transmitted_total": "port_transmit_packets",
    "port_packets_received_total": "port_receive_packets",
    "port_transmit_wait_total": "port_transmit_wait",
    "link_downed_total": "link_downed",
    "rate_bytes_per_second": LINK_RATE,
}
# A host adapter's XmitWait is 32 bits wide, sticks at its top and its tick is not documented: no share of time comes of it.
_NOT_OF_ADAPTERS = {"port_transmit_wait"}
# Statistics of interfaces the detector reads, by their canonical name; the drivers' own names are the catalogue's business.
_ETHERNET = {
    "priority_transmit_bytes", "priority_receive_bytes", "priority_transmit_packets", "pfc_receive_frames", "pfc_transmit_frames",
    "pfc_receive_pause_duration", "global_pause_receive_duration", "global_pause_receive_frames", "global_pause_transmit_frames",
    "link_down_events",
}  # fmt: skip
_ETHTOOL_NAMES = "node_ethtool_.*(prio|pri|pfc|pause|link_down).*"


class Span(NamedTuple):
    """Wall clock ns; ``step_ns`` 0 keeps every sample, else the first of every step."""

    start_ns: int
    end_ns: int
    step_ns: int = 0


def read(url: str, span: Span, samples: int = SAMPLES_AT_ONCE) -> History:
    """All counters the exporters left in a span of time. Raises UsageError for a bad address, FabricdError when the server fails
    or has nothing."""
    with _Server(url) as server:
        history, collected = History(), Collected()
        history.notes.append("waits by priority or virtual lane: InfiniBand exporters keep whole ports")
        _wires(server, span, history)
        for prefix, names, adapter in (
            ("infiniband_switch_", _FABRIC, False),
            ("infiniband_hca_", _FABRIC, True),
            ("node_infiniband_", _NODE, True),
        ):
            for name, counter in names.items():
                if adapter and counter in _NOT_OF_ADAPTERS:
                    continue
                _read_counter(server, span, f"{prefix}{name}", counter, adapter, history, collected, samples)
        _read_ethtool(server, span, history, collected, samples)
        history.series = [_thinned(series, span) for series in collected.series()]
        _drop_decoder_zeros(history)
        if not history.series:
            raise FabricdError(
                f"{server.shown}: no infiniband_switch_*, infiniband_hca_*, node_infiniband_* or node_ethtool_* pause counter"
                " in that time"
            )
        if any(series.owner.adapter for series in history.series):
            history.notes.append(
                "waits of host adapters: their XmitWait is 32-bit and sticky, its tick is not documented"
            )
        return history


class _Server:
    """A Prometheus HTTP interface. ``shown``: its address without a password."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            url = f"http://{url}"
        try:
            base = httpx.URL(url)
        except (httpx.InvalidURL, ValueError) as error:
            raise UsageError(f"prometheus:{url}: {error}") from None
        if not base.host:
            raise UsageError(f"prometheus:{url}: must be http://HOST:PORT")
        self.shown = str(base.copy_with(username=None, password=None))
        self._base = str(base).rstrip("/")
        self._client = httpx.Client(timeout=_TIMEOUT_S, follow_redirects=True)

    def __enter__(self) -> _Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def query(self, expression: str, at_ns: int) -> list[dict[str, Any]]:
        """The result of an instant query: rows with their labels in ``metric``. Raises FabricdError."""
        try:
            answer = self._client.post(
                f"{self._base}/api/v1/query", data={"query": expression, "time": f"{at_ns / 1e9:.3f}"}
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise FabricdError(f"{self.shown}: {error or type(error).__name__}") from None
        try:
            document = json.loads(answer.content)
            if document["status"] == "success":
                result = document["data"]["result"]
                if isinstance(result, list):
                    return [row for row in result if _labelled(row)]
            reason = document.get("error", "no result")
        except (*BAD_DOCUMENT, KeyError, TypeError, AttributeError):
            raise FabricdError(f"{self.shown}: HTTP {answer.status_code}, not an answer of Prometheus") from None
        raise FabricdError(f"{self.shown}: {expression}: {reason}")


def _labelled(row: Any) -> bool:
    metric = row.get("metric") if isinstance(row, dict) else None
    return isinstance(metric, dict) and all(isinstance(value, str) for value in metric.values())


def _samples(server: _Server, span: Span, selector: str, most: int) -> Iterator[dict[str, Any]]:
    """The series of a selector, in parts of the span small enough for one answer."""
    seconds = (span.end_ns - span.start_ns) / 1e9
    counted = server.query(f"sum(count_over_time({selector}[{_milliseconds(seconds)}]))", span.end_ns)
    try:
        total = float(counted[0]["value"][1]) if counted else 0.0
    except (KeyError, IndexError, TypeError, ValueError):
        raise FabricdError(f"{server.shown}: count of {selector} is no number") from None
    if not total > 0:
        return
    parts = math.ceil(total / most)
    edges = [span.start_ns + (span.end_ns - span.start_ns) * i // parts for i in range(parts + 1)]
    for first, last in itertools.pairwise(edges):
        yield from server.query(f"{selector}[{_milliseconds((last - first) / 1e9)}]", last)


def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1e3))}ms"


def _wires(server: _Server, span: Span, history: History) -> None:
    """The cabling as it was at the end: of several descriptions of a port, the one seen last."""
    newest: dict[tuple[int, int], tuple[float, Wire]] = {}
    seconds = (span.end_ns - span.start_ns) / 1e9
    looks = f"{_milliseconds(seconds)}:{_milliseconds(seconds / _LOOKS)}"
    for kind, node_type in (("switch", SWITCH), ("hca", CA)):
        name = f"infiniband_{kind}_uplink_info"
        for found in server.query(f"max_over_time(timestamp({name})[{looks}])", span.end_ns):
            try:
                labels, seen = found["metric"], float(found["value"][1])
                near = parse_guid(labels["guid"]), int(labels["port"])
                far = parse_guid(labels["uplink_guid"]), int(labels["uplink_port"])
                far_type = SWITCH if labels["uplink_type"].upper() == "SW" else CA
                wire = Wire(near, node_type, labels.get(kind, ""), far, far_type, labels.get("uplink", ""))
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                history.rejects.add("uplink_info", f"{type(error).__name__}: {error}", name)
                continue
            if near not in newest or newest[near][0] < seen:
                newest[near] = seen, wire
    history.wires = [wire for _, wire in newest.values()]


def _read_counter(
    server: _Server,
    span: Span,
    name: str,
    counter: str,
    adapter: bool,
    history: History,
    collected: Collected,
    most: int,
) -> None:
    scale = 8.0 if counter == LINK_RATE else 1.0
    for found in _samples(server, span, name, most):
        owner = _owner(found["metric"], adapter, history, name)
        if owner is not None:
            _take(collected.of(owner, counter, None), found.get("values"), scale, history, name)


def _owner(labels: Mapping[str, str], adapter: bool, history: History, name: str) -> Owner | None:
    try:
        port = int(labels.get("port", 1))
        if "guid" in labels:
            return Owner(parse_guid(labels["guid"]), port, adapter=adapter)
        return Owner(None, port, host_of(labels), labels["device"], adapter=True)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        history.rejects.add("series_labels", f"{type(error).__name__}: {error}", name)
        return None


def host_of(labels: Mapping[str, str]) -> str:
    """The host of a scrape: a label ``node``, ``nodename`` or ``host`` given by relabelling, else ``instance`` without its port."""
    for key in ("nodename", "node", "host"):
        if labels.get(key):
            return labels[key]
    return re.sub(r":\d+$", "", labels.get("instance", ""))


def _take(into: Readings, values: Any, scale: float, history: History, name: str) -> None:
    if not isinstance(values, list):
        history.rejects.add("sample", values, name)
        return
    for sample in values:
        try:
            at, value = round(float(sample[0]) * 1e3) * 1_000_000, float(sample[1]) * scale
            if not (math.isfinite(value) and value >= 0):
                raise ValueError
            into.add(at, value)
        except (TypeError, ValueError, IndexError, OverflowError, KeyError):
            history.rejects.add("sample", sample, name)


def _thinned(series: Series, span: Span) -> Series:
    """The first reading of every step."""
    if not span.step_ns:
        return series
    first: dict[int, int] = {}
    for i, t in enumerate(series.t_ns):
        first.setdefault((t - span.start_ns) // span.step_ns, i)
    kept = first.values()
    return series._replace(
        t_ns=array("q", [series.t_ns[i] for i in kept]), values=array("d", [series.values[i] for i in kept])
    )


def _read_ethtool(server: _Server, span: Span, history: History, collected: Collected, most: int) -> None:
    """Driver statistics by priority. The driver comes from ``node_ethtool_info``; without it mlx5's names are meant."""
    window = _milliseconds((span.end_ns - span.start_ns) / 1e9)
    drivers: dict[tuple[str, str], str] = {}
    for found in server.query(
        f"count by (instance, device, driver) (last_over_time(node_ethtool_info[{window}]))", span.end_ns
    ):
        labels = found["metric"]
        drivers[labels.get("instance", ""), labels.get("device", "")] = labels.get("driver", "")
    before = len(history.notes)
    for found in _samples(server, span, f'{{__name__=~"{_ETHTOOL_NAMES}"}}', most):
        labels = found["metric"]
        raw = labels.get("__name__", "").removeprefix("node_ethtool_")
        driver = drivers.get((labels.get("instance", ""), labels.get("device", "")), "mlx5_core")
        definition = lookup(driver, "ethtool", raw)
        if definition.name not in _ETHERNET or not definition.observable:
            continue
        owner = _owner({key: value for key, value in labels.items() if key != "port"}, True, history, raw)
        if owner is not None:
            readings = collected.of(owner, definition.name, definition.priority)
            _take(readings, found.get("values"), float(definition.scale), history, raw)
            if len(history.notes) == before:
                history.notes.append("switches: node_exporter reads the hosts' interfaces only")


def _drop_decoder_zeros(history: History) -> None:
    """A counter of an adapter that is 0 all the time is one the adapter does not have, printed by the decoder: missing, not 0."""
    kept: list[Series] = []
    for series in history.series:
        if series.owner.adapter and series.owner.guid is not None and not any(series.values):
            if series.counter != "link_downed":  # that one may well be 0 for years
                history.rejects.add("decoder_zero", series.counter, f"0x{series.owner.guid:016x}:{series.owner.port}")
        else:
            kept.append(series)
    history.series = kept
