"""What all adapters do alike: device errors become the adapter's, a lever is compared before it is written, reads are repeated."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fabricd.control.adapters.base import AdapterError, Conflict, Unreachable
from fabricd.devices.base import DeviceChanged, DeviceError, DeviceUnreachable
from fabricd.model.action import Lever

_AGAIN_S = 0.02


@contextmanager
def translated() -> Iterator[None]:
    """Errors of ``devices/`` as those of the adapter protocol."""
    try:
        yield
    except DeviceUnreachable as error:
        raise Unreachable(str(error), reached=error.reached) from None
    except DeviceChanged as error:
        raise Conflict(str(error)) from None
    except DeviceError as error:
        raise AdapterError(str(error), reached=error.reached) from None


def compare(lever: Lever, now: Any, old: Any) -> None:
    """Raises Conflict when the lever does not hold what the change was made for."""
    if now != old:
        raise Conflict(f"{lever.adapter} {lever.name} {lever.key} holds {shown(now)}, not {shown(old)}")


def settle(read: Callable[[], Any], wanted: Any, within_s: float) -> bool:
    """Read until the device plane has what was written, or the time is over: a sweep that was under way may end first.

    Never raises for a device that does not answer meanwhile: the read-back that follows says so.
    """
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while True:
        try:
            if read() == wanted:
                return True
        except AdapterError:
            pass
        if time.monotonic() >= deadline:
            return False
        pause.wait(_AGAIN_S)


def shown(value: Any) -> str:
    """A lever's value in one line."""
    return "nothing" if value is None else json.dumps(value, sort_keys=True)
