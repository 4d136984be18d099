"""``/metrics``: the store in Prometheus' text format (version 0.0.4).

Names are canonical (model/catalogue) with prefix ``fabricd_``, counters end in ``_total``, durations are seconds. A value that is
missing, and a port whose node has not been heard of for ``stale_ns``, has no line: the series ends instead of repeating itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricd.model.catalogue import exposed, metric
from fabricd.model.frame import Column
from fabricd.model.ident import format_guid
from fabricd.model.sample import Flag
from fabricd.store.ingest import Ingest
from fabricd.store.store import Store
from fabricd.store.table import Table

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "fabricd_"
_ESCAPE = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_SHOWN = ("counter", "gauge", "state")


class Family(NamedTuple):
    """A metric family: its exposed name, HELP, TYPE and the factor from the column's unit."""

    name: str
    help: str
    type: str
    factor: float


def family(name: str, unit: str, kind: str) -> Family:
    """How a column of the store is exposed."""
    shown, factor = exposed(name, unit)
    counts = kind == "counter"
    return Family(
        f"{PREFIX}{shown}{'_total' if counts else ''}", metric(name).help, "counter" if counts else "gauge", factor
    )


def label_text(labels: Iterable[tuple[str, object]]) -> str:
    """``{a="x",b="y"}``, escaped; empty values are left out, as Prometheus treats them as absent."""
    inside = ",".join(f'{name}="{str(value).translate(_ESCAPE)}"' for name, value in labels if value not in ("", None))
    return f"{{{inside}}}" if inside else ""


# What other rooms add to the page: (name, HELP, TYPE, [(labels, value)]) of each family.
MoreFamily = tuple[str, str, str, list[tuple[dict[str, str], float]]]


def render(store: Store, ingest: Ingest, stale_ns: int, more: Iterable[MoreFamily] = ()) -> bytes:
    """The whole page."""
    lines: list[str] = []
    now = time.monotonic_ns()
    _ports(store, now, stale_ns, lines)
    _nodes(store, now, stale_ns, lines)
    _own(ingest, lines)
    for name, words, kind, samples in more:
        if samples:
            lines += _head(name, words, kind)
            lines += [f"{name}{label_text(labels.items())} {value:g}" for labels, value in samples]
    return ("\n".join(lines) + "\n").encode()


def _ports(store: Store, now: int, stale_ns: int, lines: list[str]) -> None:
    families: dict[Family, list[tuple[Table, int, Column]]] = {}
    for layout, table in store.tables.items():
        for at, column in enumerate(layout):
            if column.kind in _SHOWN:
                families.setdefault(family(column.name, column.unit, column.kind), []).append((table, at, column))
    labels = _PortLabels(store)
    fresh = {id(table): table.heard_rows(now - stale_ns) for table in store.tables.values()}
    for shown in sorted(families):
        seen: set[str] = set()
        rows: list[str] = []
        for table, at, column in families[shown]:
            live = fresh[id(table)]
            live = live[(table.flags[live, at] & np.uint8(Flag.VALID)) != 0]
            values = table.value[live, at].tolist()
            for port, value in zip(table.port[live].tolist(), values, strict=True):
                text = labels.of(port, column.priority)
                if text not in seen:  # two streams may report one counter of a port
                    seen.add(text)
                    rows.append(f"{shown.name}{text} {value if shown.factor == 1 else value * shown.factor!r}")
        if rows:
            lines += _head(shown.name, shown.help, shown.type)
            lines += rows
    _port_info(store, fresh, labels, lines)


