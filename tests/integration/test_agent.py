"""The agent as users run it: one reading, the daemon beside a real broker, Prometheus without a broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from fabricd.model.frame import Schema, decode_schema
from fabricd.store.decode import Frame, decode_frame
from tests.brokers import Broker, free_port, mosquitto
from tests.sysfs_tree import IB_COUNTERS, SysfsTree

FABRICD = str(Path(sys.executable).with_name("fabricd"))
PATIENCE_S = 60


@pytest.fixture
def tree(tmp_path: Path) -> SysfsTree:
    tree = SysfsTree(tmp_path / "sys")
    for number in range(2):
        tree.device(f"mlx5_{number}", "mlx5_core", guid=number + 1, address=f"0000:0{number}:00.0")
    return tree


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    started = mosquitto(tmp_path / "broker")
    started.start()
    yield started
    started.kill()


def config(tmp_path: Path, tree: SysfsTree, port: int, name: str = "n1", **agent: Any) -> Path:
    settings = {
        "node": name,
        "sysfs": str(tree.root),
        "spool_dir": str(tmp_path / f"spool-{name}"),
        "interval": 0.2,
    } | agent
    path = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}.toml"
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
    path.write_text(f"[broker]\nport = {port}\n[agent]\n{lines}\n")
    return path


@contextmanager
def daemon(path: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([FABRICD, "agent", "--config", str(path)], stderr=subprocess.PIPE, text=True, **more)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Listener:
    """What came from the agent, in order."""

    def __init__(self) -> None:
        self.schemas: list[Schema] = []
        self.frames: list[Frame] = []
        self.statuses: list[dict[str, Any]] = []

    def take(self, topic: str, payload: bytes) -> None:
        kind = topic.split("/")[2]
        if kind == "schema":
            self.schemas.append(decode_schema(payload))
        elif kind == "frames":
            self.frames.append(decode_frame(payload))
        elif kind == "status":
            self.statuses.append(json.loads(payload))

    def value(self, device: str, name: str) -> int | None:
        """The newest value of a counter."""
        for frame in reversed(self.frames):
            schema = next((s for s in self.schemas if s.id == frame.header.schema_id), None)
            rows = [i for i, row in enumerate(schema.rows) if row.device == device] if schema else []
            if schema and rows:
                column = next(i for i, c in enumerate(schema.columns) if c.name == name)
                return int(frame.values[rows[0], column]) if frame.flags[rows[0], column] & 1 else None
        return None


def listen(port: int, until: Callable[[Listener], object], begin: Callable[[], None] = lambda: None) -> Listener:
    """Subscribe, then ``begin``, then collect until the condition holds; fails after PATIENCE_S."""
    heard = Listener()

    async def collect() -> None:
        async with aiomqtt.Client("127.0.0.1", port) as client:
            await client.subscribe("fabricd/default/#", qos=1)
            begin()
            async for message in client.messages:
                heard.take(message.topic.value, bytes(message.payload))
                if until(heard):
                    return

    try:
        asyncio.run(asyncio.wait_for(collect(), PATIENCE_S))
    except TimeoutError:
        raise AssertionError(
            f"{len(heard.schemas)} schemas, {len(heard.frames)} frames, last status {heard.statuses[-1:]}"
        ) from None
    return heard


class Manager(threading.Thread):
    """Takes what the daemon tells its manager, until there is no more."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(daemon=True)
        self.messages: list[bytes] = []
        self.stop = threading.Event()
        self._sock = sock
        sock.settimeout(0.1)
        self.start()

    def run(self) -> None:
        while True:
            try:
                self.messages.append(self._sock.recv(500))
            except TimeoutError:
                if self.stop.is_set():
                    return


def once(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FABRICD, "agent", "--once", *arguments], capture_output=True, text=True, timeout=60)


def test_once_is_one_document_of_the_agreed_shape(tree: SysfsTree) -> None:
    done = once("--json", "--sysfs", str(tree.root))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["node"] and document["rejects"] == []
    device = document["devices"][0]
    assert device | {"ports": []} == {
        "name": "mlx5_0", "driver": "mlx5_core", "node_guid": "0x0000000000000001", "fw_ver": "28.39.1002",
        "board_id": "MT_0000000838", "role": "physical", "ports": [],
    }  # fmt: skip
    assert {"port", "link_layer", "state", "phys_state", "rate_gbps", "netdev", "counters"} <= device["ports"][0].keys()
    assert device["ports"][0]["counters"]["port_transmit_data_bytes"] == {
        "value": 4 * IB_COUNTERS["port_xmit_data"], "unit": "bytes", "width": 64, "flags": [], "raw": "port_xmit_data",
        "source": "sysfs",
    }  # fmt: skip


def test_once_in_words(tree: SysfsTree) -> None:
    done = once("--sysfs", str(tree.root))
    assert "mlx5_0: mlx5_core 0x0000000000000001" in done.stdout
    assert "port 1: Ethernet ACTIVE LinkUp 400 Gb/s" in done.stdout


