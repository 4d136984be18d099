"""Asking opensm for a sweep and waiting until its log says that the sweep is over."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import Literal

from fabricd.devices.base import DeviceError
from fabricd.devices.opensm.host import Host

How = Literal["hangup", "reroute"]

# What the log says at the end. A reroute only programs tables: its own last word is not logged at the usual level.
DONE: dict[How, str] = {"hangup": "SUBNET UP", "reroute": "tables configured on all switches"}
_FAILED = re.compile(r"Errors during initialization|SM port is down|Entering STANDBY state|Exiting SM")
_LOOK_S = 0.01
# What opensm says of a file it could not use; it then goes on without it, and still ends with SUBNET UP.
COMPLAINTS = {
    "qos_policy": re.compile(r"ERR AC\d\d:.*"),
    "partition": re.compile(r"PARSE (?:ERROR|WARN): .*|Partition configuration in error.*|ERR B[0-9A-F]{3}: .*prtn.*"),
    "routes": re.compile(r"do_ucast_file_load: (?:ERR 63|PARSE ERROR).*|file: cannot build fwd tables.*"),
    "hop_weight": re.compile(r"ERR AD05: .*|cannot parse hop_weights.*"),
    "option": re.compile(r"(?:parse_conf|opts_|osm_subn_rescan|unpack).*ERR.*|Invalid .*"),
}


@dataclass(frozen=True, slots=True)
class Swept:
    """``said``: opensm's line at the end; ``complaints``: what it said against the file of this kind of lever."""

    said: str
    seconds: float
    complaints: tuple[str, ...]


def sweep(host: Host, how: How, kind: str, within_s: float) -> Swept:
    """Trigger a sweep and wait for its end. Raises DeviceError (``reached``) when it fails or does not end in time."""
    mark = host.mark()
    start = time.monotonic()
    if how == "hangup":
        host.hangup()
    else:
        host.console("reroute")
    seen = ""
    pause = threading.Event()
    while True:
        text, mark = host.log_since(mark)
        seen += text
        if failed := _FAILED.search(seen):
            raise DeviceError(f"opensm: {_line(seen, failed.start())}", reached=True)
        if (at := seen.find(DONE[how])) >= 0:
            complaints = tuple(match[0].strip() for match in COMPLAINTS[kind].finditer(seen[:at]))
            return Swept(_line(seen, at), time.monotonic() - start, complaints)
        if time.monotonic() - start > within_s:
            raise DeviceError(f"opensm: no '{DONE[how]}' within {within_s:g} s of the {how}", reached=True)
        pause.wait(_LOOK_S)


def _line(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    return text[start : end if end >= 0 else len(text)].strip()
