"""Names that stay: a rail group keeps its printed name as long as most of its leaves stay, whatever number it gets.

Discovery numbers groups in order; when one vanishes or appears, the numbers after it move, and a scheduler that keyed
anything on them would be wrong. The book remembers which leaf GUIDs a name stood for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.model.ident import format_guid, parse_guid
from fabricd.model.topology import RailGroup, Topology
from fabricd.placement.files import write_atomically

SCHEMA = "fabricd.names/1"


@dataclass(slots=True)
class NameBook:
    """``groups`` and ``pods`` map a printed name to the leaf GUIDs it stands for."""

    groups: dict[str, set[int]] = field(default_factory=dict)
    pods: dict[str, set[int]] = field(default_factory=dict)

    def apply(self, topology: Topology) -> None:
        """Give the topology's compute groups and pods their printed names; new ones are entered in the book."""
        compute = [group for group in topology.rails if group.kind == "compute"]
        leaves = {group.name: _leaves(group) for group in compute}
        pods: dict[str, set[int]] = {}
        for group in compute:
            if group.pod:
                pods.setdefault(group.pod, set()).update(leaves[group.name])
        names, pod_names = _match(self.groups, leaves), _match(self.pods, pods)
        topology.rails = [
            RailGroup(
                names[group.name] if group.kind == "compute" else group.name,
                group.hosts,
                group.leaves,
                group.kind,
                pod_names.get(group.pod, group.pod),
            )
            for group in topology.rails
        ]


def _leaves(group: RailGroup) -> set[int]:
    return {leaf for rail in group.leaves for leaf in rail}


def _match(book: dict[str, set[int]], found: dict[str, set[int]]) -> dict[str, str]:
    """Best overlaps first; what overlaps with nothing gets its own name, or a free one like it."""
    pairs = sorted(
        (
            (-len(known & leaves), name, discovered)
            for name, known in book.items()
            for discovered, leaves in found.items()
        ),
    )
    out: dict[str, str] = {}
    taken: set[str] = set()
    for overlap, name, discovered in pairs:
        if overlap and name not in taken and discovered not in out:
            out[discovered] = name
            taken.add(name)
    for discovered, leaves in found.items():
        if discovered not in out:
            name, number = discovered, 2
            while name in taken or name in book:
                name = f"{discovered}-{number}"
                number += 1
            out[discovered] = name
            taken.add(name)
        book[out[discovered]] = set(leaves) or book.get(out[discovered], set())
    return out


def load_names(path: str) -> NameBook:
    """Read a book; a missing file is an empty one. Raises FabricdError when it is not a book."""
    file = Path(path)
    if not file.exists():
        return NameBook()
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}")
        tables = [
            {str(name): {parse_guid(guid) for guid in guids} for name, guids in document[kind].items()}
            for kind in ("groups", "pods")
        ]
    except (OSError, *BAD_DOCUMENT, KeyError, TypeError, AttributeError) as error:
        raise FabricdError(f"{path}: not a name book: {error}") from None
    return NameBook(*tables)


def save_names(path: str, book: NameBook) -> None:
    """Write a book atomically."""
    document = {
        "schema": SCHEMA,
        "groups": {name: sorted(map(format_guid, guids)) for name, guids in sorted(book.groups.items())},
        "pods": {name: sorted(map(format_guid, guids)) for name, guids in sorted(book.pods.items())},
    }
    write_atomically(path, json.dumps(document, indent=1) + "\n")
