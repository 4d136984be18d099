"""Remedies that lead traffic elsewhere: adaptive routing, moved destinations, hop weights, isolated links."""

from __future__ import annotations

import numpy as np

from fabricd.control.levers import routes_key
from fabricd.control.remedies.base import (
    BETWEEN_SWITCHES,
    ON_ETHERNET,
    ON_INFINIBAND,
    ROOM,
    WHO_SENDS,
    Draft,
    NotPossible,
    Precondition,
    Remedy,
    Situation,
    has_lever,
)
from fabricd.control.routes_plan import apply, plan, prove
from fabricd.model.action import Change, Lever, Touched
from fabricd.model.ident import format_guid
from fabricd.model.topology import PortRef

BALANCE = frozenset({"ecmp_collision", "oversubscription"})
BAD_LINK = frozenset({"degraded_link", "link_flap"})
AR_OPTION = Lever(adapter="opensm", device="sm", name="option", key="ar_sl_mask")
AVOID_WEIGHT = 4  # any weight above 1 has the same effect: all or nothing
REPAIRED = 0.95


def _adaptive(s: Situation) -> Draft:
    text = str(s.must_read(AR_OPTION))
    try:
        mask = int(text, 0)
    except ValueError:
        raise NotPossible(f"ar_sl_mask is {text!r}, not a number") from None
    wanted = mask
    for level in s.levels():
        wanted |= 1 << level
    if wanted == mask:
        raise NotPossible("these service levels are routed adaptively already")
    levels = ", ".join(map(str, s.levels()))
    return Draft(
        (Change(lever=AR_OPTION, old=text, new=f"0x{wanted:04X}"),),
        Touched(switches=(s.root[0],)),
        f"adaptive routing for service level {levels}: the switches choose among equal paths by their queues",
    )


def _move(s: Situation) -> Draft:
    rates = {ref: s.state.rate_of(ref) for ref in s.state.ports if not np.isnan(s.state.rate_of(ref))}
    bad = s.verdict.cause in BAD_LINK
    if bad:
        rates[s.root] = min(rates.get(s.root, np.inf), max(s.state.tx_of(s.root), 1.0))
    found = plan(s.routes, s.traffic, s.root, rates, empty=bad)
    if not found.moves:
        raise NotPossible("no move of a destination lowers the fullest port concerned")
    if bad and found.peak_after > 1.0:
        raise NotPossible(f"the other links would be {found.peak_after:.0%} full")
    wrong = prove(apply(s.routes, found.moves))
    if wrong:
        raise NotPossible(f"not proved: {wrong[0]}")
    changes = []
    frame = s.routes.frame
    for switch, moved in sorted(found.by_switch().items()):
        new, old = {}, {}
        for column, port in moved.items():
            ref = (int(frame.destinations[column]), int(frame.destination_ports[column]))
            lid = s.world.topology.nodes[ref[0]].lids.get(ref[1])
            if not lid:
                raise NotPossible(f"{s.name(ref)} has no LID")
            new[str(lid)] = port
            row = frame.switch_index[switch]
            old[str(lid)] = int(s.routes.set_of(int(s.routes.group[row, column]))[0])
        order = sorted(map(int, new))
        changes.append(
            Change(
                lever=Lever(adapter="opensm", device=format_guid(switch), name="routes", key=routes_key(order)),
                old={str(lid): old[str(lid)] for lid in order},
                new={str(lid): new[str(lid)] for lid in order},
            )
        )
    switches = tuple(sorted({switch for switch, _ in found.moves}))
    return Draft(
        tuple(changes),
        Touched(switches=switches, links=(s.root,)),
        f"{len(found.moves)} destinations leave {s.name(s.root)} for other ports: the fullest goes from "
        f"{found.peak_before:.0%} to {found.peak_after:.0%} of its rate",
    )


def _spare(s: Situation) -> str:
    """Siblings must be able to carry what leaves the root, or the remedy only moves the trouble."""
    others = siblings(s, s.root)
    if not others:
        return "the port is the only way there"
    wanted = s.traffic.load(s.root, wanted=True)
    if wanted == 0.0:
        wanted = float(np.nan_to_num(s.state.tx_of(s.root)))
    room = sum(max(0.0, ROOM * s.rate(ref) - float(np.nan_to_num(s.state.tx_of(ref)))) for ref in others)
    return "" if room >= wanted else f"the other ports have {room / 1.25e8:.0f} Gb/s of room for {wanted / 1.25e8:.0f}"


SPARE = Precondition("capacity remains without the port", _spare)


