"""Every unit file: systemd itself finds it right, and its sandbox is as tight as promised."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import brokers

UNITS = Path(__file__).parents[2] / "systemd"
# Highest exposure (systemd-analyze security, 0 = none, 10 = everything) of each service. A new unit needs a line here.
EXPOSURE = {
    "fabricd-agent.service": 3.5,
    "fabricd-aggregator.service": 2.5,
    "fabricd-api.service": 2.5,
    "fabricd-collector.service": 3.5,
    "fabricd-controller.service": 3.5,
    "fabricd-expire.service": 3.5,
    "fabricd-doctor.service": 3.5,
    "fabricd-doctor-dump.service": 3.5,
}
FILES = sorted(path for path in UNITS.iterdir() if path.suffix in (".service", ".socket", ".timer", ".target"))
SERVICES = [path for path in FILES if path.suffix == ".service"]


def name(path: Path) -> str:
    return path.name


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units as a package would install them: with the binary where they say it is."""
    directory = tmp_path_factory.mktemp("units")
    binary = Path(sys.executable).with_name("fabricd")
    for path in FILES:
        text = re.sub(r"(?m)^(Exec\w+=)([-+!]*)/usr/bin/fabricd", rf"\1\2{binary}", path.read_text())
        # The manual pages and files a package brings are not here.
        (directory / path.name).write_text(re.sub(r"(?m)^Documentation=.*\n", "", text))
    return directory


@pytest.mark.parametrize("path", FILES, ids=name)
def test_systemd_finds_nothing_wrong(path: Path, installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=one", str(installed / path.name)],
        capture_output=True, text=True, env=os.environ | {"SYSTEMD_UNIT_PATH": f"{installed}:"},
    )  # fmt: skip
    complaints = [line for line in (done.stderr + done.stdout).splitlines() if "fabricd" in line]
    assert not complaints
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SERVICES, ids=name)
def test_exposure(path: Path, installed: Path) -> None:
    limit = EXPOSURE[path.name]
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed / path.name)]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= limit


@pytest.mark.parametrize("path", [p for p in SERVICES if "Type=oneshot" not in p.read_text()], ids=name)
def test_daemons_notify_and_stop_in_time(path: Path) -> None:
    text = path.read_text()
    assert "Type=notify" in text
    assert re.search(r"(?m)^WatchdogSec=", text)
    assert re.search(r"(?m)^TimeoutStopSec=5s?$", text)
    assert re.search(r"(?m)^(User=fabricd|DynamicUser=yes)", text), "a user of its own"


def notifications(listener: socket.socket, until: str, seconds: float = 30) -> list[str]:
    """What a daemon tells its manager, up to the first message that holds ``until``."""
    listener.settimeout(0.5)
    got: list[str] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            got.append(listener.recv(4096).decode())
        except TimeoutError:
            continue
        if until in got[-1]:
            return got
    raise AssertionError(f"no {until} within {seconds} s: {got}")


@pytest.mark.parametrize("daemon", ["aggregator", "api"])
def test_a_daemon_says_ready_feeds_the_watchdog_reloads_and_stops(daemon: str, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    broker = brokers.mosquitto(tmp_path / "broker")
    config = tmp_path / "fabricd.toml"
    text = f'[aggregator]\nrecording_dir = "{tmp_path}/rec"\nsocket = "{tmp_path}/s"\n[api]\nport = 0\n'
    text += f"[broker]\nport = {broker.port}\n"
    config.write_text(text)
    with brokers.running(broker):
        process = subprocess.Popen(
            [shutil.which("fabricd", path=str(Path(sys.executable).parent)) or "fabricd", daemon, "--config", str(config)],
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            notifications(listener, "READY=1")
            notifications(listener, "WATCHDOG=1")
            config.write_text(text.replace("[aggregator]", "[aggregator]\nstale_after = 9.0"))
            process.send_signal(signal.SIGHUP)
            notifications(listener, "RELOADING=1")
            notifications(listener, "READY=1")
            config.write_text(text.replace("[aggregator]", "[aggregator]\nstale_after = -1"))
            process.send_signal(signal.SIGHUP)
            notifications(listener, "READY=1")
            began = time.monotonic()
            process.terminate()
            notifications(listener, "STOPPING=1")
            _, errors = process.communicate(timeout=20)
            assert process.returncode == 0
            assert time.monotonic() - began < 5
            assert b"aggregator.stale_after = -1" in errors
            assert b"Traceback" not in errors
        finally:
            process.kill()
            process.communicate()
            listener.close()
