"""The fabric as an SVG picture: tiers of switches over the hosts, groups side by side, cables by rate, faults in red."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from fabricd.model.topology import CA, ROUTER, SWITCH, PortRef, Topology
from fabricd.topology.names import short_name
from fabricd.topology.rails import natural_key
from fabricd.topology.tree import summary, tiers

BOX_W, BOX_H, GAP, ROW = 92, 26, 12, 120
MANY_HOSTS = 400  # beyond this the hosts of a leaf are one box with their number
PALETTE = ("#9aa5b1", "#5b8def", "#2f9e77", "#8a5cd1", "#c98a00", "#b8437a")
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#1f2933}.t{font-size:14px;font-weight:600}.n{fill:#fff;stroke:#52606d}"
    ".h{fill:#f5f7fa;stroke:#9aa5b1}.bad{stroke:#d64545;stroke-width:2}.g{fill:#f0f4f8;stroke:#d9e2ec}"
)


@dataclass(slots=True)
class _Box:
    key: int
    label: str
    title: str
    x: float = 0.0
    y: float = 0.0
    host: bool = False


def render_svg(topology: Topology) -> str:
    """A self-contained picture. The same topology gives the same bytes."""
    level = tiers(topology)
    boxes, of_adapter = _boxes(topology, level)
    rows = _place(topology, boxes, level)
    width = max((box.x + BOX_W for box in boxes.values()), default=0.0) + GAP
    height = ROW * max(rows, 1) + 60
    bad_ports, bad_nodes = _bad(topology)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(width, 480):.0f} {height:.0f}" role="img">',
        f"<title>fabric {escape(topology.fabric)}</title><style>{STYLE}</style>",
        f'<text class="t" x="{GAP}" y="22">{escape(topology.fabric)}</text>',
        f'<text x="{GAP}" y="40">{escape(summary(topology))}</text>',
    ]
    out += _cables(topology, boxes, of_adapter, bad_ports)
    out += [_draw(box, box.key in bad_nodes) for box in boxes.values()]
    out += _legend(topology, max(width, 480), height)
    return "\n".join([*out, "</svg>"]) + "\n"


def _boxes(topology: Topology, level: dict[int, int]) -> tuple[dict[int, _Box], dict[int, int]]:
    """Boxes by key (a GUID, or a made-up number for hosts), and adapter GUID -> key of its box."""
    boxes = {guid: _Box(guid, short_name(topology.nodes[guid]), topology.nodes[guid].name) for guid in level}
    of_adapter: dict[int, int] = {}
    leaf_of: dict[int, int] = {}
    for link in topology.links:
        for near, far in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            if topology.nodes[near].type in (CA, ROUTER) and far in level:
                leaf_of[near] = far
    hosts: dict[str, list[int]] = defaultdict(list)
    for guid in sorted(leaf_of):
        hosts[topology.nodes[guid].host or f"0x{guid:016x}"].append(guid)
    if len(hosts) <= MANY_HOSTS:
        for number, name in enumerate(sorted(hosts, key=natural_key), 1):
            boxes[-number] = _Box(-number, name, name, host=True)
            of_adapter.update(dict.fromkeys(hosts[name], -number))
        return boxes, of_adapter
    for number, leaf in enumerate(sorted(set(leaf_of.values())), 1):
        mine = [guid for guid, at in leaf_of.items() if at == leaf]
        boxes[-number] = _Box(-number, f"{len(mine)} adapters", f"adapters on {boxes[leaf].label}", host=True)
        of_adapter.update(dict.fromkeys(mine, -number))
    return boxes, of_adapter


def _place(topology: Topology, boxes: dict[int, _Box], level: dict[int, int]) -> int:
    """Positions: leaves in the order of their groups, everything else centred under or over what it is cabled to."""
    order: dict[int, int] = {}
    for group in topology.rails:
        for rail in group.leaves:
            for leaf in rail:
                order.setdefault(leaf, len(order))
    top = max(level.values(), default=1)
    neighbours: dict[int, set[int]] = defaultdict(set)
    of_adapter = {guid: box.key for guid, box in boxes.items()}
    host_box = {box.label: box.key for box in boxes.values() if box.host}
    for link in topology.links:
        for near, far in ((link.a[0], link.b[0]), (link.b[0], link.a[0])):
            node = topology.nodes[near]
            key = of_adapter.get(near, host_box.get(node.host or f"0x{near:016x}"))
            if key is not None and far in boxes:
                neighbours[key].add(far)
                neighbours[far].add(key)
    rows: list[list[int]] = [[guid for guid, tier in level.items() if tier == t] for t in range(top, 0, -1)]
    rows.append([box.key for box in boxes.values() if box.host])
    if idle := [guid for guid, tier in level.items() if tier == 0]:
        rows.append(idle)
    widest = max((len(row) for row in rows), default=1)
    leaves = rows[top - 1] if top else []
    leaves.sort(key=lambda guid: (order.get(guid, 1 << 30), natural_key(boxes[guid].label), guid))
    place: dict[int, float] = {guid: float(i) for i, guid in enumerate(leaves)}
    for number in [*range(top - 2, -1, -1), *range(top, len(rows))]:
        row = rows[number]

        def middle(key: int) -> float:
            near = [place[n] for n in neighbours[key] if n in place]
            return sum(near) / len(near) if near else 1e9

        row.sort(key=lambda key: (middle(key), natural_key(boxes[key].label), key))
        place.update({key: float(i) * max(1.0, len(leaves) / max(len(row), 1)) for i, key in enumerate(row)})
    for number, row in enumerate(rows):
        step = (BOX_W + GAP) * widest / max(len(row), 1)
        for i, key in enumerate(row):
            boxes[key].x = GAP + step * i + (step - BOX_W - GAP) / 2
            boxes[key].y = 60.0 + ROW * number
    return len(rows)


def _bad(topology: Topology) -> tuple[set[PortRef], set[int]]:
    ports = {ref for fault in topology.faults for ref in fault.ports}
    names = {fault.where for fault in topology.faults}
    nodes = {guid for guid, node in topology.nodes.items() if node.type == SWITCH and short_name(node) in names}
    return ports, nodes


def _rates(topology: Topology) -> dict[float, str]:
    rates = sorted({link.rate_gbps for link in topology.links})
    return {rate: PALETTE[min(number, len(PALETTE) - 1)] for number, rate in enumerate(rates)}


def _cables(topology: Topology, boxes: dict[int, _Box], of_adapter: dict[int, int], bad: set[PortRef]) -> list[str]:
    """One line for all cables between two boxes, its width by their number."""
    colour = _rates(topology)
    bundles: Counter[tuple[int, int, str]] = Counter()
    for link in topology.links:
        ends = [of_adapter.get(guid, guid) for guid, _ in (link.a, link.b)]
        if all(end in boxes for end in ends):
            paint = "#d64545" if {link.a, link.b} <= bad else colour[link.rate_gbps]
            bundles[min(ends), max(ends), paint] += 1
    out = []
    for (a, b, paint), count in sorted(bundles.items(), key=lambda item: (item[0][2] == "#d64545", item[0])):
        one, other = sorted((boxes[a], boxes[b]), key=lambda box: box.y)
        same = one.y == other.y
        y1, y2 = (one.y, other.y) if same else (one.y + BOX_H, other.y)
        stroke = min(1.0 + 0.6 * (count - 1), 5.0)
        out.append(
            f'<line x1="{one.x + BOX_W / 2:.1f}" y1="{y1:.1f}" x2="{other.x + BOX_W / 2:.1f}" y2="{y2:.1f}" '
            f'stroke="{paint}" stroke-width="{stroke:.1f}"><title>{escape(one.label)} - {escape(other.label)}: '
            f"{count} link{'s' if count > 1 else ''}</title></line>"
        )
    return out


def _draw(box: _Box, bad: bool) -> str:
    kind = "h" if box.host else "n"
    label = box.label if len(box.label) <= 14 else box.label[:13] + "…"
    return (
        f'<g><rect class={quoteattr(kind + (" bad" if bad else ""))} x="{box.x:.1f}" y="{box.y:.1f}" width="{BOX_W}" '
        f'height="{BOX_H}" rx="4"/><text x="{box.x + BOX_W / 2:.1f}" y="{box.y + 17:.1f}" text-anchor="middle">'
        f"{escape(label)}</text><title>{escape(box.title)}</title></g>"
    )


def _legend(topology: Topology, width: float, height: float) -> list[str]:
    out = []
    for number, (rate, colour) in enumerate(_rates(topology).items()):
        x = GAP + 110 * number
        text = f"{rate:g} Gb/s" if rate else "rate unknown"
        out.append(
            f'<line x1="{x}" y1="{height - 12:.0f}" x2="{x + 24}" y2="{height - 12:.0f}" stroke="{colour}" stroke-width="3"/>'
        )
        out.append(f'<text x="{x + 30}" y="{height - 8:.0f}">{text}</text>')
    return out
