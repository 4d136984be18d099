"""The active probe: ib_write_bw (perftest) through one NIC, this host to itself. On request only: it moves data."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from typing import Any

SECONDS = 2
TIMEOUT_S = 30
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", re.MULTILINE)


def parse_gbps(output: str) -> float | None:
    """Average Gb/s of the last result line (bytes, iterations, peak, average, message rate); None without one."""
    rows = _ROW.findall(output)
    return float(rows[-1][3]) if rows else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(device: str, say: Callable[[str], None], command: str = "ib_write_bw") -> dict[str, Any]:
    """``{"gbps": number|None, "why": text}``: server and client on this host over ``device``."""
    program = shutil.which(command)
    if program is None:
        return {"gbps": None, "why": f"{command} is not installed (package perftest)"}
    say(f"probing {device} for {SECONDS} s")
    base = [program, "-d", device, "-F", "-D", str(SECONDS), "--report_gbits", "-p", str(_free_port())]
    server = subprocess.Popen(base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        client = _client(base, server)
    except subprocess.TimeoutExpired:
        return {"gbps": None, "why": f"no result within {TIMEOUT_S} s"}
    finally:
        server.kill()
        server.wait()
    gbps = parse_gbps(client.stdout)
    last = next((line for line in reversed(client.stdout.splitlines()) if line.strip()), "no output")
    return {"gbps": gbps, "why": "" if gbps is not None else f"{command}: {last.strip()[:160]}"}


def _client(base: list[str], server: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """The client retries while the server is not listening yet."""
    for _ in range(20):
        done = subprocess.run(
            [*base, "127.0.0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if "Couldn't connect" not in done.stdout and "Connection refused" not in done.stdout:
            return done
        try:
            server.wait(0.2)
            return done  # the server ended by itself: its device does not work, and trying again does not help
        except subprocess.TimeoutExpired:
            continue
    return done
