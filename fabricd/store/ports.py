"""Which port is which row: identity (fabric, plane, GUID, port) to a small integer that never changes, and the labels people use."""

from __future__ import annotations

from typing import NamedTuple

from fabricd.model.frame import Row
from fabricd.model.ident import PortKey


class PortLabels(NamedTuple):
    """The newest labels of a port. ``node`` is the id of the publisher that reported it."""

    node: str
    device: str
    netdev: str
    link_layer: str
    driver: str
    rate_gbps: float
    labels: dict[str, str]


class PortIndex:
    """Grows and never shrinks: a port that comes back, or a device that is renamed, has the number it had."""

    def __init__(self) -> None:
        self.keys: list[PortKey] = []
        self.labels: list[PortLabels] = []
        self._number: dict[PortKey, int] = {}
        self._owners: dict[PortKey, set[str]] = {}  # nodes that have the port in their own machine

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: PortKey) -> int | None:
        return self._number.get(key)

    def number(self, fabric: str, node: str, row: Row, *, owned: bool) -> int:
        """The port's number, made when new. ``owned``: the publisher has the port in its own machine (not a sweep of switches)."""
        key = PortKey(fabric, row.plane, row.guid, row.port)
        at = self._number.get(key)
        if owned:
            self._claim(key, node)
        if at is None:
            at = self._number[key] = len(self.keys)
            self.keys.append(key)
            self.labels.append(
                PortLabels(node, row.device, row.netdev, row.link_layer, row.driver, row.rate_gbps, row.labels)
            )
            return at
        old = self.labels[at]
        self.labels[at] = PortLabels(
            node,
            row.device or old.device,
            row.netdev or old.netdev,
            row.link_layer or old.link_layer,
            row.driver or old.driver,
            row.rate_gbps or old.rate_gbps,
            old.labels | row.labels,
        )
        return at

    def _claim(self, key: PortKey, node: str) -> None:
        self._owners.setdefault(key, set()).add(node)

    def release(self, number: int, node: str) -> None:
        """``node`` does not have the port any more, or is not there."""
        self._owners.get(self.keys[number], set()).discard(node)

    def contested(self) -> dict[PortKey, list[str]]:
        """Ports that several living nodes claim as their own: a duplicate GUID. Control must leave them alone."""
        return {key: sorted(nodes) for key, nodes in self._owners.items() if len(nodes) > 1}
