"""The controller: verdicts from the broker, figures from the aggregator, levers through its adapters. Composition only.

A process and user of its own: it alone holds the managers' secrets, and it opens no listening socket. People reach it through its
journal (the command line) or by messages that carry a token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fabricd.config.root import Config
from fabricd.control.adapters.base import Adapter
from fabricd.control.adapters.registry import open_adapters
from fabricd.control.documents import action_document, control_document
from fabricd.control.journal import LATCHES, VERBS, SqliteJournal
from fabricd.control.loop import Inputs, Loop
from fabricd.control.policy import load_policy
from fabricd.daemons.controller_view import ControllerView
from fabricd.errors import BAD_DOCUMENT, FabricdError, UsageError
from fabricd.model import topics
from fabricd.model.verdict import Verdict
from fabricd.transport.login import credential_path
from fabricd.transport.post import post
from fabricd.transport.watch import watch

log = logging.getLogger(__name__)

LISTED = 100  # newest actions that are kept published
MOST_VERDICT_BYTES = 1 << 20


class Controller:
    """Raises UsageError for a wrong policy or configuration, FabricdError when the journal cannot be opened."""

    def __init__(
        self,
        config: Config,
        adapters: Mapping[str, Adapter] | None = None,
        look: Callable[[Mapping[str, Verdict]], Inputs] | None = None,
    ) -> None:
        """``adapters`` and ``look`` in place of what the configuration names: for tests."""
        self.config = config
        self.fabric = config.fabric.name
        policy = load_policy(config.control.policy_file)
        self._token = _read_token(config.control.approval_token_file)
        opened = open_adapters(config.control) if adapters is None else adapters
        self.journal = SqliteJournal(config.control.journal)
        self.view = ControllerView(config)
        self._look = look or self.view.look
        self.loop = Loop(config.control, policy, self.journal, opened)
        self.verdicts: dict[str, Verdict] = {}
        self._wake = asyncio.Event()
        self._published: dict[str, bytes] = {}
        self._problem = ""
        self._blind: list[str] = []
        self._unheard = False

    # ---------------------------------------------------------------- messages

    def filters(self) -> list[str]:
        return [topics.of_all_nodes(self.fabric, kind) for kind in ("verdicts", "control", "requests")]

    def take(self, topic: str, payload: bytes) -> None:
        """One message. What cannot be read costs itself and is logged."""
        parts = topics.split(topic)
        if parts is None or parts[0] != self.fabric:
            return
        _, kind, name, _ = parts
        try:
            if kind == "verdicts":
                self._take_verdict(name, payload)
            elif kind == "control" and payload:
                self._take_latch(name, payload)
            elif kind == "requests" and payload:
                self._take_request(name, payload)
        except FabricdError as error:
            log.error("%s: %s", topic, error)

    def _take_verdict(self, name: str, payload: bytes) -> None:
        if not payload:
            self.verdicts.pop(name, None)
            return
        if len(payload) > MOST_VERDICT_BYTES:
            log.warning("verdict %s: %d bytes, at most %d", name, len(payload), MOST_VERDICT_BYTES)
            return
        try:
            verdict = msgspec.json.decode(payload, type=Verdict)
        except BAD_DOCUMENT as error:
            log.warning("verdict %s: not a verdict: %s", name, error)
            return
        if verdict.end is not None:
            self.verdicts.pop(name, None)
            return
        fresh = name not in self.verdicts
        self.verdicts[name] = verdict
        if fresh:
            self._wake.set()

    def _take_latch(self, name: str, payload: bytes) -> None:
        """A message may set a latch, never clear one."""
        for latch in LATCHES:
            if name == latch:
                if latch not in self.journal.latches():
                    self.journal.latch(latch, f"message from {_who(payload)}", time.time_ns())
                    log.warning("%s by message from %s", latch, _who(payload))
                self._wake.set()

    def _take_request(self, name: str, payload: bytes) -> None:
        try:
            document = json.loads(payload)
            verb, who, token = str(document["verb"]), str(document["who"]), str(document["token"])
        except (*BAD_DOCUMENT, KeyError, TypeError):
            log.warning("request for %s: not a request", name)
            return
        if not self._token or not hmac.compare_digest(token.encode(), self._token.encode()):
            log.warning("request for %s by %s: wrong token", name, who)
            return
        for known in VERBS:
            if verb == known:
                self.journal.ask(known, name, f"{who} (message)", time.time_ns())
                self._wake.set()

    # ---------------------------------------------------------------- life

    async def run(self, ready: Callable[[str], None]) -> None:
        """Until cancelled; a step under way is finished first, so that no push is cut in half."""
        await asyncio.to_thread(self.loop.start)
        mode = self.config.control.mode
        ready(f"fabric {self.fabric}, mode {mode}, adapters {', '.join(self.loop.managers.adapters) or 'none'}")
        async with asyncio.TaskGroup() as group:
            group.create_task(watch(self.config.broker, self.filters(), self.take))
            group.create_task(self._steps())

    async def _steps(self) -> None:
        while True:
            self._wake.clear()
            step = asyncio.ensure_future(asyncio.to_thread(self.step))
            try:
                await asyncio.shield(step)
            except asyncio.CancelledError:
                await step
                raise
            await self._publish()
            try:
                async with asyncio.timeout(self.config.control.interval):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def step(self) -> None:
        """One look and one step. A journal that cannot be written stops all pushing, not the process."""
        try:
            self._file_latches()
            self.loop.step(self._look(dict(self.verdicts)))
            problem = ""
        except FabricdError as error:
            problem = str(error)
        if problem and problem != self._problem:
            log.error("%s; nothing is pushed meanwhile", problem)
        self._problem = problem
        if self.view.problems != self._blind:
            for text in self.view.problems:
                log.warning("%s; nothing new is done meanwhile", text)
            if not self.view.problems:
                log.info("topology and figures are there")
            self._blind = list(self.view.problems)

    def _file_latches(self) -> None:
        directory = Path(self.config.control.latch_dir)
        held = self.journal.latches()
        for latch in LATCHES:
            if latch not in held and (directory / latch).exists():
                self.journal.latch(latch, f"file {directory / latch}", time.time_ns())
                log.warning("%s by file", latch)

    # ---------------------------------------------------------------- publishing

    def documents(self) -> dict[str, bytes]:
        """By name: what is to stand on the broker now."""
        problems = [*self.view.problems, *([self._problem] if self._problem else [])]
        latches = self.journal.latches()
        out: dict[str, dict[str, Any]] = {
            "controller": control_document(self.config.control.mode, latches, problems),
            **{action.id: action_document(action) for action in self.journal.actions(newest=LISTED)},
            **{f"advice {verdict}": one for verdict, one in self.loop.advice.items()},
        }
        return {name: msgspec.json.encode(document) for name, document in out.items()}

    async def _publish(self) -> None:
        wanted = self.documents()
        changed = {name: body for name, body in wanted.items() if self._published.get(name) != body}
        changed |= {name: b"" for name in self._published if name not in wanted}
        for name, body in changed.items():
            try:
                await post(self.config.broker, topics.action(self.fabric, name), body)
            except FabricdError as error:
                if not self._unheard:
                    log.warning("nothing is published: %s", error)
                self._unheard = True
                return
            self._unheard = False
            if body:
                self._published[name] = body
            else:
                del self._published[name]

    def close(self) -> None:
        self.view.close()
        self.journal.close()


def _read_token(path: str) -> str:
    if not path:
        return ""
    try:
        token = credential_path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UsageError(f"control.approval_token_file = {path}: {error.strerror}") from None
    if not token:
        raise UsageError(f"control.approval_token_file = {path}: empty")
    return token


def _who(payload: bytes) -> str:
    try:
        return str(json.loads(payload)["who"])[:100]
    except (*BAD_DOCUMENT, KeyError, TypeError):
        return "somebody"


async def run_controller(config: Config, ready: Callable[[str], None]) -> None:
    """The daemon."""
    controller = Controller(config)
    try:
        await controller.run(ready)
    finally:
        controller.close()
