"""The collector daemon against opensm, ibsim and mosquitto: frames into the store, typed Gets, hand-over between two."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fabricd.errors import FabricdError
from fabricd.ib.gets import GetClient
from fabricd.model import topics
from fabricd.model.frame import FrameError, decode_schema, read_header
from fabricd.store.decode import view_frame
from tests.ibsim import Fabric, leaf_spine

FABRICD = str(Path(sys.executable).with_name("fabricd"))
FABRIC = "lab"
PORTS = 4 * 7


def wait_for(what: str, condition: Callable[[], Any], timeout: float = 40) -> Any:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout} s: {what}")


class Broker:
    """mosquitto on a free port, and a subscriber that writes down everything."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        config = directory / "mosquitto.conf"
        config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        self._log = directory / "messages"
        self.server = subprocess.Popen(
            ["mosquitto", "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._subscriber: subprocess.Popen[bytes] | None = None
        wait_for("mosquitto", self._listens)
        self._subscriber = subprocess.Popen(
            ["mosquitto_sub", "-p", str(self.port), "-t", f"{topics.ROOT}/#", "-F", "%t %x"],
            stdout=self._log.open("wb"),
        )

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def messages(self, topic: str) -> list[bytes]:
        """Payloads on a topic so far, oldest first."""
        lines = self._log.read_text().splitlines()
        return [bytes.fromhex(line.partition(" ")[2]) for line in lines if line.partition(" ")[0] == topic]

    def status(self, node: str) -> dict[str, Any]:
        found = [json.loads(m) for m in self.messages(topics.status(FABRIC, node)) if m]
        return found[-1] if found else {}

    def stop(self) -> None:
        for process in (self._subscriber, self.server):
            if process is not None:
                process.terminate()
                process.wait(10)


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Fabric(leaf_spine(2, 2, hosts=4, ports=7)) as fabric:
        yield fabric


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


@contextmanager
def collector(
    fabric: Fabric, broker: Broker, directory: Path, name: str, **settings: object
) -> Iterator[subprocess.Popen[bytes]]:
    chosen = {
        "fabric__name": FABRIC,
        "broker__port": broker.port,
        "collector__node": name,
        "collector__spool": directory / f"spool-{name}",
        "collector__socket": directory / f"{name}.sock",
        "collector__interval": 0.25,
        "collector__lease_seconds": 2,
        "collector__mad_socket": fabric.socket_name,
        "collector__mad_host": fabric.hosts[1],
        **settings,
    }
    env = os.environ | {f"FABRICD_{key.upper()}": str(value) for key, value in chosen.items()}
    process = subprocess.Popen([FABRICD, "collector"], env=env, stderr=(directory / f"{name}.log").open("wb"))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def values(broker: Broker, node: str) -> dict[tuple[str, int, str, int | None], tuple[int, int]]:
    """(switch, port, counter, lane) -> (value, flags), the newest of each stream."""
    schemas = {}
    for topic_stream in range(60):
        for payload in broker.messages(topics.schema(FABRIC, node, topic_stream)):
            schema = decode_schema(payload)
            schemas[schema.id] = schema
    out = {}
    for payload in broker.messages(topics.frames(FABRIC, node)):
        header = read_header(payload)
        schema = schemas[header.schema_id]
        view = view_frame(payload, header)
        for row, cells, flags in zip(schema.rows, view.values.tolist(), view.flags.tolist(), strict=True):
            for column, value, flag in zip(schema.columns, cells, flags, strict=True):
                out[row.device, row.port, column.name, column.priority] = (value, flag)
    return out


def test_frames_carry_what_the_switches_count(fabric: Fabric, broker: Broker, tmp_path: Path) -> None:
    fabric.console(
        'PerformanceSet "leaf01"[7] PortCountersExtended.PortXmitData=1000',
        'PerformanceSet "leaf01"[7] PortCounters.PortRcvErrors=3',
        'PerformanceSet "leaf01"[7] PortRcvErrorDetails.PortBufferOverrunErrors=3',
        'PerformanceSet "leaf01"[7] PortVLXmitWaitCounters.PortVLXmitWaitCounters2=65535',
    )
    with collector(fabric, broker, tmp_path, "c1", collector__slow_interval=1) as process:
        wait_for("a status with sweeps", lambda: broker.status("c1").get("answered") == PORTS)
        wanted = {
            ("leaf01", 7, "port_transmit_data_bytes", None): (4000, 1),
            ("leaf01", 7, "port_receive_errors", None): (3, 1),
            ("leaf01", 7, "receive_buffer_overrun_errors", None): (3, 1),
            ("leaf01", 7, "vl_transmit_wait", 2): (65535, 1 | 2),
        }

        def arrived() -> bool:
            try:
                return wanted.items() <= values(broker, "c1").items()
            except (FrameError, KeyError, ValueError):
                return False  # the subscriber was in the middle of a line

        wait_for("all counters", arrived)
        status = broker.status("c1")
        assert status["kind"] == "collector" and status["ports"] == PORTS and status["switches"] == 4
        assert status["silent"] == [] and status["other_sweepers"] == [] and status["state"] == "alive"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    wait_for("the last word", lambda: broker.status("c1").get("state") == "stopped")


def test_typed_gets(fabric: Fabric, broker: Broker, tmp_path: Path) -> None:
    fabric.console('PerformanceSet "leaf00"[7] PortOpRcvCounters.PortOpRcvPkts=77')
    path = tmp_path / "c1.sock"
    with collector(fabric, broker, tmp_path, "c1"):
        wait_for("the socket", path.is_socket)
        assert path.stat().st_mode & 0o777 == 0o660
        with GetClient(str(path)) as client:
            lids = {}
            for lid in range(1, 20):
                reply = client.get("NodeDescription", lid)
                if reply.reply == "ok":
                    lids[reply.raw.split(b"\0")[0].decode()] = lid
            assert set(lids) == {*fabric.hosts, "leaf00", "leaf01", "spine00", "spine01"}
            leaf = lids["leaf00"]
            assert int.from_bytes(client.get("PortInfo", leaf, port=0).raw[16:18], "big") == leaf
            counters = client.get("PortOpRcvCounters", leaf, port=7)
            assert int.from_bytes(counters.raw[4:8], "big") == 77
            assert client.get("PortRcvConCtrl", leaf, port=7).reply == "timeout"
            assert client.get("PortCounters", leaf, port=200).reply == "invalid"
            refused = client.get("SetPortInfo", leaf)
            assert refused.reply == "refused" and "SetPortInfo" in refused.error
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(path))
            raw.sendall(b"x" * 5000 + b"\n")
            assert b"refused" in raw.recv(1000)
    with pytest.raises(FabricdError, match="collector socket"):
        GetClient(str(path))


def test_two_collectors_take_turns(fabric: Fabric, broker: Broker, tmp_path: Path) -> None:
    with collector(fabric, broker, tmp_path, "c1") as first:
        wait_for("the first to sweep", lambda: broker.status("c1").get("answered") == PORTS)
        with collector(fabric, broker, tmp_path, "c2", collector__mad_host=fabric.hosts[2]):
            wait_for("the second to stand by", lambda: broker.status("c2").get("other_sweepers") == ["c1"])
            assert broker.status("c2")["shards"] == [] and not broker.messages(topics.frames(FABRIC, "c2"))
            first.kill()  # without a word: its lease runs out
            wait_for("the second to take over", lambda: broker.messages(topics.frames(FABRIC, "c2")))


def test_two_collectors_share_the_switches(fabric: Fabric, broker: Broker, tmp_path: Path) -> None:
    with (
        collector(fabric, broker, tmp_path, "c1", collector__shards=8),
        collector(fabric, broker, tmp_path, "c2", collector__shards=8, collector__mad_host=fabric.hosts[2]),
    ):

        def shared() -> bool:
            one, two = broker.status("c1"), broker.status("c2")
            return (
                len(one.get("shards", ())) == len(two.get("shards", ())) == 4
                and one["ports"] + two["ports"] == PORTS
                and one["answered"] + two["answered"] == PORTS
            )

        wait_for("a fair share each", shared, timeout=60)
        assert not set(broker.status("c1")["shards"]) & set(broker.status("c2")["shards"])


def test_the_fabric_is_watched_while_the_broker_is_away(fabric: Fabric, broker: Broker, tmp_path: Path) -> None:
    with collector(fabric, broker, tmp_path, "c1", broker__port=1):
        spool = tmp_path / "spool-c1"
        wait_for("frames on disk", lambda: spool.is_dir() and any(p.stat().st_size > 4096 for p in spool.iterdir()))


def test_a_device_that_goes_away_is_said_and_waited_for(broker: Broker, tmp_path: Path) -> None:
    with Fabric(leaf_spine(2, 2, hosts=2)) as fabric, collector(fabric, broker, tmp_path, "c1") as process:
        wait_for("sweeps", lambda: broker.status("c1").get("answered") == 16)
        fabric.stop()
        trouble = wait_for("the trouble", lambda: broker.status("c1").get("trouble"))
        assert "MAD" in trouble and process.poll() is None


def test_wrong_settings_are_one_line(tmp_path: Path) -> None:
    env = os.environ | {"FABRICD_COLLECTOR__PER_SWITCH": "9"}
    done = subprocess.run([FABRICD, "collector"], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "collector.per_switch = 9" in done.stderr and "Traceback" not in done.stderr