class _PortLabels:
    """Label text by port and priority, built once a page."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: dict[tuple[int, int | None], str] = {}

    def of(self, port: int, priority: int | None) -> str:
        text = self._made.get((port, priority))
        if text is None:
            key, labels = self._store.ports.keys[port], self._store.ports.labels[port]
            text = self._made[port, priority] = label_text(
                (
                    ("fabric", key.fabric),
                    ("node", labels.node),
                    ("device", labels.device or labels.netdev),
                    ("port", key.port),
                    ("priority", priority),
                    ("guid", format_guid(key.guid)),
                    ("plane", key.plane or None),
                )
            )
        return text


def _port_info(store: Store, fresh: Mapping[int, NDArray[np.int64]], labels: _PortLabels, lines: list[str]) -> None:
    ports = sorted({int(p) for table in store.tables.values() for p in table.port[fresh[id(table)]].tolist()})
    if not ports:
        return
    name = f"{PREFIX}port_info"
    lines += _head(name, "What a port is: netdev, link layer, driver; always 1", "gauge")
    for port in ports:
        known = store.ports.labels[port]
        more = label_text((("netdev", known.netdev), ("link_layer", known.link_layer), ("driver", known.driver)))
        base = labels.of(port, None)
        lines.append(f"{name}{base[:-1]}{',' + more[1:] if more else '}'} 1")
    name = f"{PREFIX}port_rate_bytes_per_second"
    lines += _head(name, "Nominal data rate of the link", "gauge")
    for port in ports:
        rate = store.ports.labels[port].rate_gbps
        if rate > 0:
            lines.append(f"{name}{labels.of(port, None)} {rate * 1e9 / 8:.0f}")


_NODE_COUNTS = (
    ("duplicate", "node_duplicate_frames_total", "Frames of a node that were stored already"),
    ("late", "node_late_frames_total", "Frames that came after newer ones: recorded, not shown as current"),
    ("gap", "node_sequence_gaps_total", "Times a node's sequence jumped ahead; a backlog may fill it later"),
    ("rival", "node_rival_frames_total", "Live frames of a second publisher with the node's id"),
)


def _nodes(store: Store, now: int, stale_ns: int, lines: list[str]) -> None:
    nodes = sorted(store.nodes.values(), key=lambda node: node.name)
    if not nodes:
        return
    texts = [label_text((("fabric", node.fabric), ("node", node.name))) for node in nodes]
    name = f"{PREFIX}node_up"
    lines += _head(name, "1 while frames of the node arrive", "gauge")
    lines += [f"{name}{t} {int(n.state(now, stale_ns) == 'alive')}" for n, t in zip(nodes, texts, strict=True)]
    name = f"{PREFIX}node_clock_skew_seconds"
    lines += _head(name, "Our clock minus the node's, shortest transit time included", "gauge")
    lines += [f"{name}{t} {n.skew.ns / 1e9!r}" for n, t in zip(nodes, texts, strict=True) if n.skew.ns is not None]
    for key, suffix, words in _NODE_COUNTS:
        lines += _head(PREFIX + suffix, words, "counter")
        lines += [f"{PREFIX}{suffix}{t} {n.counts[key]}" for n, t in zip(nodes, texts, strict=True)]
    name = f"{PREFIX}node_resets_total"
    lines += _head(name, "Counters of the node that somebody else cleared", "counter")
    lines += [f"{name}{t} {sum(s.resets for s in n.streams.values())}" for n, t in zip(nodes, texts, strict=True)]


def _own(ingest: Ingest, lines: list[str]) -> None:
    for key, words in (
        ("frames", "Frames taken"),
        ("stored", "Frames written to the recording"),
        ("disk_errors", "Batches the disk refused"),
        ("schema_missing", "Frames that came before their schema"),
    ):
        name = f"{PREFIX}aggregator_{key}_total"
        lines += _head(name, words, "counter")
        lines.append(f"{name} {ingest.counts[key]}")
    name = f"{PREFIX}aggregator_rejects_total"
    lines += _head(name, "Messages refused, by kind", "counter")
    lines += [f"{name}{label_text((('kind', kind),))} {count}" for kind, count in sorted(ingest.rejects.counts.items())]
    if ingest.recording is not None:
        name = f"{PREFIX}aggregator_recording_bytes"
        lines += _head(name, "Disk space of the recording", "gauge")
        lines.append(f"{name} {ingest.recording.bytes}")


def _head(name: str, words: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {words.translate(_HELP_ESCAPE)}"
    yield f"# TYPE {name} {kind}"


_HELP_ESCAPE = str.maketrans({"\\": r"\\", "\n": r"\n"})
