"""A recording beside the aggregator's: subscribes like it, reports nothing to the nodes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricd.config.root import Config
from fabricd.store.ingest import Ingest
from fabricd.store.receiver import Receiver, rebuild
from fabricd.store.recording import Recording
from fabricd.store.store import Store


class Recorder:
    """Raises FabricdError when the directory cannot be used."""

    def __init__(self, config: Config, directory: Path, limit: int, client_id: str) -> None:
        self._store = Store(config.fabric.name)
        self._ingest = Ingest(self._store, config.fabric.name)
        self._recording = Recording(directory, limit, self._ingest.preamble)
        self._receiver = Receiver(
            config.broker, config.aggregator, self._ingest, self._recording, client_id, beside=True
        )

    async def run(self, ready: Callable[[str], None], seconds: float | None) -> None:
        """Record until cancelled, or for so many seconds."""
        await rebuild(self._ingest, self._recording)
        self._ingest.recording = self._recording
        ready("recording")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._receiver.run()

    def summary(self) -> dict[str, Any]:
        return {
            "directory": str(self._recording.directory),
            "frames": self._ingest.counts["stored"],
            "nodes": sorted(self._store.nodes),
            "rejects": self._ingest.rejects.to_json(),
        }
