"""A simulated fabric as the source of ``fabricd up``: the twin runs as a child process, found only through its addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricd.config.root import Config
from fabricd.daemons.children import ends_with_us
from fabricd.daemons.up import Source
from fabricd.errors import FabricdError

START_WITHIN_S = 60.0
STOP_WITHIN_S = 3.0


@dataclass(frozen=True, slots=True)
class SimulatedFabric:
    """A running twin: its addresses as it printed them, and one line for people."""

    addresses: dict[str, Any]
    summary: str
    process: asyncio.subprocess.Process

    async def watch(self) -> None:
        """Wait for its end, which nobody asked for. Raises FabricdError then."""
        status = await self.process.wait()
        raise FabricdError(f"the simulated fabric ended with status {status}")

    def settle(self, config: Config) -> None:
        """Point a configuration at this fabric where a real one would be a device."""
        if self.addresses["mad_socket"]:
            config.topology.mad_socket = config.collector.mad_socket = self.addresses["mad_socket"]
        else:
            config.topology.source = self.addresses["links"]

    def sources(self, state_dir: Path) -> list[Source]:
        """One process with an agent for every host, and the collector that sweeps the switches."""
        agents = Source(
            "agents", ("agent", "--trees", self.addresses["sysfs"]), {"agent.spool_dir": state_dir / "agents"}
        )
        sources = [agents]
        if self.addresses["mad_socket"]:
            settings = {
                "collector.mad_socket": self.addresses["mad_socket"],
                "topology.mad_socket": self.addresses["mad_socket"],
                "collector.spool": state_dir / "collector",
                "collector.socket": state_dir / "collector.sock",
                "topology.cache": state_dir / "topology.json",
            }
            sources.append(Source("collector", ("collector",), settings))
        return sources


@contextlib.asynccontextmanager
async def simulated_fabric(scenario: str, arguments: list[str]) -> AsyncIterator[SimulatedFabric]:
    """Start ``fabricd twin SCENARIO`` and stop it at the end. Raises FabricdError when it does not come up."""
    command = [sys.executable, "-m", "fabricd", "twin", scenario, *arguments]
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=ends_with_us(),
    )
    assert child.stdout is not None and child.stderr is not None
    forward = asyncio.create_task(_forward(child.stderr))
    try:
        try:
            async with asyncio.timeout(START_WITHIN_S):
                first, second = await child.stdout.readline(), await child.stdout.readline()
        except TimeoutError:
            raise FabricdError(f"the simulated fabric did not come up within {START_WITHIN_S:g} s") from None
        if not first:
            await child.wait()
            raise FabricdError(f"the simulated fabric did not come up: {await forward or 'no reason given'}")
        yield SimulatedFabric(json.loads(first), second.decode().strip(), child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
            try:
                await asyncio.wait_for(child.wait(), STOP_WITHIN_S)
            except TimeoutError:
                child.kill()
        forward.cancel()


async def _forward(stream: asyncio.StreamReader) -> str:
    """Pass the child's log lines on; returns the last one."""
    last = ""
    while line := await stream.readline():
        last = line.decode("utf-8", "replace").rstrip()
        print(last, file=sys.stderr)
    return last.removeprefix("fabricd: ")
