"""A real controller process over a device that is a file, for tests that kill it: ``python -m … DIRECTORY BROKER_PORT DIE_AT``.

DIE_AT is ``WHAT:N``: SIGKILL at the N-th time of read, push, pushed, read_back (the adapter), or before:STATE, after:STATE
(the journal).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fabricd import logs
from fabricd.config.broker import BrokerConfig
from fabricd.config.control import ControlConfig
from fabricd.config.root import Config
from fabricd.control.adapters.base import Ack, Capability, Conflict, Push, Unreachable
from fabricd.control.loop import Inputs
from fabricd.control.predict import Prediction
from fabricd.control.remedies.base import Draft, Situation
from fabricd.control.state import State
from fabricd.control.traffic import Pair
from fabricd.control.world import World
from fabricd.daemons.controller import Controller
from fabricd.daemons.lifecycle import run_daemon
from fabricd.flow.topologies import leaf_spine
from fabricd.model.action import Action, Change, Lever
from fabricd.model.topology import PortRef, Topology
from fabricd.model.verdict import Verdict
from fabricd.topology.minhop import assumed_routes

INTERVAL_NS = 200_000_000
RATE = 400e9


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FileAdapter:
    """Levers in a JSON file: what is in it after a kill is what the device holds. ``DIRECTORY/unreachable`` makes it silent."""

    name = "ufm"
    time_limit_s = 1.0

    def __init__(self, directory: Path, die_at: str = "") -> None:
        self.path, self.die_at = directory / "device.json", die_at
        self._counts: dict[str, int] = {}

    def _call(self, what: str) -> None:
        if (self.path.parent / "unreachable").exists():
            raise Unreachable("no answer")
        self._counts[what] = self._counts.get(what, 0) + 1
        if self.die_at == f"{what}:{self._counts[what]}":
            die()

    def values(self) -> dict[str, Any]:
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def probe(self) -> list[Capability]:
        return [Capability(name="sl_rate", device="ufm", writable=True)]

    def read(self, lever: Lever) -> Any:
        self._call("read")
        return self.values().get(lever.key)

    def plan(self, change: Change) -> Push:
        return Push(lever=change.lever, shown=(f"set {change.lever.key} {json.dumps(change.new)}",))

    def push(self, change: Change) -> Ack:
        self._call("push")
        values = self.values()
        if values.get(change.lever.key) != change.old:
            raise Conflict(f"{change.lever.key} holds {values.get(change.lever.key)!r}")
        values[change.lever.key] = change.new
        if change.new is None:
            del values[change.lever.key]
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(values))
        temporary.replace(self.path)
        self._call("pushed")
        return Ack(answer="ok", device_seconds=0.0)

    def read_back(self, lever: Lever) -> Any:
        self._call("read_back")
        return self.values().get(lever.key)


class Scene:
    """Two leaves, an incast from three hosts to one: the victims wait until the senders are limited."""

    def __init__(self, adapter: FileAdapter) -> None:
        self.adapter = adapter
        self.topology: Topology = leaf_spine(2, 4, 2)
        peers = self.topology.neighbours()
        self.hosts: list[PortRef] = sorted(ref for ref in peers if self.topology.nodes[ref[0]].type == "ca")
        self.receiver, self.senders = self.hosts[0], self.hosts[4:7]
        self.root = peers[self.receiver]
        self.ports = sorted(peers)
        self.routes = assumed_routes(self.topology)

    def state(self) -> State:
        size = len(self.ports)
        index = {ref: i for i, ref in enumerate(self.ports)}
        tx, stall = np.full((size, 1), 1e9), np.zeros((size, 1))
        tx[index[self.root]] = RATE / 8
        helped = bool(self.adapter.values())
        for ref in self.senders:
            tx[index[ref]] = RATE / 8 / 3
            stall[index[ref]] = 0.0 if helped else 0.6
        now = time.time_ns() // INTERVAL_NS * INTERVAL_NS
        return State(
            now, INTERVAL_NS, self.ports, [None], tx, stall, np.full(size, RATE), np.zeros(size), np.zeros(size)
        )

    def look(self, verdicts: Mapping[str, Verdict]) -> Inputs:
        pairs = [Pair(src, self.receiver) for src in self.senders]
        return Inputs(World(self.topology), self.routes, self.state(), verdicts, pairs)


def promise(situation: Situation, draft: Draft) -> Prediction:
    """A prediction without running a model: what is tested here is the process."""
    return Prediction(0.8, 0.6, 0.1, 0.0, "", 0.0)


def config(directory: Path, broker_port: int, mode: str = "enforce") -> Config:
    return Config(
        broker=BrokerConfig(port=broker_port, reconnect_max=1.0),
        control=ControlConfig(
            mode=mode,  # type: ignore[arg-type]
            journal=str(directory / "journal.db"),
            latch_dir=str(directory / "latches"),
            approval_token_file=str(directory / "token"),
            interval=0.1,
            lease_s=float((directory / "lease").read_text()) if (directory / "lease").exists() else 300.0,
        ),
    )


def main() -> None:
    directory, port, die_at = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    logs.set_up("text", "info")
    adapter = FileAdapter(directory, die_at)
    scene = Scene(adapter)
    controller = Controller(config(directory, port, sys.argv[4]), {"ufm": adapter}, scene.look)
    controller.loop.predictor = promise
    save = controller.journal.save

    def dying_save(action: Action) -> None:
        if die_at == f"before:{action.state}":
            die()
        save(action)
        if die_at == f"after:{action.state}":
            die()

    controller.journal.save = dying_save  # type: ignore[method-assign]

    async def run(ready: Callable[[str], None]) -> None:
        def tell(status: str) -> None:
            ready(status)
            (directory / "ready").touch()

        await controller.run(tell)

    asyncio.run(run_daemon(run))


if __name__ == "__main__":
    main()
