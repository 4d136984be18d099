"""An action: a proposed change of levers on devices, its states and what happened to it. Pure data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

State = Literal[
    "proposed",  # policy wants it
    "refused",  # guard said no, with the reason
    "admitted",  # guard said yes; in advise mode it waits for a person
    "intended",  # in the journal and on disk, before the first byte goes out
    "pushed",  # the device took it
    "confirmed",  # read back from the device plane
    "verified",  # the victims' stall fell as promised
    "rolled_back",  # it did not help, or a person took it back
    "released",  # its time or its reason ended; the lever is as before
    "conflict",  # somebody else wrote the lever meanwhile: no write of ours, alert
    "lost",  # after a restart of the manager the lever is not in force any more
    "stuck",  # it should be undone and the device cannot be reached: alert
    "failed",  # the push did not take; nothing of it is in force
]

# From each state the states that may follow. An action in a state without successors is over.
NEXT: dict[State, frozenset[State]] = {
    "proposed": frozenset({"admitted", "refused"}),
    "refused": frozenset(),
    "admitted": frozenset({"intended", "refused"}),
    "intended": frozenset({"pushed", "failed", "conflict", "rolled_back", "stuck"}),
    "pushed": frozenset({"confirmed", "rolled_back", "conflict", "stuck", "lost"}),
    "confirmed": frozenset({"verified", "rolled_back", "released", "conflict", "stuck", "lost"}),
    "verified": frozenset({"released", "rolled_back", "conflict", "stuck", "lost"}),
    "rolled_back": frozenset(),
    "released": frozenset(),
    "conflict": frozenset(),
    "lost": frozenset(),
    "stuck": frozenset({"rolled_back", "released", "conflict", "lost"}),
    "failed": frozenset(),
}
# States in which a lever may stand otherwise than before: these hold the guard's places and must be undone in the end.
IN_FORCE: frozenset[State] = frozenset({"intended", "pushed", "confirmed", "verified", "stuck"})


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be written: which adapter, on which device, what, and which instance of it.

    ``device`` is a GUID as 0x… text, ``sm`` for the subnet manager, or a switch's management name. ``name`` is the adapter's
    word for the setting (hop_weight, routes, sl2vl, vlarb, qos_rule, pfc, ets, ecn, rate_limit, port_admin, …), ``key`` its
    instance (port number, priority, SL, P_Key …; empty when there is only one).
    """

    adapter: str
    device: str
    name: str
    key: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """``old`` is what the lever held when it was read for this change (None = not yet read); ``new`` what it shall hold."""

    lever: Lever
    new: Any
    old: Any = None


class Touched(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard counts: switches, links by one of their ends, hosts whose only path may be concerned."""

    switches: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    hosts: tuple[str, ...] = ()


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What policy wants, why, and what it promises. ``gain`` and ``cost`` are shares of the victims' stall and of capacity."""

    id: str
    verdict_id: str
    cause: str
    remedy: str
    changes: tuple[Change, ...]
    touched: Touched
    gain: float
    cost: float
    why: str
    created_ns: int
    time_limited: bool = False  # released by its lease even while the evidence lasts
    fabric: str = "default"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an action's life: when, into which state, and the words or bytes that go with it."""

    at_ns: int
    state: State
    detail: str = ""
    data: dict[str, Any] = {}


class Action(msgspec.Struct, kw_only=True):
    """A proposal and its life so far. ``lease_until_ns``: in force at most until then unless renewed."""

    proposal: Proposal
    state: State = "proposed"
    events: list[Event] = []
    lease_until_ns: int = 0

    @property
    def id(self) -> str:
        return self.proposal.id

    def advance(self, state: State, at_ns: int, detail: str = "", **data: Any) -> Event:
        """Enter ``state``; raises ValueError for a step the life cycle does not know."""
        if state not in NEXT[self.state]:
            raise ValueError(f"action {self.id}: {self.state} is not followed by {state}")
        event = Event(at_ns=at_ns, state=state, detail=detail, data=data)
        self.state = state
        self.events = [*self.events, event]
        return event
