"""Why the wait ends there: the cause from what a root's port, its equals and its feeders did during the episode."""

from __future__ import annotations

from fabricd.detect.episodes import Episode
from fabricd.model.verdict import Cause

STORM = 0.95  # a host that holds its switch this share of the time does not merely drain slowly
LOWER = 0.75  # equal-cost ports below this part of the root's use could have carried its traffic
ONE_RECEIVER = 0.7  # a fabric port with this share of its bytes for one host is an incast met early
SEVERAL = 1.5  # effective number of sources from which "several" begins


def name_cause(
    episode: Episode, *, at_host: bool, to_host: bool, has_siblings: bool, spreads: bool
) -> tuple[Cause, str]:
    """(cause, one sentence why). ``spreads``: adaptive routing spreads this port's traffic, so nothing can collide by hash."""
    mean = episode.mean
    if episode.key.kind == "cycle":
        return "pfc_deadlock", "the wait goes round in a cycle of switches and nothing in it moves"
    if episode.key.kind == "qos":
        return "qos_mismatch", "pauses and traffic of this cable are on different priorities"
    if episode.key.kind == "blind":
        return "unknown", "the wait enters a switch in which nothing that can be seen explains it"
    if mean("flaps") > 0:
        return "link_flap", "the link, or one that shares its load, went down and up during the episode"
    if at_host:
        stall = mean("stall")
        if stall >= STORM:
            return "pfc_storm", f"the host pauses its switch {stall:.0%} of the time"
        return "slow_receiver", f"the host does not drain: its switch waits {stall:.0%} of the time with data queued"
    if to_host:
        own, use = mean("own"), mean("use")
        if own < 0.5 * use and mean("sources") < SEVERAL:
            return "priority_contention", f"other priorities take {use - own:.0%} of the link, this one sends {own:.0%}"
        return "incast", f"{mean('sources'):.1f} sources at a time fill one host's link ({use:.0%} used)"
    if mean("degraded") > 0.5:
        seen = "by its plateau" if mean("inferred") > 0.5 else "as reported"
        return "degraded_link", f"the link carries {mean('capacity'):.0%} of its nominal rate, {seen}"
    if mean("top") >= ONE_RECEIVER and mean("sources") >= SEVERAL:
        return "incast", f"{mean('top'):.0%} of its bytes end at one host"
    if has_siblings and not spreads and mean("siblings") < LOWER * mean("use"):
        return "ecmp_collision", f"used {mean('use'):.0%} while its equals are used {mean('siblings'):.0%}"
    return "oversubscription", f"used {mean('use'):.0%} and its equals {mean('siblings'):.0%}: no room beside it"
