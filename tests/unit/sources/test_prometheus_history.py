"""Answers of a Prometheus server, sane and hostile, from a small server that says what it is told to."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricd.errors import FabricdError, UsageError
from fabricd.model.series import LINK_RATE, History
from fabricd.outputs.history_trace import build, topology_of
from fabricd.sources.prometheus_history import Span, host_of, read
from fabricd.topology.load import load_roce

T0 = 1_764_000_000
SPAN = Span(T0 * 10**9, (T0 + 600) * 10**9)
Answer = Callable[[str], Any]
ROCE = Path(__file__).parents[2] / "data" / "topology" / "roce.toml"


class Stub(http.server.ThreadingHTTPServer):
    """Answers every query with ``answer(expression)``: an object as JSON, bytes as they are."""

    answer: Answer = staticmethod(lambda _: [])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_POST(self) -> None:
        assert isinstance(self.server, Stub)
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        found = self.server.answer(form["query"][0])
        body = (
            found if isinstance(found, bytes) else json.dumps({"status": "success", "data": {"result": found}}).encode()
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with Stub(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def keeping(series: list[tuple[dict[str, str], list[tuple[float, float]]]]) -> Answer:
    """A server that keeps these series: it counts, lists and looks them up as asked."""

    def answer(expression: str) -> Any:
        pattern = re.search(r'__name__=~"(.*)"', expression)
        name = pattern[1] if pattern else re.escape((re.search(r"(?:infiniband|node)_[a-z_]+", expression) or [""])[0])
        found = [(labels, samples) for labels, samples in series if re.fullmatch(name, labels["__name__"])]
        if expression.startswith("sum(count_over_time"):
            count = sum(len(samples) for _, samples in found)
            return [{"metric": {}, "value": [T0, str(count)]}] if found else []
        if expression.startswith(("max_over_time", "count by")):
            return [{"metric": labels, "value": [T0, str(samples[-1][0])]} for labels, samples in found]
        return [{"metric": labels, "values": [[t, str(v)] for t, v in samples]} for labels, samples in found]

    return answer


def uplink(
    guid: str, port: int, far: str, far_port: int, kind: str, seen: float = T0
) -> tuple[dict[str, str], list[tuple[float, float]]]:
    labels = {
        "__name__": "infiniband_switch_uplink_info", "guid": guid, "port": str(port), "switch": f"sw{guid[-1]}",
        "uplink": f"n{far[-1]}",
        "uplink_guid": far, "uplink_port": str(far_port), "uplink_type": kind,
    }  # fmt: skip
    return labels, [(seen, 1)]


def counter(name: str, values: list[float], **labels: str) -> tuple[dict[str, str], list[tuple[float, float]]]:
    return {"__name__": name, **labels}, [(T0 + 30 * i, v) for i, v in enumerate(values)]


def test_the_cabling_seen_last_counts(stub: Stub) -> None:
    stub.answer = keeping([
        uplink("0xa1", 1, "0xb1", 1, "CA", T0), uplink("0xa1", 1, "0xb2", 1, "CA", T0 + 300), uplink("0xa1", 2, "0xa2", 5, "SW"),
        counter("infiniband_switch_port_transmit_data_bytes_total", [1, 2], guid="0xa1", port="1"),
    ])  # fmt: skip
    history = read(stub.url, SPAN)
    assert {(wire.near, wire.far) for wire in history.wires} == {((0xA1, 1), (0xB2, 1)), ((0xA1, 2), (0xA2, 5))}
    topology = topology_of(history)
    assert {guid: node.type for guid, node in topology.nodes.items()} == {0xA1: "switch", 0xA2: "switch", 0xB2: "ca"}


@pytest.mark.parametrize(("printed", "real"), [(1000, 800), (500, 400), (250, 200), (400, 400), (200, 200), (100, 100)])
def test_rates_and_ticks(stub: Stub, printed: int, real: int) -> None:
    """1000 Gb/s is a 4x XDR port whose lane was taken for 250; a tick is eight bytes of what the link really carries."""
    here = {"guid": "0xa1", "port": "1"}
    stub.answer = keeping([
        uplink("0xa1", 1, "0xa2", 5, "SW"),
        counter("infiniband_switch_port_raw_rate_bytes_per_second", [printed * 1e9 / 8] * 3, **here),
        counter("infiniband_switch_port_transmit_wait_total", [0, 1000, 3000], **here),
        counter("infiniband_switch_port_transmit_data_bytes_total", [5, 6, 7], **here),
    ])  # fmt: skip
    trace = build(read(stub.url, SPAN))
    assert [link.rate_gbps for link in trace.topology.links] == [real]
    assert trace.link_state == []
    rows = trace.counters
    assert rows.values["xmit_wait_ns"].tolist() == pytest.approx([0, 64e3 / real, 192e3 / real])
    assert rows.values["tx_bytes"].tolist() == [5, 6, 7]
    assert rows.t_ns.tolist() == [(T0 + 30 * i) * 10**9 for i in range(3)]
    assert trace.ids == ["0x00000000000000a1", "0x00000000000000a2"]


def test_a_narrowed_link_is_a_change_of_speed(stub: Stub) -> None:
    here = {"guid": "0xa1", "port": "1"}
    stub.answer = keeping([
        uplink("0xa1", 1, "0xa2", 5, "SW"),
        counter("infiniband_switch_port_raw_rate_bytes_per_second", [50e9, 12.5e9, 50e9], **here),
        counter("infiniband_switch_port_transmit_data_bytes_total", [5, 6, 7], **here),
    ])  # fmt: skip
    trace = build(read(stub.url, SPAN))
    assert [(t // 10**9 - T0, bps) for t, _, bps in trace.link_state] == [(30, 100e9), (60, 400e9)]


def test_decoder_zeros_of_adapters_are_missing(stub: Stub) -> None:
    adapter = {"guid": "0xb1", "port": "1"}
    stub.answer = keeping([
        counter("infiniband_hca_port_transmit_data_bytes_total", [0, 0, 0], **adapter),
        counter("infiniband_hca_port_receive_data_bytes_total", [0, 5, 9], **adapter),
        counter("infiniband_hca_port_link_downed_total", [0, 0, 0], **adapter),
        counter("infiniband_hca_port_transmit_wait_total", [1, 2, 3], **adapter),
        counter("infiniband_switch_port_transmit_data_bytes_total", [0, 0, 0], guid="0xa1", port="1"),
    ])  # fmt: skip
    history = read(stub.url, SPAN)
    assert {(s.owner.guid, s.counter) for s in history.series} == {
        (0xB1, "port_receive_data_bytes"), (0xA1, "port_transmit_data_bytes"),
    }  # fmt: skip
    assert dict(history.rejects.counts) == {"decoder_zero": 1}
    assert any("host adapters" in note for note in history.notes)


def test_interfaces_by_priority(stub: Stub) -> None:
    """node_exporter's ethtool collector: priority out of the name, microseconds become ns, the host finds its place by name."""
    here = {"instance": "gpu01.example:9100", "device": "eth2"}
    stub.answer = keeping([
        counter("node_ethtool_info", [1], driver="mlx5_core", **here),
        counter("node_ethtool_rx_prio3_pause_duration", [10, 20, 30], **here),
        counter("node_ethtool_rx_prio3_pause", [1, 2, 3], **here),
        counter("node_ethtool_tx_prio3_pause", [4, 5, 6], **here),
        counter("node_ethtool_tx_prio3_bytes", [100, 200, 300], **here),
        counter("node_ethtool_tx_prio3_something", [1, 1, 1], **here),
        counter("node_ethtool_rx_prio3_pause", [1, 2, 3], instance="stranger:9100", device="eth2"),
    ])  # fmt: skip
    topology, routes = load_roce(ROCE)
    history = read(stub.url, SPAN)
    trace = build(history, topology, routes)
    rows = trace.counters
    assert set(rows.prio.tolist()) == {3}
    assert {trace.topology.nodes[int(node)].name for node in rows.node} == {"gpu01 eth2"}
    assert {name: column.tolist() for name, column in rows.values.items()} == {
        "paused_ns": [10e3, 20e3, 30e3], "pfc_rx": [1, 2, 3], "pfc_tx": [4, 5, 6], "tx_bytes": [100, 200, 300],
    }  # fmt: skip
    assert trace.rejects.counts["port_not_in_topology"] == 1
    assert any("hosts' interfaces only" in note for note in trace.notes)
    with pytest.raises(FabricdError, match="--topology"):
        build(history)


