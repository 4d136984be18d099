"""The detector's parameters: shares of an interval, shares of line rate, or counts of intervals. Nothing in seconds or bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Params:
    """Each parameter with its effect; the defaults serve any time scale from milliseconds to minutes."""

    stall_floor: float = 0.02  # a wait below this share of the interval is noise and asks for no explanation
    pass_full: float = 0.20  # a port that waits this much passes all blame on downstream; below, in proportion
    memory: float = (
        0.8  # weight of the past per interval in who-feeds-whom; larger = steadier, slower to follow new flows
    )
    depth: int = 12  # intervals kept for the regression of egress on ingress rates
    em_rounds: int = 20  # rounds of the share estimate per interval
    share_prior: float = 0.05  # pull of the share estimate towards gravity, in intervals of data
    theta_prior: float = 0.0003  # pull of the queue estimate towards plain backlog, in blocked ports
    theta_rounds: int = 10  # rounds of the queue estimate per interval
    most_work: int = 3000  # switches x rounds of these two estimates per interval; beyond, fewer rounds
    most_roots: int = 1000  # candidate roots per interval and priority that are followed back to what they hold
    most_facts: int = 48  # roots per interval and priority, heaviest first, that are looked at in full (cause, tree)
    sharpness: float = 4.0  # how strongly a busier egress is preferred as the blocker
    explain: float = 0.7  # an egress explains a wait only if it is backlogged at least this share of it
    root_mass: float = 0.2  # blocked ports an egress must hold in an interval to be a candidate root
    main_stall: float = 0.05  # ... and be the main cause of a port that waits this much
    main_share: float = 0.5  # ... where main cause means this share of its wait
    raise_after: float = 4.0  # evidence, in intervals of a just sufficient root, before a verdict is raised
    clear: float = (
        0.65  # a root that explains this share of the waits it is part of counts in full, below by the square
    )
    mean_mass: float = 0.4  # blocked ports on average over an episode below which nobody is told
    full: float = 0.97  # an egress that sends or waits this share of two intervals may have a standing queue
    gap: int = 3  # intervals without evidence an episode survives
    estimate_trust: float = 0.7  # what a stall estimated from pause frames counts against a measured one
    tail: float = 0.1  # an interval with less than this share of the mean mass no longer moves the end of an episode
    affected_share: float = 0.02  # a port is affected when the root holds it this share of the episode
    inferred_share: float = 0.1  # the same for a port whose wait is inferred, not measured
    affected_least: float = 0.4  # ... and at least this many intervals altogether
    pair_wait: float = 0.08  # a pair is a victim when its source, or its way, is held this share of the episode
    pair_most: float = 0.6  # ... plus raise_after / intervals for short episodes, but never more than this
    rounds: int = 16  # hops blame is followed; longer paths do not exist
    plateau: int = 4  # intervals a rate must stay level before it is taken for a hidden capacity ...
    flat: float = 0.01  # ... where level means this relative spread
    stray: float = 0.05  # ... or, at a known step of speeds, bytes within this part of an interval of a straight line
