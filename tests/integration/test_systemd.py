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

from fabricd.config.load import describe
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
        (directory / path.name).write_text(text)
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


def setting(path: Path, key: str) -> list[str]:
    """The words of every ``key=`` line of a unit."""
    return [word for line in re.findall(rf"(?m)^{key}=(.*)$", path.read_text()) for word in line.split()]


@pytest.mark.parametrize("kind", ["StateDirectory", "RuntimeDirectory"])
def test_no_unit_owns_the_directory_of_another(kind: str) -> None:
    """systemd hands a directory with all below it to the unit's user: a shared parent would take the others' files away."""
    owned = [(path.name, setting(path, "User"), directory) for path in SERVICES for directory in setting(path, kind)]
    for one, user, directory in owned:
        for other, other_user, below in owned:
            if user != other_user:
                assert directory != below, (one, other)
                assert not below.startswith(f"{directory}/"), (one, other)


def test_every_user_and_group_is_made_on_installation() -> None:
    lines = [line.split() for file in (UNITS / "sysusers.d").iterdir() for line in file.read_text().splitlines()]
    made = {line[1] for line in lines if line and line[0] in ("u", "g")}
    for path in FILES:
        for key in ("User", "Group", "SupplementaryGroups", "SocketUser", "SocketGroup"):
            assert set(setting(path, key)) <= made, (path.name, key)


@pytest.mark.parametrize(
    ("unit", "keys"),
    [
        ("agent", ["agent.spool_dir"]),
        ("collector", ["collector.spool", "collector.lease_dir", "topology.cache"]),
        ("aggregator", ["aggregator.recording_dir", "alerts.queue_dir", "aggregator.socket"]),
        ("controller", ["control.journal", "control.latch_dir"]),
    ],
)
def test_what_a_daemon_writes_by_default_its_unit_lets_it_write(unit: str, keys: list[str]) -> None:
    defaults = {key: default for key, _, default, _ in describe()}
    path = UNITS / f"fabricd-{unit}.service"
    allowed = [f"/var/lib/{name}" for name in setting(path, "StateDirectory")]
    allowed += [f"/run/{name}" for name in setting(path, "RuntimeDirectory")]
    for key in keys:
        assert any(f"{defaults[key]}/".startswith(f"{directory}/") for directory in allowed), (key, defaults[key])


@pytest.mark.parametrize("unit", ["agent", "collector", "aggregator", "controller", "doctor"])
def test_what_talks_to_the_broker_has_its_credentials(unit: str) -> None:
    assert {"mqtt-password", "mqtt-key"} <= set(setting(UNITS / f"fabricd-{unit}.service", "LoadCredential"))


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