@pytest.mark.parametrize("arguments", [["--sysfs", "/nowhere/at/all"], ["--config", "/nowhere/at/all.toml"]])
def test_wrong_usage_is_one_line(arguments: list[str]) -> None:
    done = once(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "/nowhere/at/all" in done.stderr


def test_the_agents_imports_stay_small() -> None:
    heavy = ("numpy", "scipy", "prometheus_client", "starlette", "httpx")
    code = f"import sys, fabricd.daemons.agent; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_frames_schema_status_reload_and_stop(tmp_path: Path, tree: SysfsTree, broker: Broker) -> None:
    path = config(tmp_path, tree, broker.port, status_interval=1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000", "PATH": "/usr/bin:/bin"}
        with daemon(path, env=environment) as process:
            assert manager.recv(500).startswith(b"READY=1\nSTATUS=node n1: 2 RDMA devices with 2 ports")
            said = Manager(manager)
            heard = listen(broker.port, lambda h: len(h.frames) >= 12 and h.value("mlx5_1", "symbol_error") == 0)
            sequences = [frame.header.seq for frame in heard.frames]
            assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
            assert len({frame.header.boot for frame in heard.frames}) == 1
            walls = sorted({frame.header.wall_ns for frame in heard.frames})
            assert all(wall % 200_000_000 < 150_000_000 for wall in walls[1:])  # begun near multiples of the interval
            assert {s.stream for s in heard.schemas} == {frame.header.stream for frame in heard.frames}
            assert heard.value("mlx5_0", "port_transmit_data_bytes") == 4 * IB_COUNTERS["port_xmit_data"]

            Path(tree.port_file("mlx5_0", "counters/port_xmit_data")).write_text("5000\n")
            listen(broker.port, lambda h: h.value("mlx5_0", "port_transmit_data_bytes") == 20_000)

            path.write_text(path.read_text() + 'device_exclude = ["mlx5_1"]\n')
            heard = listen(
                broker.port,
                lambda h: h.statuses and [d["name"] for d in h.statuses[-1].get("devices", ())] == ["mlx5_0"],
                lambda: process.send_signal(signal.SIGHUP),
            )
            assert heard.statuses[-1]["state"] == "alive" and heard.statuses[-1]["version"]

            path.write_text(path.read_text() + 'interval = "soon"\n')
            process.send_signal(signal.SIGHUP)
            listen(broker.port, lambda h: len(h.frames) >= 3)  # a wrong file changes nothing

            began = time.monotonic()
            heard = listen(
                broker.port,
                lambda h: h.statuses and h.statuses[-1]["state"] == "stopped",
                lambda: process.send_signal(signal.SIGTERM),
            )
            assert process.wait(PATIENCE_S) == 0
            assert time.monotonic() - began < 10
            said.stop.set()
            said.join()
            assert b"WATCHDOG=1" in said.messages and said.messages[-1] == b"STOPPING=1"
            assert any(m.startswith(b"RELOADING=1") for m in said.messages)


def test_death_is_announced(tmp_path: Path, tree: SysfsTree, broker: Broker) -> None:
    with daemon(config(tmp_path, tree, broker.port)) as process:
        listen(broker.port, lambda h: len(h.frames) >= 2)
        heard = listen(broker.port, lambda h: h.statuses and h.statuses[-1]["state"] == "dead", process.kill)
        assert heard.statuses[-1]["node"] == "n1"


def test_two_agents_with_one_node_id(tmp_path: Path, tree: SysfsTree, broker: Broker) -> None:
    first = config(tmp_path, tree, broker.port, status_interval=1)
    second = config(tmp_path, tree, broker.port, status_interval=1, spool_dir=str(tmp_path / "other-spool"))
    with daemon(first), daemon(second):
        heard = listen(broker.port, lambda h: any(s.get("duplicate_node_id") for s in h.statuses))
        assert any(s["rejects"]["counts"].get("duplicate_node_id") for s in heard.statuses if "rejects" in s)


def test_no_burst_after_a_pause(tmp_path: Path, tree: SysfsTree, broker: Broker) -> None:
    """A stopped process skips what it missed: frames afterwards are an interval apart, and the gap is told."""
    with daemon(config(tmp_path, tree, broker.port)) as process:
        listen(broker.port, lambda h: len(h.frames) >= 4)
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        heard = listen(
            broker.port, lambda h: (h.value("", "agent_intervals_skipped") or 0) >= 5 and len(h.frames) >= 30
        )
        walls = sorted({frame.header.wall_ns for frame in heard.frames})
        gaps = [after - before for before, after in itertools.pairwise(walls)]
        # At most the first reading after the pause is nearer to the next one; a burst would be many.
        assert sum(gap < 50_000_000 for gap in gaps) <= 1, gaps


def test_own_metrics_without_a_broker(tmp_path: Path, tree: SysfsTree) -> None:
    port = free_port()
    path = config(tmp_path, tree, 1, publish=False, metrics_listen=f"127.0.0.1:{port}")
    with daemon(path):
        end = time.monotonic() + PATIENCE_S
        page = b""
        while b"fabricd_agent_read_duration_seconds{" not in page and time.monotonic() < end:
            try:
                page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            except OSError:
                time.sleep(0.1)
    assert b'fabricd_port_transmit_data_bytes_total{device="mlx5_0"' in page
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"publish": False}, "agent.metrics_listen"),
        ({"spool_dir": "/proc/nowhere"}, "/proc/nowhere"),
        ({"metrics_listen": "192.0.2.1:9"}, "agent.metrics_listen"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    tmp_path: Path, tree: SysfsTree, settings: dict[str, Any], says: str
) -> None:
    path = config(tmp_path, tree, 1, **settings)
    done = subprocess.run([FABRICD, "agent", "--config", str(path)], capture_output=True, text=True, timeout=60)
    errors = [line for line in done.stderr.splitlines() if line.startswith("fabricd: ")]
    assert done.returncode in (1, 2) and len(errors) == 1 and says in errors[0]
    assert "Traceback" not in done.stderr
