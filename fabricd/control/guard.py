"""The guard: hard limits on what may be changed, whatever policy wants. Pure: (proposal, actions so far, world) in, reasons out.

An undo never passes here: it is exempt from freshness and rate, and bound only by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from fabricd.config.control import ControlConfig, GuardConfig, MaintenanceWindow
from fabricd.control.world import World
from fabricd.errors import UsageError
from fabricd.model.action import IN_FORCE, Action, Proposal
from fabricd.model.ident import format_guid

NS = 1_000_000_000


def refusals(
    proposal: Proposal,
    actions: Sequence[Action],
    world: World,
    config: ControlConfig,
    latches: Iterable[str],
    now_ns: int,
) -> list[str]:
    """Every reason against it, in words; empty when it may be pushed."""
    guard = config.guard
    found = [f"latched: {latch}" for latch in sorted(set(latches) & {"pause", "freeze", "revert-all"})]
    found += _rate(actions, guard, now_ns)
    found += _places(proposal, actions, world, guard)
    found += _reach(proposal, actions, world, guard)
    found += _evidence(world, guard)
    found += _history(proposal, actions, guard, now_ns)
    found += _maintenance(proposal, world, config.maintenance, now_ns)
    if contested := sorted(set(proposal.touched.switches) & world.contested):
        found.append(f"seen twice in the fabric: {', '.join(map(format_guid, contested))}")
    return found


def never(proposal: Proposal, world: World, config: ControlConfig) -> list[str]:
    """The reasons that will not pass by waiting: last paths, hosts cut off, more links than may ever be touched."""
    return _reach(proposal, (), world, config.guard)


def _entered(action: Action, state: str) -> int | None:
    return next((event.at_ns for event in action.events if event.state == state), None)


def _rate(actions: Sequence[Action], guard: GuardConfig, now_ns: int) -> list[str]:
    starts = [at for action in actions if (at := _entered(action, "intended")) is not None]
    out = []
    for limit, seconds, word in ((guard.new_per_minute, 60, "minute"), (guard.new_per_hour, 3600, "hour")):
        # A clock set back must not open the gate: what lies in the future counts as just now.
        recent = sum(1 for at in starts if at > now_ns - seconds * NS)
        if recent >= limit:
            out.append(f"{recent} new in the last {word}, at most {limit}")
    return out


def _in_force(actions: Sequence[Action]) -> list[Action]:
    return [action for action in actions if action.state in IN_FORCE]


def _places(proposal: Proposal, actions: Sequence[Action], world: World, guard: GuardConfig) -> list[str]:
    active = _in_force(actions)
    out = []
    if len(active) >= guard.in_force:
        out.append(f"{len(active)} in force, at most {guard.in_force}")
    for switch in proposal.touched.switches:
        count = sum(1 for action in active if switch in action.proposal.touched.switches)
        if count >= guard.in_force_per_switch:
            out.append(f"{count} in force on switch {format_guid(switch)}, at most {guard.in_force_per_switch}")
    levers = {change.lever for change in proposal.changes}
    held = [action.id for action in active if levers & {change.lever for change in action.proposal.changes}]
    if held:
        out.append(f"lever already moved by {', '.join(held)}")
    return out


def _reach(proposal: Proposal, actions: Sequence[Action], world: World, guard: GuardConfig) -> list[str]:
    """Links touched at once, uplinks per leaf, last paths and hosts: over everything in force and the proposal."""
    touched = [port for action in _in_force(actions) for port in action.proposal.touched.links]
    own = list(proposal.touched.links)
    links = {world.canonical(port) for port in [*touched, *own]}
    total = len(world.topology.links)
    out = []
    unknown = [port for port in own if port not in world.peers()]
    if unknown:
        out.append(f"not a known link: {', '.join(f'{format_guid(g)}/{p}' for g, p in unknown)}")
    # At least one link may be touched, else no small fabric could be helped at all.
    most = max(1, int(guard.links_share * total))
    if own and len(links) > most:
        out.append(f"{len(links)} links touched, at most {most} of {total}")
    per_leaf: dict[int, int] = {}
    for port in links:
        leaf = world.leaf_of(port)
        if leaf is not None:
            per_leaf[leaf] = per_leaf.get(leaf, 0) + 1
    own_leaves = {leaf for port in own if (leaf := world.leaf_of(port)) is not None}
    for leaf in sorted(own_leaves):
        if per_leaf[leaf] > guard.uplinks_per_leaf:
            out.append(
                f"{per_leaf[leaf]} uplinks of leaf {format_guid(leaf)} touched, at most {guard.uplinks_per_leaf}"
            )
    if own:
        lost = world.cut_off(links)
        hosts = world.hosts_of(lost) | set(proposal.touched.hosts)
        switches = {guid for guid in lost if guid in world.topology.nodes} - {
            g for g in lost if world.topology.nodes[g].type == "ca"
        }
        if switches:
            out.append(f"the last path of {', '.join(format_guid(g) for g in sorted(switches))}")
        if hosts and not guard.allow_host_off:
            out.append(f"would cut off {', '.join(sorted(hosts))}")
    elif proposal.touched.hosts and not guard.allow_host_off:
        out.append(f"would cut off {', '.join(sorted(proposal.touched.hosts))}")
    return out


def _evidence(world: World, guard: GuardConfig) -> list[str]:
    out = []
    if not world.visible_share >= guard.visible_share:  # also when it is not a number
        out.append(f"{world.visible_share:.0%} of the fabric visible, at least {guard.visible_share:.0%}")
    if not world.sample_age <= guard.sample_age_intervals:
        out.append(f"newest sample {world.sample_age:.1f} intervals old, at most {guard.sample_age_intervals:g}")
    return out


def _history(proposal: Proposal, actions: Sequence[Action], guard: GuardConfig, now_ns: int) -> list[str]:
    levers = {change.lever for change in proposal.changes}
    wanted = {(change.lever, repr(change.new)) for change in proposal.changes}
    out = []
    for action in actions:
        theirs = {change.lever for change in action.proposal.changes}
        if not levers & theirs or not action.events:
            continue
        last = action.events[-1].at_ns
        if action.state not in ("refused", "proposed", "admitted") and last > now_ns - int(guard.dwell_s * NS):
            out.append(f"lever moved less than {guard.dwell_s:g} s ago by {action.id}")
        same = wanted & {(change.lever, repr(change.new)) for change in action.proposal.changes}
        if same and action.state == "rolled_back" and last > now_ns - int(guard.repeat_after_rollback_s * NS):
            out.append(f"rolled back less than {guard.repeat_after_rollback_s:g} s ago ({action.id})")
    return out


def _maintenance(proposal: Proposal, world: World, windows: Sequence[MaintenanceWindow], now_ns: int) -> list[str]:
    """Windows that touch the proposal, and hosts that are drained anyway."""
    out = []
    switches = {format_guid(guid) for guid in proposal.touched.switches}
    switches |= {format_guid(guid) for guid, _ in proposal.touched.links}
    pods = {rail.name for rail in world.topology.rails if _touches(rail.leaves, proposal)}
    pods |= {rail.pod for rail in world.topology.rails if rail.pod and _touches(rail.leaves, proposal)}
    for window in windows:
        start, end = window_bounds(window)
        if not start <= now_ns < end:
            continue
        hit = (
            (switches & set(window.switches))
            | (pods & set(window.pods))
            | (set(proposal.touched.hosts) & set(window.nodes))
        )
        if hit or not (window.switches or window.pods or window.nodes):
            out.append(f"maintenance until {window.end}" + (f": {', '.join(sorted(hit))}" if hit else ""))
    if drained := sorted(set(proposal.touched.hosts) & world.expected_down):
        out.append(f"drained: {', '.join(drained)}")
    return out


def _touches(leaves: list[list[int]], proposal: Proposal) -> bool:
    guids = set(proposal.touched.switches) | {guid for guid, _ in proposal.touched.links}
    return any(leaf in guids for rail in leaves for leaf in rail)


def window_bounds(window: MaintenanceWindow) -> tuple[int, int]:
    """Nanoseconds; raises UsageError naming the key when a time cannot be read."""
    bounds = []
    for key in ("start", "end"):
        text = getattr(window, key)
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise UsageError(f"control.maintenance.{key} = {text!r}: not an ISO 8601 time") from None
        if moment.tzinfo is None:
            raise UsageError(f"control.maintenance.{key} = {text!r}: needs a time zone")
        bounds.append(int(moment.timestamp() * NS))
    return bounds[0], bounds[1]
