"""The UFM stand-in in a thread of the test, with faults put between it and its callers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fabricd.twin import http
from fabricd.twin.mad.server import MadServer
from fabricd.twin.ufm.auth import Accounts
from fabricd.twin.ufm.server import UfmServer
from tests.unit.twin.static_fabric import StaticFabric, leaf_spine

Rewrite = Callable[[Any], Any]


@dataclass(slots=True)
class Faults:
    """``statuses``: (method, pattern of the path, status, how often). ``swallow``: answered 200 and not passed on. ``silent``: never
    answered. ``rewrite``: answers changed on the way. ``seen``: what was asked."""

    statuses: list[list[Any]] = field(default_factory=list)
    swallow: set[tuple[str, str]] = field(default_factory=set)
    silent: set[tuple[str, str]] = field(default_factory=set)
    rewrite: dict[str, Rewrite] = field(default_factory=dict)
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)

    def clear(self) -> None:
        for each in (self.statuses, self.swallow, self.silent, self.rewrite, self.seen):
            each.clear()

    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.seen if method != "GET"]


class Between:
    """An ASGI application before another one."""

    def __init__(self, app: Any, faults: Faults) -> None:
        self._app, self._faults = app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        method, path = request.method, request.url.path
        self._faults.seen.append((method, path, body))
        for fault in self._faults.statuses:
            if fault[0] == method and re.search(fault[1], path) and fault[3] > 0:
                fault[3] -= 1
                await Response(json.dumps({"error": "injected"}), fault[2])(scope, receive, send)
                return
        if any(method == m and re.search(p, path) for m, p in self._faults.swallow):
            await Response("", 200)(scope, receive, send)
            return
        if any(method == m and re.search(p, path) for m, p in self._faults.silent):
            await asyncio.sleep(30)
            return
        await self._pass(method, path, scope, body, send)

    async def _pass(self, method: str, path: str, scope: Scope, body: bytes, send: Send) -> None:
        async def again() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        rewrite = next((change for pattern, change in self._faults.rewrite.items() if re.search(pattern, path)), None)
        if rewrite is None or method != "GET":
            await self._app(scope, again, send)
            return
        parts: list[dict[str, Any]] = []

        async def keep(message: Any) -> None:
            parts.append(message)

        await self._app(scope, again, keep)
        content = b"".join(part.get("body", b"") for part in parts)
        changed = json.dumps(rewrite(json.loads(content))).encode()
        await Response(changed, parts[0]["status"], media_type="application/json")(scope, again, send)


@dataclass(slots=True)
class StandIn:
    url: str
    server: UfmServer
    faults: Faults
    fabric: StaticFabric

    @property
    def accounts(self) -> Accounts:
        return self.server.accounts


@contextmanager
def stand_in(tls: http.Tls | None = None) -> Iterator[StandIn]:
    """A small InfiniBand fabric behind the stand-in, on a free loopback port."""
    ready, box, ends = threading.Event(), [], []
    faults = Faults()

    async def main() -> None:
        fabric = StaticFabric(leaf_spine())
        mad = MadServer(fabric, f"ufm-bench-{id(faults)}")
        await mad.start()
        server = UfmServer(fabric, mad)
        listener = http.listen()
        serving = asyncio.create_task(http.serve(Between(server.rest, faults), listener, tls))
        box.append(StandIn(http.url(listener, "https" if tls else "http"), server, faults, fabric))
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        ends.append(lambda: loop.call_soon_threadsafe(ended.set))
        ready.set()
        await ended.wait()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await mad.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(30), "the stand-in did not start"
    try:
        yield box[0]
    finally:
        ends[0]()
        thread.join(30)
