"""Runs inside the guest: agent, broker and aggregator beside a real RDMA device; prints what it measured as JSON."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

FABRICD = str(Path(sys.executable).with_name("fabricd"))
COUNTER = Path("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts")
INTERVALS = 12


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(what: str, found: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if (value := found()) not in (None, False):
                return value
        except (OSError, httpx.HTTPError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


def once() -> dict[str, Any]:
    out = subprocess.run([FABRICD, "agent", "--once", "--json"], check=True, capture_output=True, text=True).stdout
    document: dict[str, Any] = json.loads(out)
    return document


class KernelSampler(threading.Thread):
    """The kernel's own counter, many times a second: when did it stand where?"""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self.values: list[int] = []
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.02):
            value = int(COUNTER.read_text())
            self.values.append(value)
            self.times.append(time.monotonic())

    def when(self, value: int) -> float:
        """The time at which the counter passed ``value``, between two samples by proportion."""
        at = bisect_left(self.values, value)
        low, high = self.values[at - 1], self.values[at]
        return self.times[at - 1] + (self.times[at] - self.times[at - 1]) * (value - low) / max(high - low, 1)


def traffic() -> list[subprocess.Popen[bytes]]:
    """Two ends of a ping-pong over rxe0, each begun again when it ends: the client may come before the server listens."""
    pingpong = "ibv_rc_pingpong -d rxe0 -g 1 -n 100000000 -s 4096"
    loops = [f"while :; do {pingpong} {peer} >/dev/null 2>&1; sleep 0.3; done" for peer in ("", "10.9.0.1")]
    return [subprocess.Popen(["bash", "-c", loop], start_new_session=True) for loop in loops]


def measure(work: Path) -> dict[str, Any]:
    """The aggregator's rate of sent packets against the kernel's."""
    port = free_port()
    (work / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    api = work / "aggregator.sock"
    (work / "fabricd.toml").write_text(
        f'[broker]\nport = {port}\n[agent]\nnode = "guest"\nspool_dir = "{work}/spool"\n'
        f'[aggregator]\nrecording_mb = 16\nrecording_dir = "{work}/recording"\nsocket = "{api}"\n'
    )
    log = (work / "log").open("wb")
    commands = [["mosquitto", "-c", str(work / "mosquitto.conf")]]
    commands += [[FABRICD, name, "--config", str(work / "fabricd.toml")] for name in ("aggregator", "agent")]
    processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
    loops = traffic()
    sampler = KernelSampler()
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(api)), base_url="http://aggregator") as client:

            def reading() -> tuple[int, float] | None:
                ports = client.get("/api/v1/ports", params={"device": "rxe0"}).json()["ports"]
                found = [c for p in ports for c in p["counters"] if c["raw"] == "sent_pkts" and c["rate"]]
                return (found[0]["value"], found[0]["rate"]) if found else None

            try:
                wait_for("a rate of rxe0", reading, 150)
            except AssertionError as error:
                raise AssertionError(
                    f"{error}\n{client.get('/api/v1/nodes').text}\n{client.get('/readyz').text}"
                ) from None
            sampler.start()
            time.sleep(1.5)
            seen: list[tuple[int, float]] = []

            def enough() -> bool:
                now = reading()
                if now is not None and (not seen or now[0] != seen[-1][0]):
                    seen.append(now)
                return len(seen) > INTERVALS

            wait_for("readings", enough, 60)
            time.sleep(0.2)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(work / 'log').read_text(errors='replace')[-3000:]}") from None
    finally:
        sampler.stop.set()
        for loop in loops:
            os.killpg(loop.pid, signal.SIGKILL)
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(15)
    first, last = seen[0][0], seen[-1][0]
    kernel = (last - first) / (sampler.when(last) - sampler.when(first))
    # The aggregator's own measure of the same stretch: each movement took (movement / its rate) seconds.
    moved = [(now - before, rate) for (before, _), (now, rate) in pairwise(seen)]
    aggregator = (last - first) / sum(delta / rate for delta, rate in moved)
    log_text = (work / "log").read_text(errors="replace")[-2000:]
    return {"kernel": kernel, "aggregator": aggregator, "intervals": len(moved), "seen": seen, "log": log_text}


def unplugged() -> dict[str, Any]:
    """A device removed and added again under kept descriptors, as a driver reload does."""
    from fabricd.config.agent import AgentConfig
    from fabricd.daemons.agent_reader import NodeReader
    from fabricd.model.rejects import Rejects

    rejects = Rejects()
    reader = NodeReader(AgentConfig(), "guest", rejects)

    def names() -> list[str]:
        reader.search_if_due()
        reader.read(0, time.monotonic_ns())
        return [device["name"] for device in reader.to_json()["devices"]]

    def epoch() -> int:
        return next(p.epoch for stream in reader.streams for p in stream.rows if p.row.device == "rxe0")

    before, first = names(), epoch()
    # Read without looking first: the descriptors are still open when the device goes.
    subprocess.run(["rdma", "link", "delete", "rxe0"], check=True)
    reader.read(0, time.monotonic_ns())
    gone = dict(rejects.counts)
    without = names()
    subprocess.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "veth0"], check=True)
    again = wait_for("rxe0 again", lambda: names() if "rxe0" in names() else None)
    return {"before": before, "gone": gone, "without": without, "again": again, "new_epoch": epoch() != first}


def doctor() -> dict[str, Any]:
    """The doctor's verdict and subjects on the real kernel, by check."""
    done = subprocess.run(
        [sys.executable, "-m", "fabricd", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3):
        raise AssertionError(done.stderr)
    return {check["id"]: check for check in json.loads(done.stdout)["checks"]}


def rdma_statistics() -> dict[str, int]:
    out = subprocess.run(
        ["rdma", "-j", "statistic", "show", "link", "rxe0/1"], check=True, capture_output=True, text=True
    )
    return {k: v for k, v in json.loads(out.stdout)[0].items() if isinstance(v, int)}


def netlink_statistics() -> dict[str, int]:
    from fabricd.sources import rdma_netlink
    from fabricd.sources.netlink import NetlinkSocket

    sock = NetlinkSocket(rdma_netlink.NETLINK_RDMA)
    index = rdma_netlink.decode_devices(sock.ask(rdma_netlink.encode_devices()))["rxe0"]
    return rdma_netlink.decode_statistics(sock.ask(rdma_netlink.encode_statistics(index, 1)))


def main() -> None:
    work = Path(tempfile.mkdtemp(prefix="guest-", dir="/run"))
    work.chmod(0o755)
    result: dict[str, Any] = {"kernel_release": os.uname().release}
    result["once"] = once()
    result["rdma"], result["netlink"] = rdma_statistics(), netlink_statistics()
    result["doctor"] = doctor()
    result["rate"] = measure(work)
    result["unplugged"] = unplugged()
    shutil.rmtree(work, ignore_errors=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
