"""``fabricd up``: a whole small installation in one go. Broker, sources and collectors are child processes; the rest is here.

A *source* is a child process that publishes; :func:`local_sources` gives those of this machine. A simulated fabric composes its own
list: the same processes with other settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Mount

from fabricd.config.root import Config
from fabricd.daemons.aggregator import Aggregator
from fabricd.daemons.children import ends_with_us
from fabricd.daemons.http_server import bind_tcp, serve, url_of
from fabricd.daemons.placement_view import PlacementView
from fabricd.errors import FabricdError
from fabricd.transport.embedded import EmbeddedBroker

log = logging.getLogger(__name__)

RECORDING_MB = 256
SPOOL_MB = 16
STOP_CHILD_S = 2.5


@dataclass(frozen=True, slots=True)
class Source:
    """A ``fabricd`` sub-command to run as a child; ``settings`` are configuration keys (``agent.spool_dir``) it differs in."""

    name: str
    arguments: tuple[str, ...]
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Running:
    """What is up, for people and programs."""

    broker: str
    url: str
    state_dir: str
    sources: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "status_page": f"{self.url}/",
            "metrics": f"{self.url}/metrics",
            "api": f"{self.url}/api/v1",
            "state_dir": self.state_dir,
            "sources": list(self.sources),
        }


def has_umad(device_dir: Path = Path("/dev/infiniband")) -> bool:
    """Whether this machine can send management datagrams."""
    return any(os.access(path, os.R_OK | os.W_OK) for path in device_dir.glob("umad*"))


def local_sources(state_dir: Path) -> list[Source]:
    """This machine's agent, and its collector where there is a umad device we may open."""
    sources = [Source("agent", ("agent",), {"agent.spool_dir": state_dir / "agent"})]
    if has_umad():
        settings = {
            "collector.spool": state_dir / "collector",
            "collector.socket": state_dir / "collector.sock",
            "topology.cache": state_dir / "topology.json",
        }
        sources.append(Source("collector", ("collector",), settings))
    return sources


def settle(config: Config, state_dir: Path, broker_port: int) -> None:
    """Point a configuration at the embedded broker and the state directory, with bounds that suit a trial."""
    config.broker.host, config.broker.port, config.broker.tls = "127.0.0.1", broker_port, False
    config.broker.username = config.broker.password_file = None
    config.broker.ca_file = config.broker.cert_file = config.broker.key_file = None
    config.broker.reconnect_max = min(config.broker.reconnect_max, 2.0)
    config.broker.spool_mb = min(config.broker.spool_mb, SPOOL_MB)
    config.aggregator.recording_dir = str(state_dir / "recording")
    config.topology.cache = str(state_dir / "topology.json")
    config.aggregator.recording_mb = min(config.aggregator.recording_mb, RECORDING_MB)


async def run_up(
    config: Config,
    config_path: str | None,
    state_dir: Path,
    sources: Sequence[Source],
    announce: Callable[[Running], None],
    ready: Callable[[str], None],
    *,
    port_is_a_wish: bool,
) -> None:
    """Everything, until cancelled. ``port_is_a_wish``: a busy api port is replaced by a free one."""
    async with EmbeddedBroker(max_payload=config.broker.max_payload_kb << 10) as broker:
        settle(config, state_dir, broker.port)
        aggregator = Aggregator(config)
        await aggregator.rebuild()
        listener = _listen(config, port_is_a_wish)
        async with asyncio.TaskGroup() as group:
            group.create_task(aggregator.run())
            placement = PlacementView(config, url_of(listener))
            group.create_task(placement.run())
            app = Starlette(routes=[*placement.routes, Mount("/", aggregator.app)])
            group.create_task(serve(app, listener))
            for source in sources:
                group.create_task(_keep_running(source, config, config_path))
            names = tuple(source.name for source in sources)
            announce(Running(f"mqtt://{broker.host}:{broker.port}", url_of(listener), str(state_dir), names))
            ready("up")


def _listen(config: Config, port_is_a_wish: bool) -> Any:
    try:
        return bind_tcp(config.api.host, config.api.port)
    except FabricdError as error:
        if not port_is_a_wish:
            raise
        log.warning("%s; taking a free port", error)
        return bind_tcp(config.api.host, 0)


async def _keep_running(source: Source, config: Config, config_path: str | None) -> None:
    """Start the child, and again when it ends by itself, with growing pauses."""
    pause = 1.0
    arguments = [sys.executable, "-m", "fabricd", *source.arguments]
    if config_path is not None:
        arguments += ["--config", config_path]
    while True:
        # Its own process group: a Ctrl-C in the terminal reaches us, and we stop the children in order.
        child = await asyncio.create_subprocess_exec(
            *arguments,
            env=_environment(source, config),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=ends_with_us(),
        )
        try:
            status = await child.wait()
        except asyncio.CancelledError:
            await _stop(child)
            raise
        log.warning("%s ended with status %d; again in %.0f s", source.name, status, pause)
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))
        pause = min(pause * 2, 30.0)


async def _stop(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
        try:
            await asyncio.wait_for(child.wait(), STOP_CHILD_S)
        except TimeoutError:
            child.kill()
            await child.wait()


def _environment(source: Source, config: Config) -> dict[str, str]:
    broker = config.broker
    settings: dict[str, object] = {
        "fabric.name": config.fabric.name,
        "fabric.log_format": config.fabric.log_format,
        "fabric.log_level": config.fabric.log_level,
        "broker.host": broker.host,
        "broker.port": broker.port,
        "broker.tls": "false",
        "broker.spool_mb": broker.spool_mb,
        "broker.reconnect_max": broker.reconnect_max,
        **source.settings,
    }
    return os.environ | {f"FABRICD_{key.upper().replace('.', '__')}": str(value) for key, value in settings.items()}
