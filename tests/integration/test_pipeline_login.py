"""TLS, client certificates and passwords against a real mosquitto: agent's and aggregator's side, and what is said when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabricd.config.aggregator import AggregatorConfig
from fabricd.config.broker import BrokerConfig
from fabricd.store.ingest import Ingest
from fabricd.store.receiver import Receiver
from fabricd.store.recording import Recording
from fabricd.store.store import Store
from fabricd.transport.publisher import Publisher
from fabricd.transport.subscriber import ConnectionLost, Subscriber
from tests import brokers
from tests.unit.store.frames import FABRIC, frame, schema


def openssl(*arguments: str, directory: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, and server and client certificates it signed."""
    directory = tmp_path_factory.mktemp("certificates")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-days",
        "2",
        "-subj",
        "/CN=test CA",
        directory=directory,
    )
    for name in ("server", "client"):
        openssl(
            "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}", directory=directory
        )
        (directory / f"{name}.ext").write_text("subjectAltName = IP:127.0.0.1\n")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", f"{name}.ext", "-out", f"{name}.pem", directory=directory,
        )  # fmt: skip
    for path in directory.iterdir():
        path.chmod(0o644)
    directory.chmod(0o755)
    return directory


def tls_broker(tmp_path: Path, certificates: Path, *, client: bool) -> brokers.Broker:
    listener = f"cafile {certificates}/ca.pem\ncertfile {certificates}/server.pem\nkeyfile {certificates}/server.key\n"
    listener += f"require_certificate {str(client).lower()}\n"
    return brokers.mosquitto(tmp_path / "broker", listener=listener)


@contextlib.asynccontextmanager
async def pipeline(settings: BrokerConfig, tmp_path: Path) -> AsyncIterator[tuple[Publisher, Ingest]]:
    """A publisher and a receiver through one broker."""
    ingest = Ingest(Store(FABRIC), FABRIC)
    ingest.recording = Recording(tmp_path / "recording", 16 << 20, ingest.preamble)
    receiver = Receiver(settings, AggregatorConfig(report_interval=0.1), ingest, ingest.recording, "aggregator")
    publisher = Publisher(settings, FABRIC, "n", tmp_path / "spool", boot=1)
    tasks = [asyncio.create_task(receiver.run()), asyncio.create_task(publisher.run())]
    try:
        yield publisher, ingest
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(what: Callable[[], Any]) -> None:
    """Poll until true; TimeoutError after half a minute."""
    async with asyncio.timeout(30):
        while True:
            if what():
                return
            await asyncio.sleep(0.05)


def delivered(settings: BrokerConfig, tmp_path: Path) -> dict[str, Any]:
    """Send ten frames; returns the publisher's stats once they are stored and freed."""

    async def run() -> dict[str, Any]:
        async with pipeline(settings, tmp_path) as (publisher, ingest):
            s = schema()
            publisher.publish_schema(s)
            for seq in range(10):
                publisher.publish_frame(seq, frame(s, seq, [seq]))
            await until(lambda: ingest.counts["stored"] == 10 and not publisher.stats()["spool_frames"])
            return publisher.stats()

    return asyncio.run(run())


def settings_for(broker: brokers.Broker, **more: Any) -> BrokerConfig:
    return BrokerConfig(port=broker.port, reconnect_max=0.5, resend_after=1.0, **more)


def test_mutual_tls(tmp_path: Path, certificates: Path) -> None:
    with brokers.running(tls_broker(tmp_path, certificates, client=True)) as broker:
        settings = settings_for(
            broker, tls=True, ca_file=f"{certificates}/ca.pem", cert_file=f"{certificates}/client.pem",
            key_file=f"{certificates}/client.key",
        )  # fmt: skip
        assert delivered(settings, tmp_path)["freed"] == 10


def test_an_unknown_authority_is_refused(tmp_path: Path, certificates: Path) -> None:
    async def run() -> int:
        with brokers.running(tls_broker(tmp_path, certificates, client=False)) as broker:
            publisher = Publisher(settings_for(broker, tls=True), FABRIC, "n", tmp_path / "spool", boot=1)
            task = asyncio.create_task(publisher.run())
            await until(lambda: publisher.stats()["connect_failures"])
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return publisher.stats()["connected"]

    assert asyncio.run(run()) == 0


def test_password(tmp_path: Path) -> None:
    users = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(users), "fabricd", "right"], check=True, capture_output=True)
    users.chmod(0o644)
    tmp_path.chmod(0o755)
    (tmp_path / "right").write_text("right\n")
    broker = brokers.mosquitto(tmp_path / "broker", extra=f"password_file {users}")
    with brokers.running(broker):
        settings = settings_for(broker, username="fabricd", password_file=str(tmp_path / "right"))
        assert delivered(settings, tmp_path)["freed"] == 10

        async def wrong() -> None:
            await Subscriber.connect(
                "127.0.0.1", broker.port, lambda batch: None, client_id="x", subscriptions=[("#", 0)], clean_session=True,
                username="fabricd", password="wrong",
            )  # fmt: skip

        with pytest.raises(ConnectionLost, match="not authorised"):
            asyncio.run(wrong())


def test_a_node_whose_will_came_late_says_again_that_it_lives(tmp_path: Path) -> None:
    """Somebody's last will for our topic, or a cloned machine's status, must not stay the last word."""

    async def run() -> tuple[dict[str, Any], dict[str, int]]:
        with brokers.running(brokers.mosquitto(tmp_path / "broker")) as broker:
            async with pipeline(settings_for(broker), tmp_path) as (publisher, ingest):
                publisher.publish_status({"version": "1"})
                other = await Subscriber.connect(
                    "127.0.0.1",
                    broker.port,
                    lambda batch: None,
                    client_id="x",
                    subscriptions=[("x", 0)],
                    clean_session=True,
                )
                await until(lambda: ingest.store.node("n").status.get("state") == "alive" and publisher.connected)
                topic = f"fabricd/{FABRIC}/status/n"
                other.publish(topic, msgspec.json.encode({"state": "dead", "boot": 1}), retain=True)
                other.publish(topic, msgspec.json.encode({"state": "alive", "boot": 99}), retain=True)
                await until(lambda: publisher.stats()["rivals"])
                publisher.publish_status({"version": "2"})
                await until(lambda: ingest.store.node("n").status.get("version") == "2")
                other.close()
                return ingest.store.node("n").status, publisher.stats()

    status, stats = asyncio.run(run())
    assert (status["state"], status["boot"], status["version"]) == ("alive", 1, "2")
    assert stats["rivals"] == 1
