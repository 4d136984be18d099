"""One running twin: the model in step with the wall clock, and its faces around it, all in one event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fabricd.errors import FabricdError, UsageError
from fabricd.flow.scenarios import SCENARIOS, build
from fabricd.flow.settings import Kind
from fabricd.flow.staging import Draw
from fabricd.twin import http
from fabricd.twin.face import SERVICE_LEVELS, PlanNode
from fabricd.twin.faults import TelemetryFaults
from fabricd.twin.http import Tls
from fabricd.twin.mad.server import MadServer
from fabricd.twin.snmp.agents import SnmpAgents, snmpd_is_installed
from fabricd.twin.sysfs.trees import Flags, Trees
from fabricd.twin.truth import Truth
from fabricd.twin.ufm.server import UfmServer
from fabricd.twin.wiring import links_file
from fabricd.twin.world import World

log = logging.getLogger(__name__)

STEP_S = 0.004  # how often the model catches up with the wall clock
MOST_S = 0.05  # it catches up on at most: on a machine too slow for the model the fabric's time runs slower
FINE_SLOTS, COARSE_SLOTS = 1100, 150  # slots of model time a second: 400 Gb/s links are slowed down 910 and 6800 times
FINE_HOSTS = 160
TMPFS = Path("/dev/shm")
MARK = ".fabricd-twin"  # in a directory whose trees are ours to replace
ETHERNET_SCENARIOS = ("pfc-storm", "qos-mismatch")  # shown on RoCE unless told otherwise: their levers live there
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class TwinSettings:
    """What to simulate. ``directory`` None: a temporary one, removed at the end.

    ``begin_s`` and ``length_s``: when the scenario's trouble starts and how long it lasts. ``configured`` False: an
    InfiniBand subnet without a manager, to be brought up by one. ``ufm_tls``: a second UFM listener for client certificates.
    ``snmp``: agents for the switches (None: on Ethernet). ``slots``: resolution of the model, steps a second (None: by size).
    ``fault``: one of telemetry (see ``faults.NAMES``). ``adaptive``: InfiniBand switches spread all traffic adaptively.
    """

    scenario: str
    seed: int = 1
    hosts: int | None = None
    kind: Kind | None = None
    directory: Path | None = None
    begin_s: float = 15.0
    length_s: float = 3600.0
    configured: bool = True
    ufm_tls: Tls | None = None
    snmp: bool | None = None
    slots: int | None = None
    fault: str | None = None
    adaptive: bool = False


class Twin:
    """A scenario with faces. Raises UsageError for a scenario or size that cannot be drawn."""

    def __init__(self, settings: TwinSettings) -> None:
        if settings.scenario not in SCENARIOS:
            raise UsageError(f"unknown scenario {settings.scenario!r}; there are: {' '.join(SCENARIOS)}")
        if settings.hosts is not None and not 4 <= settings.hosts <= 4096:
            raise UsageError(f"{settings.hosts} hosts: the twin draws fabrics of 4 to 4096")
        self.settings = settings
        kind: Kind = settings.kind or ("ethernet" if settings.scenario in ETHERNET_SCENARIOS else "infiniband")
        self.scene = build(
            settings.scenario,
            Draw(
                seed=settings.seed,
                hosts=settings.hosts,
                kind=kind,
                begin_s=settings.begin_s,
                length_s=settings.length_s,
                slots=settings.slots or (FINE_SLOTS if (settings.hosts or 0) <= FINE_HOSTS else COARSE_SLOTS),
            ),
        )
        if kind == "infiniband":
            # Adaptive routing does not show in forwarding tables, so it is on only when asked for.
            for level in range(SERVICE_LEVELS):
                self.scene.model.set_adaptive(level, settings.adaptive)
            self.scene.intent["adaptive"] = settings.adaptive
        self.world = World(self.scene)
        faults = settings.fault
        self._faults = TelemetryFaults(self.world.plan, faults, settings.seed) if faults is not None else None
        self.infiniband = kind == "infiniband"
        self.mad: MadServer | None = None
        self.trees: Trees | None = None
        self.ufm: UfmServer | None = None
        self._places: dict[str, str] = {}
        self._snmp: SnmpAgents | None = None
        self.directory = Path()
        self._truth: Truth | None = None

    # -- life ----------------------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[dict[str, Any]], None]) -> None:
        """Serve until cancelled. ``ready`` gets the addresses. Raises FabricdError when a face cannot be opened."""
        async with AsyncExitStack() as stack:
            self.directory = self._directory(stack)
            if self.infiniband:
                name = f"fabricd-twin-{os.getpid()}-{next(_numbers)}"
                self.mad = MadServer(self.world, name, self.settings.configured, self._faults)
                await self.mad.start()
                stack.push_async_callback(self.mad.stop)
            self.trees = Trees(
                self.world, self.directory / "sysfs", self._lid, self._pfc, self.settings.seed, self._faults
            )
            try:
                self.trees.create()
            except OSError as error:
                raise FabricdError(f"{error.filename or self.directory}: {error.strerror}") from None
            if not self.infiniband:
                links = self.directory / "links.toml"
                links.write_text(links_file(self.world.plan), encoding="utf-8")
                self._places["links"] = str(links)
            if self._wants_snmp():
                self._snmp = SnmpAgents(self.world, self.directory / "snmp")
                await self._snmp.start()
                stack.push_async_callback(self._snmp.stop)
            self._truth = Truth(self.scene, self.directory / "truth.json")
            self._truth.write()
            stack.callback(self._truth.close)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._live())
                group.create_task(self.trees.run())
                if self.mad is not None:
                    self._serve_ufm(group, self.mad)
                ready(self.addresses())

    def _wants_snmp(self) -> bool:
        if self.settings.snmp is not None:
            return self.settings.snmp
        if self.infiniband:
            return False
        if not snmpd_is_installed():
            log.warning("snmpd is not installed (Debian package snmpd): the switches have no SNMP agents")
            return False
        return True

    def _serve_ufm(self, group: asyncio.TaskGroup, mad: MadServer) -> None:
        self.ufm = UfmServer(self.world, mad)
        rest, telemetry = http.listen(), http.listen()
        group.create_task(http.serve(self.ufm.rest, rest))
        group.create_task(http.serve(self.ufm.telemetry, telemetry))
        self._places |= {"ufm": http.url(rest), "ufm_csv": f"{http.url(telemetry)}/csv/metrics"}
        if self.settings.ufm_tls is not None:
            secure = http.listen()
            group.create_task(http.serve(self.ufm.rest, secure, self.settings.ufm_tls))
            self._places["ufm_tls"] = http.url(secure, "https")

    def _directory(self, stack: AsyncExitStack) -> Path:
        wanted = self.settings.directory
        if wanted is not None:
            try:
                wanted.mkdir(parents=True, exist_ok=True)
                if (wanted / "sysfs").exists():
                    if not (wanted / MARK).exists():
                        raise FabricdError(f"{wanted / 'sysfs'}: is there and not from a twin; choose another --dir")
                    shutil.rmtree(wanted / "sysfs")
                (wanted / MARK).touch()
            except OSError as error:
                raise FabricdError(f"{wanted}: {error.strerror}") from None
            return wanted
        base = TMPFS if os.access(TMPFS, os.W_OK) else None
        made = tempfile.TemporaryDirectory(prefix="fabricd-twin-", dir=base, ignore_cleanup_errors=True)
        return Path(stack.enter_context(made))

    async def _live(self) -> None:
        """The fabric's clock follows the wall clock; what it missed (a suspended process) it does not catch up."""
        slot = self.world.model.engine.dt
        last = time.monotonic()
        while True:
            await asyncio.sleep(max(slot, STEP_S))
            now = time.monotonic()
            missing = min(now - last, MOST_S)
            last = now
            while missing > 0:
                self.world.advance(min(missing, slot))
                missing -= slot
                await asyncio.sleep(0)  # the faces answer between any two slots
            if self._truth is not None:
                self._truth.advance()

    def _lid(self, node: PlanNode) -> int:
        return self.mad.subnet.nodes[node.index].first.lid if self.mad is not None else 0

    def _pfc(self) -> Flags:
        return self.world.pfc_on(np.array([node.first_row for node in self.world.plan.adapters]))

    # -- where it can be found -----------------------------------------------------------------------------------

    def addresses(self) -> dict[str, Any]:
        """The faces' addresses; null for those this fabric does not have."""
        return {
            "sysfs": str(self.directory / "sysfs"),
            "mad_socket": self.mad.base if self.mad is not None else None,
            "ufm": None,
            "ufm_csv": None,
            "snmp": self._snmp.addresses if self._snmp is not None else {},
            **self._places,
            "truth": str(self.directory / "truth.json"),
        }

    def summary(self) -> str:
        """One line for people."""
        plan = self.world.plan
        hosts, switches = len(plan.hosts), len(plan.switches)
        return (
            f"{plan.technology} {plan.fabric}: {hosts} hosts with {len(plan.adapters)} adapters, {switches} switches; "
            f"{self.scene.name} from {self.scene.begin:g} s to {self.scene.end:g} s"
        )
