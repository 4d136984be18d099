"""Yesterday's data of a real Prometheus: filled by backfilling and by scraping real exporters, then replayed from."""

from __future__ import annotations

import contextlib
import http.server
import json
import subprocess
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fabricd.cli import main
from fabricd.outputs.trace import read_trace
from fabricd.sources import prometheus_history
from fabricd.transport.embedded import free_port
from tests.exporters import Watched
from tests.integration.pipeline import wait_for
from tests.sysfs_tree import SysfsTree

TRACES = Path(__file__).parent.parent / "data" / "traces"
START_S = 1_764_000_000
STEP_S = 30
Sample = tuple[str, str, float, int]  # metric, labels, value, second


@cache
def watched(name: str, stretch: float = STEP_S * 1000) -> Watched:
    return Watched(read_trace(TRACES / name), stretch)


def scraped(fabric: Watched, steps: Iterable[int]) -> Iterator[Sample]:
    for step in steps:
        for metric, labels, value in fabric.infiniband_exporter(step * STEP_S * 1e9):
            yield metric, labels, value, START_S + STEP_S * step


def backfill(directory: Path, samples: Iterable[Sample]) -> None:
    """Blocks of a Prometheus database out of samples of the past."""
    families: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for metric, labels, value, second in samples:
        families[metric].append((labels, second, value))
    directory.mkdir(exist_ok=True)
    with (directory / "openmetrics.txt").open("w") as file:
        for metric, rows in families.items():
            family = metric.removesuffix("_total")
            file.write(f"# TYPE {family} {'gauge' if family == metric else 'counter'}\n")
            file.writelines(f"{metric}{{{labels}}} {value} {second}\n" for labels, second, value in sorted(rows))
        file.write("# EOF\n")
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(directory / "openmetrics.txt"), str(directory / "tsdb")],
        check=True, capture_output=True,
    )  # fmt: skip


