"""The processes of a pipeline for tests: publishers, the aggregator, and questions to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricd.store.playback import Playback

REPORTS = {"FABRICD_AGGREGATOR__REPORT_INTERVAL": "0.2", "FABRICD_BROKER__RECONNECT_MAX": "0.5"}


def wait_for(what: Callable[[], Any], why: str, seconds: float = 60) -> Any:
    """Poll until true."""
    deadline = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {why}"
        time.sleep(0.1)


class Node:
    """A publishing process; ``sent`` are the sequences it handed to its publisher."""

    def __init__(self, port: int, spool: Path, name: str, rate: float = 100, spool_mb: int = 64) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.publisher_child", str(port), str(spool), name, str(rate), str(spool_mb)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.boot = int(self._process.stdout.readline().split()[1])
        self.sent = -1
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.sent = int(line)

    def end_frames(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


class Aggregator:
    """``fabricd aggregator`` as a process, with its unix socket."""

    def __init__(self, port: int, directory: Path, **settings: str) -> None:
        self.recording = directory / "recording"
        self._socket = directory / "aggregator.sock"
        self._environ = os.environ | REPORTS | {"FABRICD_BROKER__PORT": str(port)} | settings
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fabricd", "aggregator", "--recording", str(self.recording), "--socket", str(self._socket)],
            env=self._environ, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: self.get("/healthz")[0] == 200, "the aggregator answers")

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body; (0, b"") when nobody answers."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            link = http.client.HTTPConnection("aggregator", timeout=10)
            link.sock = socket.socket(socket.AF_UNIX)
            link.sock.connect(str(self._socket))
            with contextlib.closing(link):
                link.request("GET", path)
                answer = link.getresponse()
                return answer.status, answer.read()
        return 0, b""

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        return json.loads(body) if status in (200, 503) else {}

    def stored(self, node: str) -> int:
        return int(
            next((n["stored_frames"] for n in self.json("/api/v1/nodes").get("nodes", ()) if n["node"] == node), 0)
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """SIGTERM; returns the seconds it took."""
        began = time.monotonic()
        self.process.terminate()
        try:
            assert self.process.wait(20) == 0
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return time.monotonic() - began


def recorded(directory: Path) -> dict[tuple[str, int], list[int]]:
    """The sequences in a recording by (node, boot), in the order playback gives them."""
    found: dict[tuple[str, int], list[int]] = {}
    for played in Playback(directory):
        header = played.frame.header
        # The content is checked as well as the number: cell c of frame n holds 10 n + c.
        assert played.frame.values.reshape(-1)[[0, -1]].tolist() == [header.seq * 10, header.seq * 10 + 199]
        found.setdefault((header.node, header.boot), []).append(header.seq)
    return found
