"""What changed between the fabric as it should be and as it is: each cable and device named once, by the likeliest story.

A device that sits in another one's slot (same peer port; for adapters the same host and, where known, the same PCI address) is
``replaced``, and its links are compared as if it were the old one. A cable with one end where it was is ``moved``, not missing and
added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fabricd.model.ident import format_guid
from fabricd.model.topology import CA, SWITCH, Link, Node, PortRef, Topology
from fabricd.topology.names import is_factory_name, short_name

KINDS = (
    "replaced_switch",
    "replaced_adapter",
    "missing_node",
    "added_node",
    "renamed_node",
    "split_ports",
    "missing_link",
    "moved_link",
    "added_link",
    "slower_link",
    "narrower_link",
    "faster_link",
)
SERIAL = "cable_serial"


@dataclass(frozen=True, slots=True)
class Difference:
    """``was`` and ``now`` are the link's ends before and after, empty where there is none (or it is about a node)."""

    kind: str
    where: str
    detail: str
    was: tuple[PortRef, ...] = ()
    now: tuple[PortRef, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "where": self.where,
            "detail": self.detail,
            "was": [[format_guid(guid), port] for guid, port in self.was],
            "now": [[format_guid(guid), port] for guid, port in self.now],
        }


@dataclass(slots=True)
class Comparison:
    """``successor``: old GUID -> GUID of the device that took its slot."""

    differences: list[Difference] = field(default_factory=list)
    successor: dict[int, int] = field(default_factory=dict)


def compare(golden: Topology, now: Topology, gone: Topology | None = None) -> Comparison:
    """All differences, in the order of KINDS, then by place. ``gone``: devices that left before ``golden`` was taken, with the
    links they had: what comes into their slots has replaced them (see ``slots.remember``)."""
    golden, now = with_node_guids(golden, now), with_node_guids(now, golden)
    past = golden if gone is None else with_gone(golden, gone)
    successor = find_replaced(past, now)
    out = Comparison(successor=successor)
    for old in successor.keys() - golden.nodes.keys():
        out.differences.append(_replaced(past.nodes[old], now.nodes[successor[old]]))
    _compare_nodes(golden, now, successor, out.differences)
    _compare_links(golden, now, successor, out.differences)
    out.differences.sort(key=lambda d: (KINDS.index(d.kind), d.where, d.was, d.now))
    return out


def find_replaced(golden: Topology, now: Topology) -> dict[int, int]:
    """Old GUID -> new GUID for devices that are gone where a new one sits in the same slot. Switches first: an adapter's slot is
    a port of a switch, which may itself have been replaced."""
    gone = {guid: node for guid, node in golden.nodes.items() if guid not in now.nodes}
    come = {guid: node for guid, node in now.nodes.items() if guid not in golden.nodes}
    successor: dict[int, int] = {}
    for kind in (SWITCH, ""):
        before, after = golden.neighbours(), now.neighbours()
        by_peer: dict[PortRef, tuple[int, int]] = {far: near for near, far in after.items() if near[0] in come}
        votes: dict[int, Counter[int]] = {}
        for near, far in before.items():
            old = gone.get(near[0])
            if old is None or (old.type == SWITCH) != (kind == SWITCH):
                continue
            peer = (successor.get(far[0], far[0]), far[1])
            new = by_peer.get(peer)
            if new is not None and new[1] == near[1] and _same_kind(old, come[new[0]]):
                votes.setdefault(near[0], Counter())[new[0]] += 1
        taken: set[int] = set()
        for guid, counter in sorted(votes.items(), key=lambda item: (-max(item[1].values()), item[0])):
            links = sum(1 for near in before if near[0] == guid)
            best, count = min(counter.items(), key=lambda item: (-item[1], item[0]))
            if best not in taken and 2 * count >= links:
                successor[guid] = best
                taken.add(best)
    return successor


def _same_kind(old: Node, new: Node) -> bool:
    """May ``new`` sit in the slot of ``old``? An adapter must be in the same host at the same PCI address, where both are known."""
    if old.type != new.type:
        return False
    if old.type != CA:
        return True
    if old.host and new.host and old.host != new.host:
        return False
    mine, theirs = old.labels.get("pci"), new.labels.get("pci")
    return not (mine and theirs and mine != theirs)


def _replaced(old: Node, new: Node) -> Difference:
    kind = "replaced_switch" if old.type == SWITCH else "replaced_adapter"
    names = short_name(old) if old.name == new.name else f"{short_name(old)} (now {short_name(new)})"
    return Difference(kind, names, f"{format_guid(old.guid)} is now {format_guid(new.guid)} in the same slot")


