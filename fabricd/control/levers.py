"""The words adapters and policy share: every kind of lever, what its device and key mean, and the JSON shape of its value.

A lever's value is what ``read`` gives and ``new`` holds; None always means "not set there". ``read`` must be defined by the lever
alone, so whatever a change leaves untouched is not part of the value (the ``routes`` key therefore lists the LIDs it is about).
GUIDs are ``0x`` and 16 hexadecimal digits. ``sm`` and ``ufm`` are the managers themselves, one of each per controller.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fabricd.errors import UsageError
from fabricd.model.action import Lever


class LeverKind(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. ``undo`` says what an undo does not bring back by itself, if anything."""

    adapter: str
    name: str
    device: str
    key: str
    value: str
    causes: tuple[str, ...]
    undo: str = ""


_BALANCE = ("ecmp_collision", "oversubscription")
_BAD_LINK = ("degraded_link", "link_flap")
_CROWD = ("incast", "priority_contention")
_HOST = ("slow_receiver", "pfc_storm")

LEVERS: tuple[LeverKind, ...] = (
    LeverKind(
        adapter="opensm",
        name="option",
        device="sm",
        key="name in opensm.conf: ar_sl_mask (NVIDIA's SM), qos_swe_vlarb_low, qos_swe_vlarb_high, qos_swe_high_limit, "
        "qos_sl2vl, congestion_control, cc_sw_cong_setting_threshold, cc_ca_cong_setting_ccti_increase, …",
        value="text as it stands in the file",
        causes=(*_BALANCE, *_CROWD),
    ),
    LeverKind(
        adapter="opensm",
        name="hop_weight",
        device="sm",
        key="'<switch guid> <port>', the egress to be avoided (minhop and dor only, all or nothing)",
        value="integer of 2 or more",
        causes=(*_BALANCE, *_BAD_LINK),
        undo="needs the console's reroute: existing entries stay while they are least hops",
    ),
    LeverKind(
        adapter="opensm",
        name="routes",
        device="switch guid",
        key="LIDs, ascending, separated by commas: '12,15,16'",
        value='object from LID text to egress port for exactly these LIDs: {"12": 30, "15": 31}',
        causes=(*_BALANCE, *_BAD_LINK),
    ),
    LeverKind(
        adapter="opensm",
        name="qos_policy",
        device="sm",
        key="name of the rule (letters, digits, hyphens): 'fabricd-7f3a'",
        value='object {"sl": 3, "source": [port guids], "destination": [port guids]}; either list may be empty = any',
        causes=_CROWD,
        undo="connections made meanwhile keep their service level until they ask again",
    ),
    LeverKind(
        adapter="opensm",
        name="partition",
        device="sm",
        key="P_Key as 0x and four digits",
        value="the definition's text, one line, without its semicolon",
        causes=_CROWD,
        undo="existing multicast groups keep their service level and rate",
    ),
    LeverKind(
        adapter="ufm",
        name="qos_conf",
        device="ufm",
        key="P_Key as 0x and hexadecimal digits",
        value='object {"mtu_limit": 4, "service_level": 3, "rate_limit": 100}',
        causes=_CROWD,
        undo="existing multicast groups keep their service level and rate",
    ),
    LeverKind(
        adapter="ufm",
        name="sl_rate",
        device="ufm",
        key="port guid of the adapter",
        value='object from service level text to Mb/s: {"0": 100000}; 0 = unlimited',
        causes=_CROWD,
    ),
    LeverKind(
        adapter="ufm",
        name="unhealthy_port",
        device="ufm",
        key="'<16 hexadecimal digits>_<port>'",
        value="boolean: isolated",
        causes=(*_BAD_LINK, *_HOST),
    ),
    LeverKind(
        adapter="ufm",
        name="port_admin",
        device="ufm",
        key="'<16 hexadecimal digits>_<port>'",
        value="'up' or 'down'",
        causes=(*_HOST, "pfc_deadlock"),
        undo="a disabled port stays so over a restart of the switch until it is enabled",
    ),
    LeverKind(
        adapter="snmp",
        name="pfc",
        device="name of the target",
        key="port number (the topology's)",
        value="eight booleans, priority 0 first",
        causes=(*_HOST, "pfc_deadlock"),
    ),
    LeverKind(
        adapter="snmp",
        name="ets",
        device="name of the target",
        key="port number",
        value="eight shares in percent, priority 0 first, which sum to 100 (written in one PDU)",
        causes=_CROWD,
    ),
    LeverKind(
        adapter="snmp",
        name="ecn",
        device="name of the target",
        key="'<port number> <priority>'",
        value='object {"kmin": percent, "kmax": percent, "pmax": percent} of the packet memory, 0..100; pmax 0 = off',
        causes=_CROWD,
    ),
    LeverKind(
        adapter="snmp",
        name="port_admin",
        device="name of the target",
        key="port number",
        value="'up' or 'down'",
        causes=(*_BAD_LINK, *_HOST, "pfc_deadlock"),
    ),
)
_BY_WORD = {(kind.adapter, kind.name): kind for kind in LEVERS}


def kind_of(lever: Lever) -> LeverKind:
    """Raises UsageError for a lever no adapter knows."""
    kind = _BY_WORD.get((lever.adapter, lever.name))
    if kind is None:
        raise UsageError(f"adapter {lever.adapter} has no lever {lever.name}")
    return kind


def routes_key(lids: list[int]) -> str:
    """The key of a ``routes`` lever."""
    return ",".join(map(str, sorted(lids)))


def routes_lids(key: str) -> list[int]:
    """LIDs of a ``routes`` lever's key. Raises UsageError when it is none."""
    parts = key.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"routes: {key!r} is not a list of LIDs")
    return [int(part) for part in parts]


def table() -> list[dict[str, Any]]:
    """The table as documents, for help pages."""
    return [msgspec.to_builtins(kind) for kind in LEVERS]
