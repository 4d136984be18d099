"""The UFM adapter. UFM is asked again after every write: that it answered 200 proves nothing."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from fabricd.config.control import ControlConfig
from fabricd.control.adapters.base import Ack, AdapterError, Capability, Push, Severity
from fabricd.control.adapters.base_calls import compare, settle, translated
from fabricd.control.adapters.ufm_levers import Handler, handlers
from fabricd.devices.base import DeviceError
from fabricd.devices.ufm.client import Call, NotFound, UfmClient
from fabricd.devices.ufm.login import Login
from fabricd.errors import UsageError
from fabricd.model.action import Change, Lever

PREFIXES = ("/ufmRest", "/ufmRestV2", "/ufmRestV3", "/ufmRestKrb", "")
SETTLE_S = 2.0
ROUTES = "/app/roles_access_control/rest_apis"
EVENT_IDS = {"info": 551, "minor": 552, "warning": 553, "critical": 554}


class UfmAdapter:
    """Blocking; one call at a time."""

    name = "ufm"

    def __init__(self, client: UfmClient) -> None:
        self._ufm = client
        self._handlers = handlers(client)
        self.time_limit_s = client.job_limit_s + 20.0
        self._one = threading.RLock()

    def _handler(self, lever: Lever) -> Handler:
        handler = self._handlers.get(lever.name)
        if handler is None:
            raise AdapterError(f"ufm has no lever {lever.name}")
        return handler

    def probe(self) -> list[Capability]:
        """By the routes this UFM says it serves; a UFM too old to say is taken to serve what its guides describe."""
        with self._one, translated():
            try:
                listed = self._ufm.get(ROUTES)
            except NotFound:
                listed = None
            served = (
                None if listed is None else {(str(row["method"]).upper(), _route(str(row["route"]))) for row in listed}
            )
            out = []
            for name, handler in self._handlers.items():
                missing = [
                    f"{method} {path}"
                    for method, path in handler.needs
                    if served is not None and (method, path) not in served
                ]
                why = f"this UFM does not serve {missing[0]}" if missing else ""
                out.append(Capability(name=name, device="ufm", writable=not missing, why=why))
            return out

    def read(self, lever: Lever) -> Any:
        with self._one, translated():
            return self._handler(lever).read(lever)

    read_back = read

    def plan(self, change: Change) -> Push:
        with self._one, translated():
            calls = self._handler(change.lever).calls(change.lever, change.new)
            return Push(lever=change.lever, shown=tuple(self._ufm.shown(call) for call in calls))

    def push(self, change: Change) -> Ack:
        lever = change.lever
        with self._one, translated():
            handler = self._handler(lever)
            compare(lever, handler.read(lever), change.old)
            answers: list[str] = []
            warnings: list[str] = []
            device_s = 0.0
            for call in handler.calls(lever, change.new):
                done = self._do(call, earlier=bool(answers))
                answers.append(done.answer)
                warnings += done.warnings
                device_s += done.seconds
            start = time.monotonic()
            settle(lambda: self.read(lever), change.new, SETTLE_S)
            try:
                handler.wrote(lever, change.new)
            except DeviceError as error:
                warnings.append(str(error))
            device_s += time.monotonic() - start
            return Ack(answer="; ".join(answers), device_seconds=device_s, warnings=tuple(warnings))

    def _do(self, call: Call, *, earlier: bool) -> Any:
        try:
            return self._ufm.do(call)
        except DeviceError as error:
            error.reached = error.reached or earlier
            raise

    def report(self, severity: Severity, name: str, text: str, object_name: str = "") -> None:
        """A finding as an event in UFM, where its users look. Raises AdapterError, Unreachable."""
        body = {
            "event_id": EVENT_IDS[severity], "description": text[:1000], "external_event_name": name[:100],
            "external_event_type": "Congestion", "external_event_source": "fabricd",
        }  # fmt: skip
        if object_name:
            body["object_name"] = object_name
        with self._one, translated():
            self._ufm.do(Call("POST", "/app/events/external_event", body))

    def close(self) -> None:
        self._ufm.close()


def _route(text: str) -> str:
    """Placeholders are named differently by every version."""
    return re.sub(r"<[^>]*>", "*", text)


def open_adapter(config: ControlConfig) -> UfmAdapter:
    """By [control]. Raises UsageError for an unusable setting or credential file."""
    if not config.ufm_url.startswith(("https://", "http://127.0.0.1", "http://localhost", "http://[::1]")):
        raise UsageError(f"control.ufm_url = {config.ufm_url!r}: https://…, or http:// on this machine")
    if config.ufm_prefix not in PREFIXES:
        raise UsageError(f"control.ufm_prefix = {config.ufm_prefix!r}: one of {', '.join(filter(None, PREFIXES))}")
    login = Login(
        prefix=config.ufm_prefix,
        user=config.ufm_user,
        password_file=config.ufm_password_file,
        token_file=config.ufm_token_file,
        cert_file=config.ufm_cert_file,
        key_file=config.ufm_key_file,
        ca_file=config.ufm_ca_file,
        insecure=config.ufm_insecure,
    )
    return UfmAdapter(UfmClient(config.ufm_url, login, job_limit_s=config.ufm_time_limit))
