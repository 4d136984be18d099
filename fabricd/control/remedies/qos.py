"""Remedies of marking, scheduling and lanes: earlier marks, more weight for the victims' priority, the aggressor on another lane."""

from __future__ import annotations

import zlib

from fabricd.control.remedies.base import (
    ON_ETHERNET,
    ON_INFINIBAND,
    WHO_SENDS,
    Draft,
    NotPossible,
    Precondition,
    Remedy,
    Situation,
    has_lever,
)
from fabricd.control.remedies.hosts import CROWD, HOST
from fabricd.model.action import Change, Lever, Touched
from fabricd.model.ident import format_guid

LEAST_SHARE, STEP = 5, 20  # percent
LEAST_PMAX = 20
SWITCH_THRESHOLD_TOP = 15
VLS = 16


def _option(name: str) -> Lever:
    return Lever(adapter="opensm", device="sm", name="option", key=name)


def _earlier_marks(s: Situation) -> Draft:
    """Half the thresholds at the root; only where marks are in use, for sources that do not know them would not slow down."""
    (level, *_) = s.levels()
    lever = Lever(adapter="snmp", device=s.device(s.root), name="ecn", key=f"{s.root[1]} {level}")
    now = dict(s.must_read(lever))
    if not now.get("pmax"):
        raise NotPossible(f"{s.name(s.root)} does not mark priority {level}: whether sources heed marks is not known")
    new = {"kmin": now["kmin"] // 2, "kmax": max(now["kmin"] // 2, now["kmax"] // 2), "pmax": now["pmax"]}
    new["pmax"] = min(100, max(LEAST_PMAX, 2 * now["pmax"]))
    if new == now:
        raise NotPossible("the thresholds are as low as they go")
    return Draft(
        (Change(lever=lever, old=now, new=new),),
        Touched(switches=(s.root[0],)),
        f"{s.name(s.root)} marks priority {level} from {new['kmin']} % on, so that its senders slow down before it pauses them",
    )


def _earlier_cc(s: Situation) -> Draft:
    if str(s.must_read(_option("congestion_control"))).upper() != "TRUE":
        raise NotPossible("congestion control is off: switching it on for the whole fabric is a person's decision")
    lever = _option("cc_sw_cong_setting_threshold")
    text = str(s.must_read(lever))
    try:
        now = int(text, 0)
    except ValueError:
        raise NotPossible(f"cc_sw_cong_setting_threshold is {text!r}, not a number") from None
    if now >= SWITCH_THRESHOLD_TOP:
        raise NotPossible("the switches mark as early as they can")
    new = f"0x{min(SWITCH_THRESHOLD_TOP, now + 4):02x}"
    return Draft(
        (Change(lever=lever, old=text, new=new),),
        Touched(switches=(s.root[0],)),
        f"switches mark congestion earlier (threshold {text} to {new})",
    )


def _victim_levels(s: Situation) -> list[int]:
    """Priorities that wait because of the root without being the one that fills it."""
    mine = set(s.levels())
    return [q for q in s.state.priorities if q is not None and q not in mine and 0 <= q < VLS]


def _has_others(s: Situation) -> str:
    return "" if _victim_levels(s) else "only one priority is seen: weights between priorities cannot help"


def _ets(s: Situation) -> Draft:
    lever = Lever(adapter="snmp", device=s.device(s.root), name="ets", key=str(s.root[1]))
    now = [int(share) for share in s.must_read(lever)]
    crowd = s.levels()[0]
    gives = min(STEP, now[crowd] - LEAST_SHARE)
    if gives <= 0:
        raise NotPossible(f"priority {crowd} has {now[crowd]} % already")
    new = list(now)
    victims = _victim_levels(s)
    new[crowd] -= gives
    for place in range(gives):
        new[victims[place % len(victims)]] += 1
    return Draft(
        (Change(lever=lever, old=now, new=new),),
        Touched(switches=(s.root[0],)),
        f"priority {crowd} gives {gives} % of {s.name(s.root)} to {', '.join(map(str, victims))}",
    )


def parse_weights(text: str) -> list[tuple[int, int]]:
    """``0:4,1:8`` as pairs. Raises NotPossible for anything else."""
    try:
        pairs = [(int(vl), int(weight)) for vl, weight in (entry.split(":") for entry in text.split(","))]
    except ValueError:
        raise NotPossible(f"{text!r} is not a list of VL:weight") from None
    return pairs


def _vl_weights(s: Situation) -> Draft:
    lever = _option("qos_swe_vlarb_low")
    text = str(s.must_read(lever))
    crowd = s.levels()[0]
    now = parse_weights(text)
    new = [(vl, max(1, weight // 4) if vl == crowd and weight else weight) for vl, weight in now]
    if new == now:
        raise NotPossible(f"VL {crowd} has no weight to give")
    return Draft(
        (Change(lever=lever, old=text, new=",".join(f"{vl}:{weight}" for vl, weight in new)),),
        Touched(switches=(s.root[0],)),
        f"VL {crowd} gets a quarter of its weight on the switches' external ports",
    )


def _spare_level(s: Situation) -> int:
    """A service level on a lane of its own that carries nothing."""
    text = str(s.must_read(_option("qos_sl2vl")))
    try:
        lanes = [int(vl) for vl in text.split(",")]
    except ValueError:
        raise NotPossible(f"qos_sl2vl is {text!r}, not a list of VLs") from None
    busy = {pair.level for pair in s.traffic.pairs if pair.level is not None} | set(s.levels())
    taken = {lanes[level] for level in busy if level < len(lanes)}
    free = [level for level, vl in enumerate(lanes) if vl not in taken and vl < VLS - 1 and level not in busy]
    if not free:
        raise NotPossible("no service level has a lane to itself")
    return free[0]


def _other_lane(s: Situation) -> Draft:
    level = _spare_level(s)
    far = s.peer(s.crowded)
    if not s.is_host(far):
        raise NotPossible("the root is between switches")
    nodes = s.world.topology.nodes
    sources = [format_guid(nodes[src[0]].port_guids.get(src[1]) or src[0]) for src in s.traffic.senders(s.crowded)]
    target = format_guid(nodes[far[0]].port_guids.get(far[1]) or far[0])
    name = f"fabricd-{zlib.crc32(s.verdict.id.encode()):08x}"
    lever = Lever(adapter="opensm", device="sm", name="qos_policy", key=name)
    rule = {"sl": level, "source": sources, "destination": [target]}
    return Draft(
        (Change(lever=lever, new=rule),),
        Touched(),
        f"paths of {len(sources)} senders to {s.name(far)} move to service level {level}, when they are next set up",
    )


ECN_EARLIER = Remedy(
    "ecn_earlier",
    "lower the marking thresholds at the root (where marks are in use)",
    CROWD,
    (ON_ETHERNET, has_lever("snmp", "ecn")),
    _earlier_marks,
    gain=0.5,
    cost=0.0,
)
CC_EARLIER = Remedy(
    "cc_earlier",
    "raise the switches' congestion marking threshold (where congestion control is on)",
    CROWD,
    (ON_INFINIBAND, has_lever("opensm", "option")),
    _earlier_cc,
    gain=0.4,
    cost=0.0,
)
ETS_WEIGHTS = Remedy(
    "ets_weights",
    "give the victims' priorities more of the root's bandwidth",
    frozenset({"priority_contention"}),
    (ON_ETHERNET, has_lever("snmp", "ets"), Precondition("more than one priority is seen", _has_others)),
    _ets,
    gain=0.4,
    cost=0.0,
)
VL_WEIGHTS = Remedy(
    "vl_weights",
    "give the victims' virtual lanes more weight",
    frozenset({"priority_contention"}),
    (ON_INFINIBAND, has_lever("opensm", "option"), Precondition("more than one priority is seen", _has_others)),
    _vl_weights,
    gain=0.4,
    cost=0.0,
)
OTHER_LANE = Remedy(
    "other_lane",
    "a qos-policy rule moves the senders' paths to a service level with a lane of its own",
    CROWD | HOST,
    (ON_INFINIBAND, has_lever("opensm", "qos_policy"), has_lever("opensm", "option"), WHO_SENDS),
    _other_lane,
    gain=0.6,
    cost=0.0,
)
REMEDIES = (ECN_EARLIER, CC_EARLIER, ETS_WEIGHTS, VL_WEIGHTS, OTHER_LANE)