def test_steps_keep_the_first_sample_of_each(stub: Stub) -> None:
    stub.answer = keeping([
        counter("infiniband_switch_port_transmit_data_bytes_total", list(range(10)), guid="0xa1", port="1"),
    ])  # fmt: skip
    history = read(stub.url, SPAN._replace(step_ns=90 * 10**9))
    assert history.series[0].values.tolist() == [0, 3, 6, 9]


def test_hosts() -> None:
    assert host_of({"instance": "gpu01:9100"}) == "gpu01"
    assert host_of({"instance": "10.0.0.1:9100", "nodename": "gpu01"}) == "gpu01"
    assert host_of({}) == ""


@pytest.mark.parametrize("url", ["ftp://[", "http://", "http://[::1"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(FabricdError):
        read(url, SPAN)


def test_what_the_server_says_is_one_line(stub: Stub) -> None:
    stub.answer = lambda _: b'{"status":"error","error":"query timed out"}'
    with pytest.raises(FabricdError, match="query timed out"):
        read(stub.url, SPAN)
    stub.answer = lambda _: b"<html>"
    with pytest.raises(FabricdError, match="not an answer of Prometheus"):
        read(stub.url, SPAN)
    with pytest.raises(FabricdError) as failure:
        read("http://user:secret@127.0.0.1:1", SPAN)
    assert "secret" not in str(failure.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
SERIES = st.fixed_dictionaries({
    "metric": st.dictionaries(
        st.sampled_from(["guid", "port", "device", "instance", "uplink_guid", "uplink_port", "uplink_type", "__name__"]),
        st.sampled_from(["0xa1", "1", "SW", "x", "", "-1", "99999999999999999999", "node_ethtool_rx_prio3_pause"]) | JSON, max_size=8,
    ) | JSON,
    "values": st.lists(
        st.tuples(st.sampled_from([T0, T0 + 30, -1, 1e300, "x"]), st.sampled_from(["1", "NaN", "-4", "+Inf", "", "1e308"])), max_size=4
    ) | JSON,
    "value": st.tuples(st.just(T0), st.just("3")) | JSON,
})  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(SERIES | JSON, max_size=4) | st.binary(max_size=60))
def test_hostile_answers(stub: Stub, answer: list[Any] | bytes) -> None:
    def told(expression: str) -> Any:
        if expression.startswith("sum(count") and isinstance(answer, list):
            return [{"metric": {}, "value": [T0, "5"]}]
        return answer

    stub.answer = told
    history = History()
    with contextlib.suppress(FabricdError, UsageError):
        history = read(stub.url, SPAN)
        trace = build(history)
        assert np.isfinite(trace.counters.t_ns).all()
    for series in history.series:
        assert series.counter == LINK_RATE or all(0 <= value < float("inf") for value in series.values)
