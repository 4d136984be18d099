"""The columnar store: ports, nodes and tables; what detection, the api and the exposition read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabricd.model.catalogue import lookup
from fabricd.model.frame import Column, Schema
from fabricd.store.node import Node
from fabricd.store.ports import PortIndex
from fabricd.store.table import Layout, Stream, Table


class Reading(NamedTuple):
    """One counter at one priority over all ports that have it, at this moment. All arrays have the same length.

    ``port`` are port numbers (``Store.ports``); ``rate`` is per second, NaN where unknown; ``delta`` and ``span`` (ns) are the
    movement behind it; ``flags`` model.sample.Flag bits; ``age`` ns since the reading arrived here; ``at`` the node's wall ns.
    """

    port: NDArray[np.int64]
    value: NDArray[np.uint64]
    rate: NDArray[np.float64]
    delta: NDArray[np.uint64]
    span: NDArray[np.int64]
    flags: NDArray[np.uint8]
    age: NDArray[np.int64]
    at: NDArray[np.int64]


class Store:
    """Not thread-safe: read it from the event loop that fills it. ``clock`` gives ns for ages; a playback has its own."""

    def __init__(self, fabric: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.fabric = fabric
        self.clock = clock
        self.ports = PortIndex()
        self.nodes: dict[str, Node] = {}
        self.tables: dict[Layout, Table] = {}

    def node(self, name: str) -> Node:
        """The node, made when new."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(self.fabric, name)
        return node

    def open_stream(self, node: Node, schema: Schema, schema_id: int) -> Stream:
        """A stream begins, or its schema changed: ports and columns that stay keep their values."""
        table = self.tables.get(schema.columns)
        if table is None:
            driver = schema.rows[0].driver if schema.rows else ""
            table = self.tables[schema.columns] = Table(schema.columns, lambda column: _scale(driver, column))
        owned = schema.kind == "node"
        ports = [self.ports.number(self.fabric, node.name, row, owned=owned) for row in schema.rows]
        stream = Stream(schema, schema_id, table, ports)
        old = node.streams.get(schema.stream)
        if old is not None:
            stream.inherit(old)
            for number in set(self._numbers(old)) - set(ports):
                self.ports.release(number, node.name)
            old.release()
        node.streams[schema.stream] = stream
        return stream

    def give_up_ports(self, node: Node) -> None:
        """The node is gone: its ports may appear elsewhere without being called duplicates."""
        for stream in node.streams.values():
            for number in self._numbers(stream):
                self.ports.release(number, node.name)

    def remove_node(self, name: str) -> None:
        """Forget a node's streams; its ports keep their numbers."""
        node = self.nodes.pop(name)
        self.give_up_ports(node)
        for stream in node.streams.values():
            stream.release()

    def forget(self, unheard_ns: int) -> list[str]:
        """Remove nodes not heard of for so long; returns their names."""
        now = self.clock()
        gone = [name for name, node in self.nodes.items() if node.heard_ns and now - node.heard_ns > unheard_ns]
        for name in gone:
            self.remove_node(name)
        return gone

    def names(self) -> list[tuple[str, int | None]]:
        """Every (counter, priority) some port has."""
        return sorted({(c.name, c.priority) for layout in self.tables for c in layout}, key=lambda k: (k[0], k[1] or 0))

    def read(self, name: str, priority: int | None = None) -> Reading:
        """The counter at one priority (None: it has none) of all ports; a port reported by several streams appears several times."""
        parts = list(self._parts(name, priority))
        return Reading(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True))) if parts else _NOTHING

    def _parts(self, name: str, priority: int | None) -> Iterator[Reading]:
        now = self.clock()
        for layout, table in self.tables.items():
            for at, column in enumerate(layout):
                if column.name == name and column.priority == priority:
                    rows = table.heard_rows()
                    streams = table.stream[rows]
                    delta, span = table.delta[rows, at], table.spans(rows, at)
                    with np.errstate(divide="ignore", invalid="ignore"):
                        rate = np.where(span > 0, delta * 1e9 / span, np.nan)
                    yield Reading(
                        table.port[rows], table.value[rows, at], rate, delta, span, table.flags[rows, at],
                        now - table.heard[streams], table.wall[streams],
                    )  # fmt: skip

    @staticmethod
    def _numbers(stream: Stream) -> list[int]:
        return [int(n) for n in stream.table.port[stream.start : stream.start + stream.count]]


_NOTHING = Reading(
    np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0), np.zeros(0, np.uint64), np.zeros(0, np.int64),
    np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64),
)  # fmt: skip


def _scale(driver: str, column: Column) -> int:
    """What one raw unit is in the column's unit: a narrow counter of words or microseconds wraps at a multiple of 2**width."""
    return lookup(driver, column.source, column.raw).scale if column.raw else 1
