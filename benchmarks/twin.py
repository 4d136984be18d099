"""How fast the twin's faces answer, beside ibsim on the same fabric in the same run.

``python -m benchmarks.twin [--json] [--hosts N]``. The fabric is the twin's own (``ibnetdiscover`` of it is ibsim's input); the
client speaks the simulators' socket protocol and asks PortCountersExtended, one at a time and 32 in flight; opensm brings both up
from nothing. The twin's model runs meanwhile; ibsim has none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
ENVELOPE = struct.Struct("=IIIIIxxxx8s256s")
CONTROL = struct.Struct("=IIII64s")
ROUNDS, DEPTH = 20000, 8


@contextmanager
def twin(*arguments: str) -> Iterator[dict[str, Any]]:
    """A running twin's addresses."""
    command = [sys.executable, "-m", "fabricd", "twin", "quiet", "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()) | {"pid": process.pid}
    finally:
        process.terminate()
        process.wait(30)


def tool(base: str, directory: Path, *command: str) -> str:
    environment = os.environ | {"PATH": PATH, "IBSIM_SOCKNAME": base}
    return subprocess.run(
        ["ibsim-run", *command], cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout


@contextmanager
def opensm(base: str, directory: Path) -> Iterator[float]:
    """An opensm on a subnet nobody configured yet; gives the seconds until SUBNET UP."""
    directory.mkdir()
    log = directory / "log"
    (directory / "conf").write_text(
        f"log_file {log}\nforce_log_flush TRUE\ndump_files_dir {directory}\nsweep_interval 60\n"
    )
    environment = os.environ | {
        "PATH": PATH,
        "IBSIM_SOCKNAME": base,
        "OSM_CACHE_DIR": str(directory),
        "OSM_TMP_DIR": str(directory),
    }
    started = time.monotonic()
    process = subprocess.Popen(
        ["ibsim-run", "opensm", "-F", str(directory / "conf")], cwd=directory, env=environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not (log.exists() and "SUBNET UP" in log.read_text(errors="replace")):
            if time.monotonic() - started > 120:
                raise RuntimeError("opensm did not bring the subnet up within 120 s")
            time.sleep(0.01)
        yield time.monotonic() - started
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def ibsim(network: Path, base: str) -> Iterator[int]:
    process = subprocess.Popen(
        ["ibsim", "-s", "-N", "4096", "-S", "512", "-P", "32768", str(network)],
        env=os.environ | {"PATH": PATH, "IBSIM_SOCKNAME": base}, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1)
        yield process.pid
    finally:
        process.kill()
        process.wait(30)


def round_trips(base: str, lid: int, in_flight: int) -> float:
    """PortCountersExtended answers per second from the switch at ``lid``."""
    number = os.getpid() + (time.monotonic_ns() & 0xFFFF) * 100_000
    number &= 0x7FFFFFFF
    control, mads = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    control.bind(f"\0{base}:ctl{number}\0".encode())
    mads.bind(f"\0{base}:in{number}\0".encode())
    control.connect(f"\0{base}:ctl\0".encode())
    control.settimeout(10)
    mads.settimeout(10)
    control.send(CONTROL.pack(0xDEADBEEF, 0, 1, 44, struct.pack("=III32s", number, 0, 0, b"")))
    index = struct.unpack_from("=I", control.recv(128), 16)[0]
    mads.connect(f"\0{base}:out{index}\0".encode())
    mad = bytearray(256)
    mad[0:4], mad[17], mad[65] = bytes((1, 4, 1, 1)), 0x1D, 1
    request = ENVELOPE.pack(
        socket.htons(lid), 0, socket.htonl(1), socket.htonl(1), 0, (256).to_bytes(8, "big"), bytes(mad)
    )
    started = time.monotonic()
    for _ in range(in_flight):
        mads.send(request)
    for done in range(ROUNDS):
        answer = mads.recv(512)
        if answer[16:20] != bytes(4) or answer[35] != 0x81:
            raise RuntimeError(f"{base}: request failed")
        if done < ROUNDS - in_flight:
            mads.send(request)
    spent = time.monotonic() - started
    control.send(CONTROL.pack(0xDEADBEEF, index, 2, 0, b""))
    control.close()
    mads.close()
    return ROUNDS / spent


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_switch(base: str, directory: Path) -> int:
    return int(tool(base, directory, "ibswitches").splitlines()[0].split(" lid ")[1].split()[0])


def measure_subnet(base: str, directory: Path, name: str) -> dict[str, Any]:
    with opensm(base, directory / name) as seconds:
        lid = first_switch(base, directory)
        return {
            "opensm_bring_up_s": round(seconds, 2),
            "mads_per_s_one_at_a_time": round(round_trips(base, lid, 1)),
            f"mads_per_s_{DEPTH}_in_flight": round(round_trips(base, lid, DEPTH)),
        }


def infiniband(hosts: int, directory: Path) -> dict[str, Any]:
    out: dict[str, Any] = {}
    with twin("--hosts", str(hosts), "--no-manager") as addresses:
        base = addresses["mad_socket"]
        network = directory / "fabric.net"
        network.write_text(tool(base, directory, "ibnetdiscover"))
        before, started = cpu_seconds(addresses["pid"]), time.monotonic()
        time.sleep(5)
        out["twin_idle_cpu_share"] = round((cpu_seconds(addresses["pid"]) - before) / (time.monotonic() - started), 3)
        out["switches"], out["hosts"] = (network.read_text().count(word) for word in ("\nSwitch", "\nCa"))
        out["twin"] = measure_subnet(base, directory, "twin")
        sweep = subprocess.run(
            [sys.executable, "-m", "fabricd", "sweep", "--mad-socket", base, "--count", "5", "--interval", "0", "--json"],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        document = json.loads(sweep.stdout)
        best = min(one["seconds"] for one in document["sweeps"])
        out["sweep"] = {"ports": document["ports"], "seconds": best, "ports_per_s": round(document["ports"] / best)}
    name = f"bench-ibsim-{os.getpid()}"
    with ibsim(network, name):
        out["ibsim"] = measure_subnet(name, directory, "ibsim")
    out["ratio_to_ibsim"] = {key: round(out["twin"][key] / out["ibsim"][key], 2) for key in out["twin"]}
    return out


def snmp() -> dict[str, Any]:
    """Walking a switch of a RoCE twin."""
    with twin("--kind", "ethernet", "--hosts", "64") as addresses:
        agent = next(iter(addresses["snmp"].values()))
        command = ["snmpbulkwalk", "-v2c", "-c", "public", "-Cr50", "-On", agent, ".1"]
        environment = os.environ | {"PATH": PATH, "MIBS": ""}
        best, rows = 1e9, 0
        for _ in range(5):
            started = time.monotonic()
            rows = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.count(
                "\n"
            )
            best = min(best, time.monotonic() - started)
        return {
            "rows": rows,
            "seconds": round(best, 3),
            "rows_per_s": round(rows / best),
            "switches": len(addresses["snmp"]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--hosts", type=int, default=648)
    args = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="bench-twin-", dir="/dev/shm"))
    try:
        results = {"infiniband": infiniband(args.hosts, directory), "snmp": snmp()}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(results, indent=None if args.json else 2))


if __name__ == "__main__":
    main()