def with_node_guids(topology: Topology, other: Topology) -> Topology:
    """``topology`` with node GUIDs where it knows adapters by port GUID only (ibnetdiscover -p) and ``other`` knows better."""
    owner = {
        port_guid: node.guid
        for node in other.nodes.values()
        for port_guid in node.port_guids.values()
        if port_guid != node.guid and node.guid not in topology.nodes
    }
    known = {guid: owner[guid] for guid in topology.nodes if guid in owner and guid not in other.nodes}
    if not known:
        return topology
    nodes: dict[int, Node] = {}
    for guid, node in topology.nodes.items():
        name = known.get(guid, guid)
        nodes.setdefault(name, replace(node, guid=name))
    links = [
        replace(link, a=(known.get(link.a[0], link.a[0]), link.a[1]), b=(known.get(link.b[0], link.b[0]), link.b[1]))
        for link in topology.links
    ]
    labels = {(known.get(guid, guid), port): label for (guid, port), label in topology.port_labels.items()}
    return replace(topology, nodes=nodes, links=links, port_labels=labels)


def with_gone(present: Topology, gone: Topology) -> Topology:
    """Nodes and links of both; where they disagree about a port or a device, ``present`` is right."""
    used = {ref for link in present.links for ref in (link.a, link.b)}
    free = [link for link in gone.links if link.a not in used and link.b not in used]
    return Topology(nodes={**gone.nodes, **present.nodes}, links=[*present.links, *free])


def _compare_nodes(golden: Topology, now: Topology, successor: Mapping[int, int], out: list[Difference]) -> None:
    new_devices = set(successor.values())
    for guid, node in golden.nodes.items():
        if guid in successor:
            out.append(_replaced(node, now.nodes[successor[guid]]))
        elif guid not in now.nodes:
            out.append(Difference("missing_node", short_name(node), f"{node.type} {format_guid(guid)} is not there"))
        elif node.name != now.nodes[guid].name:
            text = f"{node.type} {format_guid(guid)} is now called {now.nodes[guid].name!r}"
            if is_factory_name(now.nodes[guid].name):
                text += ", which is what the factory wrote"
            out.append(Difference("renamed_node", short_name(node), text))
    for guid, node in now.nodes.items():
        if guid not in golden.nodes and guid not in new_devices:
            out.append(Difference("added_node", short_name(node), f"{node.type} {format_guid(guid)} is new"))


def _compare_links(golden: Topology, now: Topology, successor: Mapping[int, int], out: list[Difference]) -> None:
    factors = _split_factors(golden, now, successor, out)

    def mapped(ref: PortRef) -> PortRef:
        guid = successor.get(ref[0], ref[0])
        if guid not in factors:
            return guid, ref[1]
        factor, old_last, new_last = factors[guid]
        return guid, new_last if ref[1] == old_last else (ref[1] - 1) * factor + 1

    wanted: dict[frozenset[PortRef], Link] = {
        frozenset((mapped(link.a), mapped(link.b))): link for link in golden.links
    }
    have: dict[frozenset[PortRef], Link] = {frozenset((link.a, link.b)): link for link in now.links}
    for key in wanted.keys() & have.keys():
        _compare_rate(golden, wanted[key], have[key], out)
    lost = {key: wanted[key] for key in wanted.keys() - have.keys()}
    found = {key: have[key] for key in have.keys() - wanted.keys()}
    for old_key, new_key in _pair_moved(golden, now, lost, found):
        old, new = lost.pop(old_key), found.pop(new_key)
        same = old_key & new_key
        stays, goes = (old.b, old.a) if mapped(old.b) in same else (old.a, old.b)
        (arrives,) = new_key - same if same else (new.a,)
        detail = f"now at {now.port_name(*arrives)}, should be at {golden.port_name(*goes)}"
        if not same:
            detail = (
                f"cable {old.labels.get(SERIAL, '')} is now between {now.port_name(*new.a)} and {now.port_name(*new.b)}"
            )
            where = link_name(golden, old)
        else:
            where = golden.port_name(*stays)
        out.append(Difference("moved_link", where, detail, (old.a, old.b), (new.a, new.b)))
        _compare_rate(golden, old, new, out)
    for link in lost.values():
        out.append(Difference("missing_link", link_name(golden, link), _cable(link, "no link"), (link.a, link.b)))
    for link in found.values():
        out.append(
            Difference("added_link", link_name(now, link), _cable(link, "not in the golden file"), (), (link.a, link.b))
        )


