"""Links that go up and down: counted, damped as routers damp them, cleared by time spent up.

A flap is a fall of the physical state from link-up, or a step of the LinkDowned counter; when both tell of the same interval the
larger number counts, not the sum. The counter may be missing, saturated or cleared by somebody: then only what is sure counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fabricd.model.topology import Fault, PortRef, Topology

UP = "link-up"
PENALTY = 1000.0  # of one flap
SUPPRESS = 2500.0  # from here on a link is flapping: the third flap within a half-life or so
REUSE = 750.0  # below this it may be trusted again


@dataclass(slots=True)
class PortFlaps:
    """State of one port. ``since`` is when it came up last (None while down or never seen up)."""

    count: int = 0
    penalty: float = 0.0
    at: float = 0.0
    up: bool | None = None
    since: float | None = None
    link_downed: int | None = None
    flapping: bool = False


@dataclass(slots=True)
class FlapTracker:
    """``half_life`` and ``stable`` in seconds: the penalty's half-life; time up without a flap that clears a port."""

    half_life: float = 60.0
    stable: float = 300.0
    ports: dict[PortRef, PortFlaps] = field(default_factory=dict)

    def observe(
        self, ref: PortRef, now: float, phys_state: str | None, link_downed: int | None = None, saturated: bool = False
    ) -> int:
        """One reading of a port at ``now`` (seconds, any epoch, never going back); returns the flaps since the last one.

        ``phys_state`` None: not known this time. ``link_downed`` None: not readable; ``saturated``: at its maximum for good.
        """
        port = self.ports.setdefault(ref, PortFlaps(at=now))
        self._decay(port, now)
        fell = 0
        if phys_state is not None:
            up = phys_state == UP
            fell = int(port.up is True and not up)
            if up and port.up is not True:
                port.since = now
            elif not up:
                port.since = None
            port.up = up
        stepped = 0
        if link_downed is not None:
            if port.link_downed is not None and link_downed >= port.link_downed:
                stepped = link_downed - port.link_downed
            elif port.link_downed is not None and not saturated:
                stepped = link_downed  # cleared by someone: what it shows happened since
            port.link_downed = None if saturated else link_downed
        flaps = max(fell, stepped)
        if flaps:
            port.count += flaps
            port.penalty += PENALTY * flaps
            if port.up:
                port.since = now
        self._judge(port, now)
        return flaps

    def _decay(self, port: PortFlaps, now: float) -> None:
        if now > port.at:
            port.penalty *= 0.5 ** ((now - port.at) / self.half_life)
            port.at = now

    def _judge(self, port: PortFlaps, now: float) -> None:
        if port.penalty >= SUPPRESS:
            port.flapping = True
        stable = port.since is not None and now - port.since >= self.stable
        if stable or (port.flapping and port.up is True and port.penalty < REUSE):
            port.flapping = False
        if stable:
            port.count, port.penalty = 0, 0.0

    def flapping(self) -> list[PortRef]:
        """Ports damped now, sorted."""
        return sorted(ref for ref, port in self.ports.items() if port.flapping)

    def forget(self, known: set[PortRef]) -> None:
        """Drop ports that are no longer part of the fabric."""
        for ref in [ref for ref in self.ports if ref not in known]:
            del self.ports[ref]

    def faults(self, topology: Topology) -> list[Fault]:
        """One fault a flapping link, named by both ends; a link whose two ends flap is one."""
        out: list[Fault] = []
        told: set[PortRef] = set()
        peers = topology.neighbours()
        for ref in self.flapping():
            if ref in told:
                continue
            peer = peers.get(ref)
            ends = [ref] if peer is None else [ref, peer]
            told.update(ends)
            count = max(self.ports[end].count for end in ends if end in self.ports)
            where = " - ".join(topology.port_name(*end) for end in ends)
            out.append(Fault("flapping_link", where, f"{count} times down, not yet up for {self.stable:g} s", ends))
        return out
