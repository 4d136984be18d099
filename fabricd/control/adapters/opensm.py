"""The opensm adapter: files written in one step, SIGHUP or ``reroute`` as the change needs, acknowledged by the log, read back from
the switches' own tables. opensm may run here or on a UFM host (``fabricd sm-host`` at the far end of ssh).
"""

from __future__ import annotations

import difflib
import hashlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import Ack, AdapterError, Capability, Push, Unreachable
from fabricd.control.adapters.base_calls import compare, settle, translated
from fabricd.control.adapters.opensm_levers import Desk, Edit, Handler, handlers
from fabricd.devices.opensm.far_end import RemoteHost
from fabricd.devices.opensm.host import Host, LocalHost
from fabricd.devices.opensm.plane import CollectorGetter, Getter, Plane
from fabricd.devices.opensm.sweep import sweep
from fabricd.errors import UsageError
from fabricd.model.action import Change, Lever
from fabricd.model.ident import parse_guid

SETTLE_S = 2.0  # after the log said the sweep is over, for one that was under way before
MOST_SHOWN = 256 << 10
NOT_MASTER = ("Entering STANDBY", "Entering NOT-ACTIVE", "Exiting SM")


class OpenSmAdapter:
    """Blocking; one call at a time. ``get`` None: no device plane, so files and the log alone vouch for a change."""

    name = "opensm"

    def __init__(
        self,
        host: Host,
        conf: str,
        cache_dir: str,
        get: Getter | None,
        *,
        console: bool,
        hangup: bool,
        within_s: float = 20.0,
    ) -> None:
        self._host, self._lid_file = host, str(Path(cache_dir) / "guid2lid")
        plane = Plane(get, self._lids) if get is not None else None
        self._desk = Desk(host, conf, plane, console, hangup)
        self._handlers = handlers(self._desk)
        self.time_limit_s = within_s
        self._one = threading.RLock()

    def _lids(self) -> Mapping[int, int]:
        """Port GUID -> LID, as opensm keeps them."""
        out = {}
        for line in (self._host.read(self._lid_file) or "").splitlines():
            words = line.split()
            try:
                if len(words) >= 2:
                    out[parse_guid(words[0])] = int(words[1], 16)
            except ValueError:
                continue
        return out

    def _handler(self, lever: Lever) -> Handler:
        handler = self._handlers.get(lever.name)
        if handler is None:
            raise AdapterError(f"opensm has no lever {lever.name}")
        return handler

    def probe(self) -> list[Capability]:
        with self._one, translated():
            out = []
            for name, handler in self._handlers.items():
                why = handler.why_not()
                out.append(Capability(name=name, device="sm", writable=not why, why=why))
            return out

    def read(self, lever: Lever) -> Any:
        with self._one, translated():
            return self._handler(lever).read(lever)

    def plan(self, change: Change) -> Push:
        with self._one, translated():
            edits = self._handler(change.lever).edits(change.lever, change.new)
            return Push(lever=change.lever, shown=tuple(part for edit in edits for part in show(edit)))

    def push(self, change: Change) -> Ack:
        lever = change.lever
        with self._one, translated():
            handler = self._handler(lever)
            compare(lever, handler.read(lever), change.old)
            edits = handler.edits(lever, change.new)
            self._must_be_master()
            said, device_s = "", 0.0
            complaints: list[str] = []
            for edit in edits:
                # Somebody may have written the file since it was read for this edit.
                if self._host.read(edit.path) != edit.before:
                    raise AdapterError(
                        f"{edit.path} was changed while it was being edited", reached=edit is not edits[0]
                    )
                self._host.write(edit.path, edit.after)
                done = sweep(self._host, edit.how, lever.name, self.time_limit_s - SETTLE_S)
                said, device_s = done.said, device_s + done.seconds
                if edit.after is not None:  # with the file gone opensm says that it cannot open it: that is meant
                    complaints += done.complaints
            if complaints:
                raise AdapterError(f"opensm does not take it: {complaints[0]}", reached=True)
            start = time.monotonic()
            settle(lambda: self.read_back(lever), change.new, SETTLE_S)
            return Ack(answer=said, device_seconds=device_s + time.monotonic() - start)

    def _must_be_master(self) -> None:
        """A standby would take the file and program nothing, until it becomes master at some later time."""
        role = self._host.identity()
        if any(word in role for word in NOT_MASTER):
            raise Unreachable(f"opensm here is not the master subnet manager ({role})")

    def read_back(self, lever: Lever) -> Any:
        with self._one, translated():
            return self._handler(lever).device(lever)

    def epoch(self) -> str:
        with translated():
            return self._host.identity()


def show(edit: Edit) -> list[str]:
    """What is sent: the change of the file, line by line, the digest of the whole, and the trigger."""
    trigger = "kill -HUP opensm" if edit.how == "hangup" else "opensm console: reroute"
    if edit.after is None:
        return [f"remove {edit.path}", trigger]
    before, after = (edit.before or "").splitlines(keepends=True), edit.after.splitlines(keepends=True)
    digest = hashlib.sha256(edit.after.encode("utf-8", "surrogateescape")).hexdigest()
    lines = (
        "".join(difflib.unified_diff(before, after, edit.path, edit.path, n=1)) or "(the file is rewritten unchanged)\n"
    )
    if len(lines) > MOST_SHOWN:
        lines = f"{lines[:MOST_SHOWN]}… {len(lines)} characters in all\n"
    return [f"write {edit.path}: {len(edit.after)} characters, sha256 {digest}\n{lines}", trigger]


def open_adapter(config: ControlConfig) -> OpenSmAdapter:
    """By [control]. Raises UsageError for an unusable setting."""
    host: Host
    if config.opensm_ssh:
        host = RemoteHost(config.opensm_ssh)
        console = hangup = True  # whether the far end has them it says itself
    else:
        host = local_host(config)
        console, hangup = bool(config.opensm_console), bool(config.opensm_pid_file)
    get = CollectorGetter(config.collector_socket) if config.collector_socket else None
    return OpenSmAdapter(host, config.opensm_conf, config.opensm_cache_dir, get, console=console, hangup=hangup)


def local_host(config: ControlConfig) -> LocalHost:
    """opensm on this machine, for the adapter and for the far end of ssh. Raises UsageError."""
    address = None
    if config.opensm_console:
        name, _, number = config.opensm_console.rpartition(":")
        if not name or not number.isdigit():
            raise UsageError(f"control.opensm_console = {config.opensm_console!r}: host:port")
        if name not in ("127.0.0.1", "localhost", "::1", "[::1]"):
            raise UsageError(
                f"control.opensm_console = {config.opensm_console!r}: the console has no login, loopback only"
            )
        address = (name.strip("[]"), int(number))
    directories = {Path(config.opensm_conf).parent, *map(Path, config.opensm_directories)}
    return LocalHost(
        log=Path(config.opensm_log),
        pid_file=Path(config.opensm_pid_file) if config.opensm_pid_file else None,
        console_address=address,
        directories=tuple(sorted(directories)),
        readable=(Path(config.opensm_cache_dir) / "guid2lid",),
    )
