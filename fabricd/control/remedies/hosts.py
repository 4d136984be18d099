"""Remedies at hosts: slow down who sends too much, set apart who does not drain, break a cycle of pauses. Never a switch."""

from __future__ import annotations

import numpy as np

from fabricd.control.remedies.base import (
    AT_HOST,
    ON_ETHERNET,
    ON_INFINIBAND,
    WHO_SENDS,
    Draft,
    NotPossible,
    Remedy,
    Situation,
    has_lever,
    port_ref,
)
from fabricd.control.remedies.routing import ufm_port
from fabricd.model.action import Change, Lever, Touched
from fabricd.model.ident import format_guid
from fabricd.model.topology import PortRef

CROWD = frozenset({"incast", "priority_contention"})
FULL_LINK = frozenset({"ecmp_collision", "oversubscription", "degraded_link"})
HOST = frozenset({"slow_receiver", "pfc_storm"})
SHARE = 0.85  # of what the root carries, given to its senders: the rest lets the queue drain
ELSEWHERE = 1.05  # of what a sender sends to others, left to it
LEAST_MBPS = 1000
MOST_SENDERS = 64
BYTES_PER_MBPS = 125_000.0


def _limit_senders(s: Situation) -> Draft:
    """Each heavy sender gets an even part of what the root takes, and what it sends elsewhere on top."""
    root = s.crowded
    senders = s.traffic.senders(root)
    if len(senders) > MOST_SENDERS:
        raise NotPossible(f"{len(senders)} senders, at most {MOST_SENDERS} are limited")
    carried = s.state.tx_of(root)
    slow = s.verdict.cause in HOST or s.verdict.cause == "degraded_link"
    takes = min(s.rate(root), carried) if slow else s.rate(root)
    if np.isnan(takes):
        raise NotPossible(f"what {s.name(root)} carries is not known")
    others = s.traffic.load(root) - sum(senders.values())
    part = max(0.0, SHARE * takes - others) / len(senders)
    changes = []
    for src in senders:
        elsewhere = _elsewhere(s, src, senders[src])
        keys = [str(level) for level in s.levels()]
        limit = max(LEAST_MBPS, round((part + ELSEWHERE * elsewhere) / BYTES_PER_MBPS))
        node = s.world.topology.nodes[src[0]]
        lever = Lever(
            adapter="ufm",
            device="ufm",
            name="sl_rate",
            key=format_guid(node.port_guids.get(src[1]) or src[0]),
        )
        changes.append(Change(lever=lever, new=dict.fromkeys(keys, limit)))
    return Draft(
        tuple(changes),
        Touched(),
        f"{len(changes)} senders together send what {s.name(root)} takes, {takes / 1.25e8:.0f} Gb/s",
    )


def _elsewhere(s: Situation, src: PortRef, to_root: float) -> float:
    """Bytes per second a sender needs for others: what it sent before the trouble, for now even that may be held up."""
    now = max(0.0, s.traffic.load(src) - to_root)
    if s.before is None:
        return now
    earlier = s.before.tx_of(src)
    return now if np.isnan(earlier) else max(0.0, earlier)


def _isolate_host(s: Situation) -> Draft:
    host = s.world.topology.nodes[s.host[0]]
    lever = Lever(adapter="ufm", device="ufm", name="unhealthy_port", key=ufm_port(s.root))
    return Draft(
        (Change(lever=lever, new=True),),
        Touched(links=(s.root,), hosts=(host.host or host.name,)),
        f"{host.host or host.name} does not drain: its port is set apart for a limited time; drain it in the scheduler",
    )


def _shut_host(s: Situation) -> Draft:
    host = s.world.topology.nodes[s.host[0]]
    lever = Lever(adapter="snmp", device=s.device(s.root), name="port_admin", key=str(s.root[1]))
    return Draft(
        (Change(lever=lever, new="down"),),
        Touched(switches=(s.root[0],), links=(s.root,), hosts=(host.host or host.name,)),
        f"{host.host or host.name} does not drain: its port is taken down for a limited time; drain it in the scheduler",
    )


