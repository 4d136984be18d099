"""What a sweep asks of each port, in which order, and the table its answers go into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fabricd.errors import FabricdError
from fabricd.ib.limits import MAX_BATCH
from fabricd.ib.mad import Pma
from fabricd.ib.transport import Address
from fabricd.sources.pma_device import Capability, Width
from fabricd.sources.pma_reading import COLUMNS, PortTable, hidden_columns
from fabricd.sources.pma_targets import DeviceType, Target

Asks = list[tuple[Target, list[tuple[int, int]]]]  # per target (attribute, port), in the order they are sent


@dataclass(slots=True)
class Known:
    """What was learnt about a target; kept by GUID while it stays the same device."""

    device: DeviceType
    capability: Capability
    address: Address
    absent: set[int] = field(default_factory=set)  # attributes it refused
    bad_ports: set[int] = field(default_factory=set)  # ports it said it has not

    def attributes(self, *, errors: bool) -> list[Pma]:
        """What is asked of each of its ports. ``errors``: narrow errors too, at the price of a second request."""
        width = self.capability.width
        wanted = [] if width is Width.NARROW else [Pma.PORT_COUNTERS_EXTENDED]
        if width is Width.NARROW or (width is Width.MIXED and errors):
            wanted.append(Pma.PORT_COUNTERS)
        return [attribute for attribute in wanted if attribute not in self.absent]


def plan(targets: Iterable[Target], known: Mapping[tuple[int, int], Known], *, errors: bool) -> tuple[Asks, PortTable]:
    """Targets ordered by how they are read. Raises FabricdError when they are too many for one sweep."""
    ordered = sorted(targets, key=lambda t: (known[t.key].capability.width, t.guid, t.ports))
    asks: Asks = []
    rows = 0
    guids, ports, owners, widths, hidden = [], [], [], [], []
    row_of: dict[Pma, list[int]] = {Pma.PORT_COUNTERS_EXTENDED: [], Pma.PORT_COUNTERS: []}
    for index, target in enumerate(ordered):
        facts = known[target.key]
        attributes = facts.attributes(errors=errors)
        mask = hidden_columns(facts.capability)
        wants: list[tuple[int, int]] = []
        for port in target.ports:
            if port in facts.bad_ports:
                continue
            for attribute, row in row_of.items():
                row.append(rows + len(wants) if attribute in attributes else -1)
                if attribute in attributes:
                    wants.append((int(attribute), port))
            guids.append(target.guid)
            ports.append(port)
            owners.append(index)
            widths.append(facts.capability.width)
            hidden.append(mask)
        rows += len(wants)
        asks.append((target, wants))
    if rows > MAX_BATCH:
        raise FabricdError(f"{rows} requests per sweep, at most {MAX_BATCH}: share the switches ([collector] shards)")
    table = PortTable(
        ordered,
        np.array(guids, np.uint64),
        np.array(ports, np.uint16),
        np.array(owners, np.intp),
        np.array(widths, np.uint8),
        np.array(row_of[Pma.PORT_COUNTERS_EXTENDED], np.intp),
        np.array(row_of[Pma.PORT_COUNTERS], np.intp),
        np.array(hidden, np.bool_).reshape(len(hidden), len(COLUMNS)),
    )
    return asks, table