def siblings(s: Situation, root: PortRef) -> list[PortRef]:
    """Other egress ports of the switch that lead to switches its destinations can be reached by, without adaptive sets assumed."""
    frame = s.routes.frame
    row = frame.switch_index.get(root[0])
    if row is None:
        return []
    behind = int(frame.peer_switch[row, root[1]])
    level = s.world.leaf_of(root)
    out = []
    for port in np.flatnonzero(frame.peer_switch[row] >= 0).tolist():
        ref = (root[0], port)
        # Up-links of a leaf stand in for each other; elsewhere only ports to the same neighbour do.
        if port != root[1] and (level == root[0] or int(frame.peer_switch[row, port]) == behind):
            out.append(ref)
    return out


def _weight(s: Situation) -> Draft:
    key = f"{format_guid(s.root[0])} {s.root[1]}"
    lever = Lever(adapter="opensm", device="sm", name="hop_weight", key=key)
    return Draft(
        (Change(lever=lever, new=AVOID_WEIGHT),),
        Touched(switches=(s.root[0],), links=(s.root,)),
        f"a hop weight keeps all traffic off {s.name(s.root)}",
    )


def ufm_port(ref: PortRef) -> str:
    """A port as UFM names it."""
    return f"{ref[0]:016x}_{ref[1]}"


def _isolate(s: Situation) -> Draft:
    lever = Lever(adapter="ufm", device="ufm", name="unhealthy_port", key=ufm_port(s.root))
    return Draft(
        (Change(lever=lever, new=True),),
        Touched(switches=(s.root[0], s.peer(s.root)[0]), links=(s.root,)),
        f"{s.name(s.root)} is isolated: the manager routes around it in both directions",
    )


def _shut(s: Situation) -> Draft:
    lever = Lever(adapter="snmp", device=s.device(s.root), name="port_admin", key=str(s.root[1]))
    return Draft(
        (Change(lever=lever, new="down"),),
        Touched(switches=(s.root[0], s.peer(s.root)[0]), links=(s.root,)),
        f"{s.name(s.root)} is taken down: equal-cost routing uses the other links",
    )


def repaired(s: Situation) -> bool:
    """Evidence that a bad link is good again: both ends report full speed, and no end counts errors."""
    nominal = next((link.rate_gbps for link in s.world.topology.links if s.root in (link.a, link.b)), 0.0) * 1.25e8
    if not nominal:
        return False
    for ref in (s.root, s.peer(s.root)):
        row = s.state.index.get(ref)
        if row is None or not s.state.rate_of(ref) >= REPAIRED * nominal:
            return False
        if s.state.errors[row] != 0.0:  # also when it is not known (nan)
            return False
    return True


ADAPTIVE_ROUTING = Remedy(
    "adaptive_routing",
    "let the switches spread the service level over equal paths (NVIDIA's subnet manager)",
    BALANCE,
    (ON_INFINIBAND, BETWEEN_SWITCHES, has_lever("opensm", "option")),
    _adaptive,
    gain=0.8,
    cost=0.0,
)
MOVE_DESTINATIONS = Remedy(
    "move_destinations",
    "lead some destinations by other ports (OpenSM's file engine); reachability and deadlock freedom proved first",
    BALANCE | BAD_LINK,
    (ON_INFINIBAND, BETWEEN_SWITCHES, has_lever("opensm", "routes"), WHO_SENDS),
    _move,
    gain=0.7,
    cost=0.0,
)
HOP_WEIGHT = Remedy(
    "hop_weight",
    "keep all traffic off the port (OpenSM's minhop and dor)",
    BALANCE | BAD_LINK,
    (ON_INFINIBAND, BETWEEN_SWITCHES, has_lever("opensm", "hop_weight"), SPARE),
    _weight,
    gain=0.5,
    cost=1.0,
)
ISOLATE_LINK = Remedy(
    "isolate_link",
    "mark the port unhealthy in UFM: routed around, both directions",
    BAD_LINK,
    (ON_INFINIBAND, BETWEEN_SWITCHES, has_lever("ufm", "unhealthy_port"), SPARE),
    _isolate,
    gain=0.7,
    cost=1.0,
)
SHUT_LINK = Remedy(
    "shut_link",
    "take the port down over SNMP: equal-cost routing uses the others",
    BAD_LINK,
    (ON_ETHERNET, BETWEEN_SWITCHES, has_lever("snmp", "port_admin"), SPARE),
    _shut,
    gain=0.7,
    cost=1.0,
)
REMEDIES = (ADAPTIVE_ROUTING, MOVE_DESTINATIONS, HOP_WEIGHT, ISOLATE_LINK, SHUT_LINK)
