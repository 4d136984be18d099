"""The node agent against prometheus-node-exporter on one generated tree: CPU per counter, memory.

    python -m benchmarks.agent [--json] [--seconds 20] [--rate 10]

Both read the same tree (8 devices x 22 port counters and 40 hardware counters, of which 7 and 8 move between any two readings and
the rest stand still, as on a busy port) at the same rate and time. The agent's share includes encoding, its spool on disk and
publishing to a real broker (mosquitto, QoS 1); the exporter's includes the page, asked for as Prometheus asks: over one connection,
with gzip. CPU is each process' run time on all threads, as the scheduler counts it.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# (how many of them move between two readings on a busy port, names)
COUNTERS = """
VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors
port_rcv_constraint_errors port_rcv_errors port_rcv_remote_physical_errors port_rcv_switch_relay_errors
port_xmit_constraint_errors port_xmit_discards symbol_error qp1_dropped multicast_rcv_packets multicast_xmit_packets
port_rcv_data port_rcv_packets port_xmit_data port_xmit_packets port_xmit_wait unicast_rcv_packets unicast_xmit_packets
"""
HW_COUNTERS = """
duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer packet_seq_err req_cqe_error
req_cqe_flush_error req_remote_access_errors req_remote_invalid_request req_rnr_retries_exceeded
req_transport_retries_exceeded resp_cqe_error resp_cqe_flush_error resp_local_length_error resp_remote_access_errors
rnr_nak_retry_err roce_adp_retrans_to roce_slow_restart roce_slow_restart_cnps roce_slow_restart_trans rp_cnp_ignored
rx_dct_connect rx_icrc_encapsulated vendor_a vendor_b vendor_c vendor_d vendor_e vendor_f vendor_g vendor_h vendor_i
np_cnp_sent np_ecn_marked_roce_packets out_of_sequence roce_adp_retrans rp_cnp_handled rx_atomic_requests
rx_read_requests rx_write_requests
"""
NAMES = {"counters": COUNTERS.split(), "hw_counters": HW_COUNTERS.split()}
MOVING = {
    "counters": 7,
    "hw_counters": 8,
}  # the last so many of each move between any two readings; the others stand still
DEVICES = 8


def make_tree(root: Path) -> None:
    """What both read. Numbers are of the size a busy day gives."""
    for device in range(DEVICES):
        base = root / f"class/infiniband/mlx5_{device}"
        port = base / "ports/1"
        for directory, names in NAMES.items():
            (port / directory).mkdir(parents=True)
            for number, name in enumerate(names):
                (port / directory / name).write_text(f"{number}\n")
        facts = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
        }
        for name, text in facts.items():
            (port / name).write_text(f"{text}\n")
        guid = f"0c42:a103:0000:000{device}"
        for name, text in {
            "fw_ver": "28.39.1002",
            "board_id": "MT_838",
            "hca_type": "MT4129",
            "node_guid": guid,
        }.items():
            (base / name).write_text(f"{text}\n")


class Movement:
    """Keeps the counters of a busy port moving: one step before each reading."""

    def __init__(self, root: Path) -> None:
        self._fds = [
            os.open(root / f"class/infiniband/mlx5_{device}/ports/1" / directory / name, os.O_WRONLY)
            for device in range(DEVICES)
            for directory, names in NAMES.items()
            for name in names[-MOVING[directory] :]
        ]
        self._value = 123_456_789_012

    def step(self) -> None:
        self._value += 987_654
        text = f"{self._value}\n".encode()
        for fd in self._fds:
            os.pwrite(fd, text, 0)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


def cpu_seconds(pid: int) -> float:
    """Run time of all threads, from the scheduler's own nanoseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def rss_mb(pid: int, field: str = "VmHWM") -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def running(*command: str) -> Iterator[int]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


class Scraper:
    """Asks as Prometheus does: one connection kept open, gzip accepted."""

    def __init__(self, port: int) -> None:
        self._link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def scrape(self) -> str:
        headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip", "User-Agent": "Prometheus/2.42.0"}
        self._link.request("GET", "/metrics", headers=headers)
        answer = self._link.getresponse()
        body = answer.read()
        return (gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body).decode()

    def first(self) -> str:
        """The first page, as soon as the exporter listens."""
        end = time.monotonic() + 30
        while True:
            try:
                return self.scrape()
            except OSError:
                self._link.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


def measure(seconds: float, rate: float) -> dict[str, Any]:
    work = Path(tempfile.mkdtemp(prefix="fabricd-bench-", dir="/dev/shm"))
    try:
        make_tree(work / "sys")
        broker, exporter, own = free_port(), free_port(), str(Path(sys.executable).with_name("fabricd"))
        (work / "broker.conf").write_text(f"listener {broker} 127.0.0.1\nallow_anonymous true\n")
        (work / "agent.toml").write_text(
            f'[broker]\nport = {broker}\n[agent]\nsysfs = "{work}/sys"\nspool_dir = "{work}/spool"\n'
            f'node = "bench"\ninterval = {1 / rate}\n'
        )
        (work / "aggregator.toml").write_text(
            f'[broker]\nport = {broker}\n[aggregator]\nrecording_dir = "{work}/recording"\nsocket = "{work}/socket"\n'
        )
        scraper = Scraper(exporter)
        with (
            running("mosquitto", "-c", str(work / "broker.conf")),
            running(own, "aggregator", "--config", str(work / "aggregator.toml")),
            running(own, "agent", "--config", str(work / "agent.toml")) as agent,
            running(
                "prometheus-node-exporter", f"--path.sysfs={work}/sys", "--collector.disable-defaults",
                "--collector.infiniband", "--web.disable-exporter-metrics", f"--web.listen-address=127.0.0.1:{exporter}",
            ) as peer,
        ):  # fmt: skip
            series = sum(line.startswith("node_infiniband_") for line in scraper.first().splitlines())
            time.sleep(3)  # start-up is over
            movement = Movement(work / "sys")
            before, sweeps = (cpu_seconds(agent), cpu_seconds(peer)), round(seconds * rate)
            due = time.monotonic()
            for _ in range(sweeps):
                due += 1 / rate
                time.sleep(max(0.0, due - time.monotonic()))
                movement.step()
                scraper.scrape()
            movement.close()
            ours, theirs = cpu_seconds(agent) - before[0], cpu_seconds(peer) - before[1]
            values = DEVICES * sum(map(len, NAMES.values()))
            result = {
                "agent_us_per_sweep": ours / sweeps * 1e6,
                "agent_values_per_sweep": values,
                "agent_us_per_counter": ours / sweeps / values * 1e6,
                "agent_peak_rss_mb": rss_mb(agent),
                "node_exporter_us_per_scrape": theirs / sweeps * 1e6,
                "node_exporter_series": series,
                "node_exporter_us_per_counter": theirs / sweeps / series * 1e6,
                "node_exporter_peak_rss_mb": rss_mb(peer),
                "sweeps": sweeps,
                "rate_hz": rate,
            }
            result["ratio"] = result["agent_us_per_counter"] / result["node_exporter_us_per_counter"]
            return result
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=10, help="readings a second")
    args = parser.parse_args()
    result = measure(args.seconds, args.rate)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:32} {value:.3f}" if isinstance(value, float) else f"{name:32} {value}")


if __name__ == "__main__":
    main()
