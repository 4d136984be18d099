"""What a remedy is, and the situation it looks at. Pure: reading a lever goes through a function the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fabricd.control.adapters.base import AdapterError
from fabricd.control.state import State
from fabricd.control.traffic import Traffic
from fabricd.control.world import World
from fabricd.model.action import Change, Lever, Touched
from fabricd.model.ident import parse_guid
from fabricd.model.topology import CA, PortRef
from fabricd.model.verdict import Verdict
from fabricd.topology.routes import RouteTable

ONE_RECEIVER = 0.5  # with this share of a port's bytes a host is the receiver of its incast
ROOM = 0.9  # a port is not planned fuller than this share of its rate


class NotPossible(Exception):
    """A remedy cannot be built here and now; the words say why."""


@dataclass(slots=True)
class Levers:
    """What can be written here: (adapter, lever name) to the devices probed writable (``*`` = any), and why others are not."""

    writable: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    why_not: dict[tuple[str, str], str] = field(default_factory=dict)

    def has(self, adapter: str, name: str, device: str | None = None) -> bool:
        devices = self.writable.get((adapter, name), frozenset())
        return bool(devices) and (device is None or device in devices or "*" in devices)

    def missing(self, adapter: str, name: str) -> str:
        why = self.why_not.get((adapter, name))
        return f"{adapter} cannot write {name}" + (f": {why}" if why else "")


@dataclass(slots=True)
class Situation:
    """A verdict and everything a remedy may look at."""

    verdict: Verdict
    world: World
    state: State
    routes: RouteTable
    traffic: Traffic
    levers: Levers
    read: Callable[[Lever], Any]  # raises AdapterError
    ethernet: bool = False
    before: State | None = None  # averages of the time before the trouble, where it was seen

    @property
    def root(self) -> PortRef:
        """The egress port where the wait ends: of a host that does not drain, the switch port that faces it."""
        if not self.verdict.roots:
            raise NotPossible("the verdict names no root")
        ref = port_ref(self.verdict.roots[0])
        node = self.world.topology.nodes.get(ref[0])
        if node is None:
            raise NotPossible(f"{ref[0]:#x} is not in the topology")
        return self.peer(ref) if node.type == CA else ref

    @property
    def crowded(self) -> PortRef:
        """Where an incast really ends: met between switches, it is still one host's port that its traffic fills."""
        root = self.root
        if self.verdict.cause != "incast" or self.is_host(self.peer(root)):
            return root
        ends: dict[PortRef, float] = {}
        for number, share in self.traffic.over(root):
            dst = self.traffic.pairs[number].dst
            ends[dst] = ends.get(dst, 0.0) + float(self.traffic.rate[number]) * share
        most = max(ends, key=lambda ref: (ends[ref], ref), default=None)
        return self.peer(most) if most is not None and ends[most] >= ONE_RECEIVER * sum(ends.values()) else root

    @property
    def host(self) -> PortRef:
        """The adapter port behind the root. Raises NotPossible when the root is between switches."""
        far = self.peer(self.root)
        if not self.is_host(far):
            raise NotPossible("the root is not at a host")
        return far

    def peer(self, ref: PortRef) -> PortRef:
        other = self.world.peers().get(ref)
        if other is None:
            raise NotPossible(f"{self.world.topology.port_name(*ref)} has no cable")
        return other

    def is_host(self, ref: PortRef) -> bool:
        return self.world.topology.nodes[ref[0]].type == CA

    def name(self, ref: PortRef) -> str:
        return self.world.topology.port_name(*ref)

    def device(self, ref: PortRef) -> str:
        """The SNMP target of a switch: its name."""
        node = self.world.topology.nodes[ref[0]]
        return node.labels.get("short") or node.name

    def victims(self) -> list[PortRef]:
        return [port_ref(victim) for victim in self.verdict.victims]

    def must_read(self, lever: Lever) -> Any:
        """Present value; NotPossible where it is not set or cannot be read."""
        try:
            value = self.read(lever)
        except AdapterError as error:
            raise NotPossible(f"{lever.adapter} {lever.name} {lever.key}: {error}") from None
        if value is None:
            raise NotPossible(f"{lever.adapter} {lever.name} {lever.key} is not set there")
        return value

    def rate(self, ref: PortRef) -> float:
        """Bytes per second a port can carry. Raises NotPossible when nobody says."""
        rate = self.state.rate_of(ref)
        if np.isnan(rate):
            raise NotPossible(f"the rate of {self.name(ref)} is not known")
        return rate

    def levels(self) -> list[int]:
        """Service levels or priorities concerned: the verdict's, else those of the traffic over the root."""
        if self.verdict.priority is not None:
            return [self.verdict.priority]
        over = {self.traffic.pairs[n].level for n, _ in self.traffic.over(self.root)}
        return sorted(level for level in over if level is not None) or [0]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a remedy would change. ``why`` in a person's words."""

    changes: tuple[Change, ...]
    touched: Touched
    why: str


@dataclass(frozen=True, slots=True)
class Precondition:
    """``holds`` gives an empty text, or why it does not hold."""

    name: str
    holds: Callable[[Situation], str]


@dataclass(frozen=True, slots=True)
class Remedy:
    """``gain``: share of the victims' stall it is expected to take away; ``cost``: share of the touched capacity it takes.

    ``time_limited``: released by its lease even while the evidence lasts.
    """

    name: str
    summary: str
    causes: frozenset[str]
    needs: tuple[Precondition, ...]
    build: Callable[[Situation], Draft]
    gain: float
    cost: float
    time_limited: bool = False


def port_ref(item: Iterable[Any]) -> PortRef:
    """(GUID, port) of a verdict's entry. Raises NotPossible for anything else."""
    try:
        node, port = list(item)[:2]
        return (parse_guid(node) if isinstance(node, str) else int(node)), int(port)
    except (ValueError, TypeError):
        raise NotPossible(f"{item!r} is not a node and port") from None


def has_lever(adapter: str, name: str) -> Precondition:
    return Precondition(
        f"{adapter} can write {name}", lambda s: "" if s.levers.has(adapter, name) else s.levers.missing(adapter, name)
    )


def _at_host(s: Situation) -> str:
    return "" if s.is_host(s.peer(s.root)) else "the root is between switches"


def _between_switches(s: Situation) -> str:
    return "the root is at a host" if s.is_host(s.peer(s.root)) else ""


def _who_sends(s: Situation) -> str:
    return "" if s.traffic.senders(s.root) else "it is not known who sends through the root"


ON_ETHERNET = Precondition("the fabric is Ethernet", lambda s: "" if s.ethernet else "the fabric is InfiniBand")
ON_INFINIBAND = Precondition("the fabric is InfiniBand", lambda s: "the fabric is Ethernet" if s.ethernet else "")
AT_HOST = Precondition("the root is at a host's port", _at_host)
BETWEEN_SWITCHES = Precondition("the root is between switches", _between_switches)
WHO_SENDS = Precondition("it is known who sends through the root", _who_sends)
