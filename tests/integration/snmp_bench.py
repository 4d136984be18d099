"""A real snmpd that plays a switch: writable DCBX and FASTPATH objects, interfaces, SNMPv3 users. Started, stopped, started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.twin_tools import TOOLS_PATH

AUTH, PRIVACY = "authpass-0123456789", "privpass-0123456789"
DCBX, FASTPATH = "1.3.111.2.802.1.1.13.1.5.32962.5.1.4", "1.3.6.1.4.1.674.10895.5000.2.6132.1.1"
IF = "1.3.6.1.2.1.2.2.1"
PORTS = 2
HIDDEN = "-ifTable,ifXTable,interface,interfaces,mibII/interfaces,dot3StatsTable,etherStatsTable"


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def objects() -> Iterator[str]:
    """Override lines: net-snmp keeps what is set there, of the right type, without looking at ranges."""
    for port in range(1, PORTS + 1):
        yield f"override .{IF}.1.{port} integer {port}"
        yield f"override -rw .{IF}.7.{port} integer 1"
        yield f"override .1.3.6.1.2.1.10.7.10.1.3.{port} counter {100 * port}"
        for priority in range(8):
            yield f"override -rw .{DCBX}.3.2.1.2.{port}.{priority} integer {1 if priority == 3 else 2}"
            yield f"override -rw .{DCBX}.1.3.1.2.{port}.{priority} uinteger {50 if priority in (0, 3) else 0}"
            yield f"override .{DCBX}.1.2.1.2.{port}.{priority} uinteger {priority}"
            yield f"override -rw .{FASTPATH}.47.1.2.1.2.{port}.{priority} integer {2 if priority == 3 else 1}"
            yield f"override .{FASTPATH}.3.3.2.4.1.3.{port}.{priority} integer {50 if priority in (0, 3) else 0}"
            for column, value in ((7, 10), (8, 40), (9, 20)):
                yield f"override -rw .{FASTPATH}.3.3.2.5.1.{column}.{port}.{priority}.1 integer {value}"


class Snmpd:
    """``fabctl`` may write, ``fabmon`` only read; community ``public`` reads."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, free_port()
        self.file = directory / "snmpd.conf"
        self.file.write_text(
            "\n".join(
                [
                    f"agentAddress udp:127.0.0.1:{self.port}",
                    "rocommunity public 127.0.0.1",
                    *(f'createUser {user} SHA-256 "{AUTH}" AES "{PRIVACY}"' for user in ("fabctl", "fabmon")),
                    "rwuser fabctl priv", "rouser fabmon priv", *objects(), "",
                ]
            )
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["snmpd", "-f", "-Lo", "-C", "-c", str(self.file), "-I", HIDDEN],
            env=os.environ | {"PATH": TOOLS_PATH, "SNMP_PERSISTENT_DIR": str(self.directory / "var"), "MIBS": ""},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while self.tool("snmpget", "-v2c", "-c", "public", "-t", "1", "-r", "0", oid="1.3.6.1.2.1.1.3.0").returncode:
            assert time.monotonic() < deadline and self._process.poll() is None, "snmpd did not come up"

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            self._process.wait(timeout=10)
            self._process = None

    def silence(self, on: bool) -> None:
        """The process stands still, as an overloaded agent does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def tool(self, command: str, *arguments: str, oid: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, "-On", *arguments, f"127.0.0.1:{self.port}", *oid.split(" ")],
            env=os.environ | {"PATH": TOOLS_PATH, "MIBS": ""}, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    def set_by_somebody_else(self, oid: str, kind: str, value: int) -> None:
        keys = ("-v3", "-l", "authPriv", "-u", "fabctl", "-a", "SHA-256", "-A", AUTH, "-x", "AES", "-X", PRIVACY)
        done = self.tool("snmpset", *keys, oid=f".{oid} {kind} {value}")
        assert done.returncode == 0, done.stderr


@contextmanager
def snmpd(directory: Path) -> Iterator[Snmpd]:
    agent = Snmpd(directory)
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()


def write_targets(directory: Path, rows: dict[str, tuple[str, str, str]], timeout: float = 2.0) -> tuple[str, str]:
    """Targets and secrets files: name -> (address, profile, how), how such as ``user = "fabctl"``."""
    targets, secrets = directory / "switches.toml", directory / "secrets.toml"
    targets.write_text(
        "\n".join(
            f'[[switch]]\nname = "{name}"\naddress = "{address}"\nprofile = "{profile}"\ntimeout = {timeout}\n{how}\n'
            for name, (address, profile, how) in rows.items()
        )
    )
    secrets.write_text(
        "".join(f'[users.{user}]\nauth = "{AUTH}"\nprivacy = "{PRIVACY}"\n' for user in ("fabctl", "fabmon"))
        + f'[users.wrong]\nauth = "{AUTH}x"\nprivacy = "{PRIVACY}"\n[communities]\nlab = "public"\n'
    )
    secrets.chmod(0o600)
    return str(targets), str(secrets)