def _split_factors(
    golden: Topology, now: Topology, successor: Mapping[int, int], out: list[Difference]
) -> dict[int, tuple[int, int, int]]:
    """Switches whose ports were split: GUID -> (new ports an old one, the internal port's old and new number, 0 if there is none).

    Splitting renumbers all ports of a switch: with twice as many, old port n is new port 2n - 1.
    """
    factors: dict[int, tuple[int, int, int]] = {}
    for guid, old in golden.nodes.items():
        new = now.nodes.get(successor.get(guid, guid))
        if old.type != SWITCH or new is None or not old.num_ports or new.num_ports <= old.num_ports:
            continue
        internal = old.num_ports % 2  # the SHARP node hangs on an odd last port
        factor, rest = divmod(new.num_ports - internal, old.num_ports - internal)
        if rest == 0 and factor > 1:
            factors[new.guid] = (factor, old.num_ports * internal, new.num_ports * internal)
            text = f"{new.num_ports} ports, not {old.num_ports}: split, old port n is now {factor}n - {factor - 1}"
            out.append(Difference("split_ports", short_name(old), text))
    return factors


def _pair_moved(
    golden: Topology,
    now: Topology,
    lost: Mapping[frozenset[PortRef], Link],
    found: Mapping[frozenset[PortRef], Link],
) -> list[tuple[frozenset[PortRef], frozenset[PortRef]]]:
    """Lost and found links that are one cable: same serial number, else one end where it was (an adapter's end before a switch's)."""
    pairs: list[tuple[frozenset[PortRef], frozenset[PortRef]]] = []
    free_old, free_new = dict(lost), dict(found)

    def take(old: frozenset[PortRef], new: frozenset[PortRef]) -> None:
        pairs.append((old, new))
        del free_old[old], free_new[new]

    serials = {link.labels[SERIAL]: key for key, link in free_new.items() if link.labels.get(SERIAL)}
    for key, link in sorted(free_old.items(), key=lambda item: (item[1].a, item[1].b)):
        new = serials.get(link.labels.get(SERIAL, ""))
        if new in free_new and new is not None:
            take(key, new)
    for adapters in (True, False):
        at: dict[PortRef, frozenset[PortRef]] = {ref: key for key in free_new for ref in key}
        for key, link in sorted(free_old.items(), key=lambda item: (item[1].a, item[1].b)):
            for ref in sorted(key):
                node = now.nodes.get(ref[0]) or golden.nodes.get(ref[0])
                new = at.get(ref)
                if node is not None and (node.type != SWITCH) == adapters and new is not None and new in free_new:
                    serial, other = link.labels.get(SERIAL), free_new[new].labels.get(SERIAL)
                    if not (serial and other and serial != other):
                        take(key, new)
                        break
    return pairs


def _compare_rate(golden: Topology, old: Link, new: Link, out: list[Difference]) -> None:
    where, was, now = link_name(golden, old), (old.a, old.b), (new.a, new.b)
    if old.width and new.width and new.width < old.width:
        out.append(Difference("narrower_link", where, f"{new.width}x, should be {old.width}x", was, now))
        if old.rate_gbps / old.width <= new.rate_gbps / new.width:
            return
    if old.rate_gbps and new.rate_gbps and new.rate_gbps < old.rate_gbps:
        text = f"{_rate(new)}, should be {_rate(old)}"
        out.append(Difference("slower_link", where, text, was, now))
    elif old.rate_gbps and new.rate_gbps > old.rate_gbps:
        out.append(Difference("faster_link", where, f"{_rate(new)}, the golden file says {_rate(old)}", was, now))


def _rate(link: Link) -> str:
    return f"{link.rate_gbps:g} Gb/s" + (f" ({link.width}x {link.speed})" if link.width and link.speed else "")


def _cable(link: Link, text: str) -> str:
    serial = link.labels.get(SERIAL)
    return f"{text} (cable {serial})" if serial else text


def link_name(topology: Topology, link: Link) -> str:
    """``LEAF-01 1/16/1 - SPINE-02 1/3/2``: switches first where only one end is one, the rest in the order of their GUIDs."""
    ends = [link.a, link.b]
    ends.sort(key=lambda ref: (ref[0] in topology.nodes and topology.nodes[ref[0]].type != SWITCH, ref))
    return " - ".join(topology.port_name(*ref) for ref in ends)