@contextlib.contextmanager
def prometheus(directory: Path, config: str = "") -> Iterator[str]:
    """A running server over ``directory/tsdb``; yields its address."""
    directory.mkdir(exist_ok=True)
    (directory / "prometheus.yml").write_text(config)
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb",
            "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: ready(f"http://127.0.0.1:{port}/-/ready"), "Prometheus is ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def replay(capsys: pytest.CaptureFixture[str], url: str, *options: str) -> dict[str, Any]:
    assert main(["replay", "--json", "--from", f"prometheus:{url}", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


WHOLE = ("--start", str(START_S - 60), "--end", str(START_S + 201 * STEP_S))


def labelled_root(name: str, fabric: Watched) -> list[list[Any]]:
    """Traces count nodes from 0, GUIDs here from 1."""
    label = json.loads((TRACES / name / "label.json").read_text())["episodes"][0]
    return [[fabric.guid(node + 1), port] for node, port in label["roots"]]


def test_an_incast_of_yesterday(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = watched("incast-1")
    backfill(tmp_path, scraped(fabric, range(201)))
    with prometheus(tmp_path) as url:
        found = replay(capsys, url, *WHOLE)
        coarse = replay(capsys, url, *WHOLE, "--step", "90")
        # Asked for in many small answers it is the same history.
        span = prometheus_history.Span((START_S - 60) * 10**9, (START_S + 201 * STEP_S) * 10**9)
        whole, parts = (
            {
                (s.owner, s.counter): (s.t_ns.tolist(), s.values.tolist())
                for s in prometheus_history.read(url, span, most).series
            }
            for most in (prometheus_history.SAMPLES_AT_ONCE, 2_000)
        )
    assert whole == parts
    assert found["rejects"] == []
    first = found["verdicts"][0]
    assert (first["roots"], first["cause"]) == (labelled_root("incast-1", fabric), "incast")
    assert first["root_labels"][0]["port"] == "leaf1:1"
    assert any("every shortest path was assumed" in word for word in first["blind"])
    assert any("virtual lane" in word for word in first["blind"])
    assert (found["intervals"], coarse["intervals"]) == (201, 68)  # steps are counted from --start
    assert coarse["verdicts"][0]["roots"] == first["roots"]


def test_a_healthy_day_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backfill(tmp_path, scraped(watched("quiet_uniform-1"), range(201)))
    with prometheus(tmp_path) as url:
        assert replay(capsys, url, *WHOLE)["verdicts"] == []


def test_gaps_resets_zeros_and_wrong_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scrapes are lost, somebody clears a switch during the incast, adapters show zeros, rates are those of a wrong table."""
    fabric = watched("incast-1")
    cleared, at = fabric.guid(34), 60  # leaf1, the root's own switch
    before = {(m, labels): v for m, labels, v in fabric.infiniband_exporter(at * STEP_S * 1e9)}

    def samples() -> Iterator[Sample]:
        for metric, labels, value, second in scraped(fabric, [s for s in range(201) if s not in (50, 51, 70)]):
            step = (second - START_S) // STEP_S
            if metric.endswith("_total") and cleared in labels and step >= at:
                value -= before[metric, labels]
            yield metric, labels, value, second
        for step in range(201):
            labels = f'guid="{fabric.guid(9)}",port="1"'
            yield "infiniband_hca_port_transmit_data_bytes_total", labels, 0, START_S + STEP_S * step

    backfill(tmp_path, samples())
    with prometheus(tmp_path) as url:
        found = replay(capsys, url, *WHOLE)
    assert {reject["kind"] for reject in found["rejects"]} == {"decoder_zero"}
    assert found["verdicts"][0]["roots"] == labelled_root("incast-1", fabric)
    assert any("cleared by someone else" in word for word in found["verdicts"][0]["blind"])


class _Exporter(http.server.BaseHTTPRequestHandler):
    """infiniband_exporter on a fabric that began when the server did."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = "".join(f"{m}{{{labels}}} {v}\n" for m, labels, v in server.fabric.infiniband_exporter(server.elapsed()))
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, fabric: Watched, begin_ns: float) -> None:
        super().__init__(("127.0.0.1", 0), _Exporter)
        self.fabric = fabric
        self._begin, self._started = begin_ns, time.monotonic_ns()

    def elapsed(self) -> float:
        return self._begin + time.monotonic_ns() - self._started


@contextlib.contextmanager
def exporter(fabric: Watched, begin_ns: float) -> Iterator[_Server]:
    with _Server(fabric, begin_ns) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def node_exporter(tree: SysfsTree) -> Iterator[int]:
    """The real node_exporter over a generated /sys; yields its port."""
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus-node-exporter", "--collector.disable-defaults", "--collector.infiniband",
            f"--path.sysfs={tree.root}", f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: ready(f"http://127.0.0.1:{port}/metrics"), "node_exporter answers")
        yield port
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def counting(tree: SysfsTree, server: _Server, host: int) -> Iterator[None]:
    """The counters of a host's adapter go on in its /sys. Files are replaced whole: the kernel never shows half a number."""
    stop = threading.Event()
    place = tree.root / "class/infiniband/mlx5_0/ports/1/counters"

    def run() -> None:
        while not stop.wait(0.05):
            values = server.fabric.counters((host, 1), server.elapsed())
            for file, value in (
                ("port_xmit_data", values["tx_bytes"] // 4),
                ("port_rcv_data", values["rx_bytes"] // 4),
                ("port_xmit_packets", values["tx_pkts"]),
            ):
                tree.write("new", value).replace(place / file)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_scraped_from_real_exporters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stretch = 500.0  # a millisecond of the trace takes half a second
    fabric = watched("incast-1", stretch)
    host = 13  # host12, one of the senders of the incast
    tree = SysfsTree(tmp_path / "sys")
    tree.device("mlx5_0", "mlx5_core", link_layer="InfiniBand", rate="25 Gb/sec (1X EDR)", hw_counters={})
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(exporter(fabric, 40e6 * stretch))
        stack.enter_context(counting(tree, server, host))
        node_port = stack.enter_context(node_exporter(tree))
        config = (
            "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs:\n"
            f"- job_name: fabric\n  static_configs: [{{targets: ['127.0.0.1:{server.server_address[1]}']}}]\n"
            f"- job_name: node\n  static_configs: [{{targets: ['127.0.0.1:{node_port}'], labels: {{nodename: host12}}}}]\n"
        )
        url = stack.enter_context(prometheus(tmp_path / "prometheus", config))
        wait_for(lambda: server.elapsed() > 65e6 * stretch, "the incast has gone on for a while")
        found = replay(capsys, url, "--start", "10m")
        span = prometheus_history.Span(time.time_ns() - 600 * 10**9, time.time_ns())
        history = prometheus_history.read(url, span)
    first = found["verdicts"][0]
    assert (first["roots"], first["cause"]) == (labelled_root("incast-1", fabric), "incast")
    own = {series.counter: series.values for series in history.series if series.owner.host == "host12"}
    assert set(own) >= {"port_transmit_data_bytes", "port_receive_data_bytes", "port_transmit_packets", "link_rate"}
    assert own["port_transmit_data_bytes"][-1] > own["port_transmit_data_bytes"][0] > 0
    assert set(own["link_rate"]) == {25e9}
    # host12 is found in the topology by its name: its rows are no rejects
    assert found["rejects"] == []


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with prometheus(tmp_path) as url:
        assert main(["replay", "--from", f"prometheus:{url}"]) == 1
    assert "no infiniband_switch_*" in capsys.readouterr().err
    assert main(["replay", "--from", f"prometheus:{url}"]) == 1
    assert url in capsys.readouterr().err
