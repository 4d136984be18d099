"""``fabricd up`` on this machine, whatever it has: the way a newcomer starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from fabricd.store.playback import Playback
from tests.integration.pipeline import wait_for


class Up:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fabricd", "up", "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def stop(self, number: int) -> tuple[float, str]:
        """Seconds it took, and what it said on stderr."""
        began = time.monotonic()
        self.process.send_signal(number)
        try:
            _, errors = self.process.communicate(timeout=20)
        finally:
            self.process.kill()
        return time.monotonic() - began, errors


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def node_is_up(url: str) -> bool:
    return any(line.startswith("fabricd_node_up{") and line.endswith(" 1") for line in get(url).splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_it_found_serves_it_and_leaves_nothing(number: int) -> None:
    up = Up("--json")
    try:
        found: dict[str, Any] = json.loads(up.line())
        assert found["rdma_devices"] or found["netdevs"]
        url = found["metrics"]
        wait_for(lambda: node_is_up(url), "the agent's frames arrive")
        if not found["rdma_devices"]:
            text = get(url)
            assert f'device="{found["netdevs"][0]}"' in text
            assert "fabricd_netdev_receive_bytes_total{" in text
        nodes = json.loads(get(f"{found['api']}/nodes"))["nodes"]
        assert [n["node"] for n in nodes][:1] == [found["node"]]
        assert "<h1>fabricd" in get(found["status_page"])
        listed = subprocess.run(
            [sys.executable, "-m", "fabricd", "nodes", "--url", found["status_page"]],
            capture_output=True,
            text=True,
            check=True,
        )
        assert found["node"] in listed.stdout
        shown = subprocess.run(
            [sys.executable, "-m", "fabricd", "ports", "--json", "--url", found["status_page"]],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert json.loads(shown.stdout)["total"] > 0
    finally:
        seconds, errors = up.stop(number)
    assert up.process.returncode == 0, errors
    assert seconds < 5
    assert "Traceback" not in errors
    assert not Path(found["state_dir"]).exists()


def test_in_words_and_with_a_state_that_stays(tmp_path: Path) -> None:
    up = Up("--state", str(tmp_path / "state"))
    try:
        lines = []
        while not lines or not lines[-1].startswith("stop with"):
            lines.append(up.line().rstrip("\n"))
            assert lines[-1] or up.process.poll() is None, lines
        text = "\n".join(lines)
        assert "RDMA device" in text
        if "RDMA devices  none" in text:
            assert "--twin" in text
            assert "network interfaces" in text
        url = next(line.split()[-1] for line in lines if line.strip().startswith("metrics"))
        wait_for(lambda: node_is_up(url), "the agent's frames arrive")
    finally:
        up.stop(signal.SIGINT)
    assert len(Playback(tmp_path / "state" / "recording")) > 0


def test_a_busy_port_given_by_hand_is_an_error(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "fabricd", "up", "--port", str(port)],
            capture_output=True, text=True, timeout=60, env=os.environ | {"TMPDIR": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"fabricd: api.host = 127.0.0.1, api.port = {port}: ")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("fabricd-up-*")), tempfile.gettempdir()


def test_killed_it_leaves_no_process_behind() -> None:
    up = Up("--json")
    try:
        found = json.loads(up.line())
        wait_for(lambda: node_is_up(found["metrics"]), "the agent's frames arrive")
        children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
        assert any(b"agent" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
    finally:
        up.stop(signal.SIGKILL)
    wait_for(lambda: not any(is_alive(child) for child in children), "the children end too")


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
