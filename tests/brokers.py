"""Real MQTT brokers for tests, on free loopback ports, to be killed and started again."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fabricd.transport.embedded import free_port


class Broker:
    """One broker process. ``kill`` is SIGKILL: nothing is saved."""

    def __init__(self, arguments: list[str], port: int) -> None:
        self._arguments = arguments
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            if self._listens(deadline):
                return
            assert time.monotonic() < deadline, f"{self._arguments[0]} does not come up"
            time.sleep(0.2)

    def _listens(self, deadline: float) -> bool:
        """False when the process ended, for instance because the port is not free yet."""
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
                return True
            time.sleep(0.05)
        return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()
        # The embedded broker is a child of the process killed: it ends a moment later, and must not be taken for the next one.
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
            except OSError:
                return
            assert time.monotonic() < deadline, "the port is still open"
            time.sleep(0.05)


_EMBEDDED = """
import asyncio, sys
from fabricd.transport.embedded import EmbeddedBroker
async def main():
    async with EmbeddedBroker(int(sys.argv[1])):
        await asyncio.Event().wait()
asyncio.run(main())
"""


def mosquitto(directory: Path, extra: str = "", listener: str = "") -> Broker:
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    conf = directory / "mosquitto.conf"
    conf.write_text(
        f"user root\nper_listener_settings false\nallow_anonymous {'false' if 'password_file' in extra else 'true'}\n{extra}\n"
        f"max_queued_messages 0\nlistener {port} 127.0.0.1\n{listener}\n"
    )
    return Broker(["mosquitto", "-c", str(conf)], port)


def nats(directory: Path) -> Broker:
    port, client_port = free_port(), free_port()
    directory.mkdir(parents=True, exist_ok=True)
    conf = directory / "nats.conf"
    conf.write_text(
        f'server_name: test\nlisten: "127.0.0.1:{client_port}"\njetstream {{ store_dir: "{directory}/jetstream" }}\n'
        f'mqtt {{ listen: "127.0.0.1:{port}" }}\n'
    )
    return Broker(["nats-server", "-c", str(conf)], port)


def embedded(directory: Path) -> Broker:
    port = free_port()
    return Broker([sys.executable, "-c", _EMBEDDED, str(port)], port)


KINDS = {"mosquitto": mosquitto, "nats": nats, "embedded": embedded}


@contextlib.contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()
