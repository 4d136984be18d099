"""Starting a twin and running the real tools against it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOOLS_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@contextmanager
def running_twin(scenario: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """``fabricd twin`` as a process of its own, with a coarse model that a busy machine can follow; gives its addresses."""
    if "--slots" not in arguments:
        arguments += ("--slots", "150")
    twin = subprocess.Popen(
        [sys.executable, "-m", "fabricd", "twin", scenario, "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert twin.stdout is not None and twin.stderr is not None
        line = twin.stdout.readline()
        assert line, twin.stderr.read()
        yield json.loads(line)
    finally:
        twin.terminate()
        twin.communicate(timeout=30)


class Tools:
    """Programs that sit at a node of a simulated subnet, by way of Debian's ibsim-run."""

    def __init__(self, socket_name: str, directory: Path, host: str = "") -> None:
        assert shutil.which("ibsim-run", path=TOOLS_PATH), "ibsim-utils is not installed"
        self.directory = directory
        self.environment = os.environ | {"PATH": TOOLS_PATH, "IBSIM_SOCKNAME": socket_name}
        if host:
            self.environment["SIM_HOST"] = host

    def run(self, *command: str, statuses: tuple[int, ...] = (0,)) -> str:
        """A tool's output. Each run has its own working directory: the library leaves files there."""
        done = subprocess.run(
            ["ibsim-run", *command],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in statuses, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def fields(self, *command: str) -> dict[str, str]:
        """A tool's ``Name:.......value`` lines."""
        out: dict[str, str] = {}
        for line in self.run(*command).splitlines():
            name, dots, value = line.partition(":.")
            if dots:
                out[name.strip()] = value.lstrip(".").strip()
        return out


class OpenSm:
    """An unmodified opensm on a simulated subnet."""

    def __init__(self, tools: Tools, directory: Path, options: str = "") -> None:
        directory.mkdir()
        self.log = directory / "opensm.log"
        self.hop_weights = directory / "hop_weights.conf"
        self.hop_weights.write_text("")
        self._configuration = directory / "opensm.conf"
        self._base = (
            f"log_file {self.log}\nlog_flags 0x03\nforce_log_flush TRUE\ndump_files_dir {directory}\n"
            f"sweep_interval 10\nrouting_engine minhop\nhop_weights_file {self.hop_weights}\n"
        )
        self.configure(options)
        environment = tools.environment | {"OSM_CACHE_DIR": str(directory), "OSM_TMP_DIR": str(directory)}
        self._process = subprocess.Popen(
            ["ibsim-run", "opensm", "-F", str(self._configuration)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def configure(self, options: str) -> None:
        self._configuration.write_text(self._base + options)

    def lines(self, words: str) -> int:
        """How often the log says something."""
        return self.log.read_text(errors="replace").count(words) if self.log.exists() else 0

    def wait_up(self, count: int = 1, seconds: float = 60) -> None:
        wait_until(lambda: self.lines("SUBNET UP") >= count, seconds, f"{count} x SUBNET UP")

    def reload(self) -> None:
        """SIGHUP, and wait until the sweep it causes is over."""
        before = self.lines("SUBNET UP")
        self._process.send_signal(1)
        self.wait_up(before + 1)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until it is so. Fails when it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)
