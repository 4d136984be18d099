"""How every daemon lives: SIGTERM and SIGINT end it within seconds, the watchdog is fed from its event loop, SIGHUP reloads.

SIGHUP ends what has nothing to reload, as a terminal that hangs up expects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from fabricd.daemons.notify import Notifier

log = logging.getLogger(__name__)

STOP_WITHIN_S = 4.5  # systemd's TimeoutStopSec of our units is 5 s


async def run_daemon(
    main: Callable[[Callable[[str], None]], Coroutine[Any, Any, None]],
    reload: Callable[[], None] | None = None,
    notifier: Notifier | None = None,
) -> None:
    """Run ``main(ready)`` until a signal or its end. ``main`` calls ``ready(status)`` when it is up; its errors are raised here."""
    own = notifier or Notifier()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, reload, own)
    else:
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    work = asyncio.create_task(main(own.ready))
    waiting = asyncio.create_task(stop.wait())
    beat = asyncio.create_task(_feed(own))
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        own.stopping()
        if work.done():
            _raise_first(work)
            return
        log.info("stopping")
        work.cancel()
        done, _ = await asyncio.wait((work,), timeout=STOP_WITHIN_S)
        if not done:
            log.error("did not stop within %s s", STOP_WITHIN_S)
            return
        with contextlib.suppress(asyncio.CancelledError):
            _raise_first(work)
    finally:
        for task in (waiting, beat):
            task.cancel()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)
        own.close()


def _raise_first(work: asyncio.Task[None]) -> None:
    """The task's error; of a group of tasks the first one, so that the command line can print it as one line."""
    try:
        work.result()
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


def _reload(reload: Callable[[], None], notifier: Notifier) -> None:
    notifier.reloading()
    try:
        reload()
    finally:
        notifier.ready()


async def _feed(notifier: Notifier) -> None:
    if notifier.watchdog_s is None:
        return
    while True:
        notifier.alive()
        await asyncio.sleep(notifier.watchdog_s / 5)
