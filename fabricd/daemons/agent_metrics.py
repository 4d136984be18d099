"""The agent's own ``/metrics``, for a site that starts with Prometheus and no broker. Loaded only when it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fabricd.daemons.agent_reader import Stream
from fabricd.errors import FabricdError
from fabricd.model.catalogue import exposed, metric
from fabricd.model.frame import Column, Row
from fabricd.model.ident import format_guid
from fabricd.model.sample import Flag

_LABELS = ("fabric", "node", "device", "port", "plane", "priority", "guid", "netdev", "link_layer")
_SHOWN = ("counter", "gauge", "state")
_VALID = int(Flag.VALID)


class AgentMetrics(Collector):
    """Serves the last reading. The reader holds ``lock`` while it changes the cells, a scrape while it looks at them.

    Raises FabricdError when the address cannot be listened on.
    """

    def __init__(self, fabric: str, node: str, listen: str) -> None:
        self.lock = threading.Lock()
        self.streams: Sequence[Stream] = ()
        self._fabric, self._node = fabric, node
        host, _, port = listen.rpartition(":")
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except (OSError, OverflowError) as error:
            raise FabricdError(f"agent.metrics_listen = {listen!r}: {error}") from None

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def describe(self) -> Iterator[Metric]:
        """Nothing: the families are known only after the first reading."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        with self.lock:
            for stream in self.streams:
                width = len(stream.columns)
                for number, planned in enumerate(stream.rows):
                    for cell, column in enumerate(stream.columns, number * width):
                        if column.kind in _SHOWN and stream.flags[cell] & _VALID:
                            self._add(families, column, planned.row, stream.values[cell])
        yield from families.values()

    def _add(self, families: dict[str, Metric], column: Column, row: Row, value: int) -> None:
        name, factor = exposed(column.name, column.unit)
        name = f"fabricd_{name}"
        family = families.get(name)
        if family is None:
            make = CounterMetricFamily if column.kind == "counter" else GaugeMetricFamily
            family = families[name] = make(name, metric(column.name).help, labels=_LABELS)
        labels = (
            self._fabric, self._node, row.device or row.netdev, str(row.port), str(row.plane) if row.plane else "",
            "" if column.priority is None else str(column.priority), format_guid(row.guid), row.netdev, row.link_layer,
        )  # fmt: skip
        number = value if factor == 1 else value * factor
        if isinstance(family, CounterMetricFamily | GaugeMetricFamily):
            family.add_metric(labels, number)