def pfc_off(s: Situation, ref: PortRef) -> Change:
    """PFC of the concerned priorities off on one port. Raises NotPossible where it is off already."""
    lever = Lever(adapter="snmp", device=s.device(ref), name="pfc", key=str(ref[1]))
    mask = list(s.must_read(lever))
    if len(mask) != 8:
        raise NotPossible(f"{ref[1]}: {len(mask)} priorities, not 8")
    new = [bool(on) and priority not in s.levels() for priority, on in enumerate(mask)]
    if new == mask:
        raise NotPossible(f"PFC is off already on {s.name(ref)}")
    return Change(lever=lever, old=mask, new=new)


def _deaf_to_host(s: Situation) -> Draft:
    host = s.world.topology.nodes[s.host[0]]
    return Draft(
        (pfc_off(s, s.root),),
        Touched(switches=(s.root[0],)),
        f"the switch no longer stops for {host.host or host.name}; what it cannot take is dropped there and not held in the fabric",
    )


def _break_cycle(s: Situation) -> Draft:
    """At the port of the cycle with the least traffic that has other ways to go: its innocent bytes are what it costs."""
    ring = [port_ref(root) for root in s.verdict.roots]
    inside = [ref for ref in ring if ref[0] in s.routes.frame.switch_index]
    if len(inside) < 2:
        raise NotPossible("the verdict does not name the ports of the cycle")
    cheapest = min(inside, key=lambda ref: (_innocent(s, ref, set(inside)), ref))
    return Draft(
        (pfc_off(s, cheapest),),
        Touched(switches=(cheapest[0],)),
        f"{s.name(cheapest)} ignores pause for a limited time: the circle of {len(inside)} ports can drain",
    )


def _innocent(s: Situation, ref: PortRef, ring: set[PortRef]) -> float:
    """Bytes per second over a port that cross no other port of the ring."""
    out = 0.0
    for number, share in s.traffic.over(ref):
        if not any(other in ring and other != ref for other, _ in s.traffic.paths[number]):
            out += float(s.traffic.demand[number]) * share
    return out


RATE_LIMIT_SENDERS = Remedy(
    "rate_limit_senders",
    "limit the senders' service level to what the root takes (UFM's enhanced QoS)",
    CROWD | HOST | FULL_LINK,
    (ON_INFINIBAND, WHO_SENDS, has_lever("ufm", "sl_rate")),
    _limit_senders,
    gain=0.8,
    cost=0.0,
)
ISOLATE_HOST = Remedy(
    "isolate_host",
    "set the host's port apart in UFM for a limited time",
    HOST,
    (ON_INFINIBAND, AT_HOST, has_lever("ufm", "unhealthy_port")),
    _isolate_host,
    gain=0.9,
    cost=1.0,
    time_limited=True,
)
SHUT_HOST = Remedy(
    "shut_host",
    "take the host's switch port down over SNMP for a limited time",
    HOST,
    (ON_ETHERNET, AT_HOST, has_lever("snmp", "port_admin")),
    _shut_host,
    gain=0.9,
    cost=1.0,
    time_limited=True,
)
PFC_OFF_HOST = Remedy(
    "pfc_off_host",
    "the switch port ignores the host's pause frames for a limited time",
    HOST,
    (ON_ETHERNET, AT_HOST, has_lever("snmp", "pfc")),
    _deaf_to_host,
    gain=0.9,
    cost=0.1,
    time_limited=True,
)
BREAK_CYCLE = Remedy(
    "break_cycle",
    "PFC off for a limited time at the port of the cycle with the least innocent traffic",
    frozenset({"pfc_deadlock"}),
    (ON_ETHERNET, has_lever("snmp", "pfc")),
    _break_cycle,
    gain=0.9,
    cost=0.1,
    time_limited=True,
)
REMEDIES = (RATE_LIMIT_SENDERS, ISOLATE_HOST, SHUT_HOST, PFC_OFF_HOST, BREAK_CYCLE)
