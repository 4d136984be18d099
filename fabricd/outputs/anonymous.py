"""Names and addresses of a fabric replaced, the same by the same everywhere, so that a report can leave the house.

A keyed hash of each name is its new name. GUIDs get new ones in the same order: everything that sorts by GUID, the detector included,
does the same with them. What is not known to be harmless is replaced: addresses in any text, labels, serial numbers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any

import msgspec

from fabricd.model.ident import format_guid
from fabricd.model.topology import CA, Link, Node, Topology
from fabricd.model.verdict import NodeId, Verdict

# Labels that tell of a kind of thing, not of one: they are what a vendor needs.
_KEPT = frozenset(
    {
        "device", "netdev", "hca", "role", "model", "asic", "pci", "internal", "split_a", "split_b", "cable_vendor", "cable_part",
        "cable_revision", "cable_length", "cable_type", "optics_firmware", "fec", "ber_raw_a", "ber_raw_b", "ber_effective_a",
        "ber_effective_b", "ber_symbol_a", "ber_symbol_b",
    }
)  # fmt: skip
_FOUND = re.compile(
    r"(?P<mac>\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b)"
    r"|(?P<ip>\b\d{1,3}(?:\.\d{1,3}){3}\b|(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){3,7}[0-9A-Fa-f]{1,4}\b)"
    r"|(?P<person>[\w.+-]+@[\w.-]+)"
    r"|(?P<guid>(?<![0-9A-Za-z])(?:(?:0x)?[0-9A-Fa-f]{16}|0x[0-9A-Fa-f]{8,15})(?![0-9A-Za-z]))"
)
_SHORT = 2  # a name of one character, or of digits only, cannot be told from other text


class Anonymiser:
    """For one fabric. ``key``: with the same key a name gets the same new name in another report; without it nobody can go back."""

    def __init__(self, topology: Topology, key: bytes) -> None:
        self._key = key
        guids = sorted({guid for node in topology.nodes.values() for guid in (node.guid, *node.port_guids.values())})
        self._guids = dict(zip(guids, sorted(self._number(f"guid {guid:x}") for guid in guids), strict=True))
        self._names: dict[str, str] = {}
        for node in topology.nodes.values():
            self._learn(node)
        words = sorted(
            (name for name in self._names if len(name) >= _SHORT and not name.isdecimal()), key=len, reverse=True
        )
        known = "|".join(re.escape(word) for word in words)
        self._words = re.compile(rf"(?<![0-9A-Za-z])(?:{known})(?![0-9A-Za-z])") if known else None
        self._cache: dict[str, str] = {}

    def _digest(self, text: str) -> str:
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), key=self._key[:64], digest_size=8).hexdigest()

    def _number(self, text: str) -> int:
        return int(self._digest(text), 16) >> 1 | 1

    def hashed(self, kind: str, text: str) -> str:
        """``kind-1a2b3c4d``; an empty text stays empty."""
        return f"{kind}-{self._digest(f'{kind} {text}')[:8]}" if text else ""

    def _learn(self, node: Node) -> None:
        if node.host:
            self._names.setdefault(node.host, self.hashed("host", node.host))
        short = node.labels.get("short", "")
        new = self.node_name(node)
        if node.name:
            self._names.setdefault(node.name, new)
        if short:
            self._names.setdefault(short, new)

    def node_name(self, node: Node) -> str:
        """``host-1a2b3c4d mlx5_0``, ``switch-5e6f7a8b``."""
        if node.type != CA:
            return self.hashed(node.type, node.labels.get("short") or node.name)
        host = self.hashed("host", node.host or node.name)
        device = node.labels.get("device") or node.labels.get("netdev")
        return f"{host} {device}" if device and node.name.endswith(device) else host

    def guid(self, guid: int) -> int:
        """The new GUID; 0 stays 0, one that is not of this fabric is hashed."""
        return self._guids.get(guid) or (self._number(f"guid {guid:x}") if guid else 0)

    def node_id(self, node: NodeId) -> NodeId:
        """A trace's own number stays; a GUID or a name becomes another."""
        return node if isinstance(node, int) else self.text(node)

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        return {
            key: value if key in _KEPT else self.hashed(key.removeprefix("cable_"), value)
            for key, value in labels.items()
        }

    def text(self, text: str) -> str:
        """Any text: names of the fabric, GUIDs, MAC and IP addresses and user@host in it are replaced."""
        if text not in self._cache:
            new = _FOUND.sub(self._replace, text)
            if self._words is not None:
                new = self._words.sub(lambda match: self._names[match[0]], new)
            self._cache[text] = new
        return self._cache[text]

    def _replace(self, match: re.Match[str]) -> str:
        kind, text = str(match.lastgroup), match[0]
        if kind != "guid":
            return self.hashed(kind, text)
        plain = f"{self.guid(int(text, 16)):016x}"
        return f"0x{plain}" if text.startswith("0x") else plain

    def document(self, value: Any) -> Any:
        """A JSON value: every string and key in it, and whole numbers that are GUIDs of the fabric."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool) or value is None or isinstance(value, float):
            return value
        if isinstance(value, int):
            return self._guids.get(value, value) if value >= 1 << 32 else value
        if isinstance(value, dict):
            return {self.text(str(key)): self.document(item) for key, item in value.items()}
        return [self.document(item) for item in value]

    def verdict(self, verdict: Verdict) -> Verdict:
        """Jobs get new names too."""
        document = self.document(msgspec.to_builtins(verdict))
        for key in ("jobs_hurt", "jobs_contributing"):
            document[key] = [self.hashed("job", job) for job in getattr(verdict, key)]
        document["root_labels"] = [
            {
                key: self.document(value) if key in ("port", "far_end", "guid") else self.labels({key: value})[key]
                for key, value in labels.items()
            }
            for labels in verdict.root_labels
        ]
        document["id"], document["cause"], document["fabric"] = verdict.id, verdict.cause, self.fabric(verdict.fabric)
        return msgspec.convert(document, Verdict, strict=False)

    def fabric(self, name: str) -> str:
        return name if name in ("", "default") else self.hashed("fabric", name)

    def topology(self, topology: Topology) -> Topology:
        """The same fabric under new names. What was wrong with it is left out: faults and rejections quote names."""
        nodes = {self.guid(guid): self._node(node) for guid, node in sorted(topology.nodes.items())}
        links = [
            Link(
                (self.guid(link.a[0]), link.a[1]), (self.guid(link.b[0]), link.b[1]), link.rate_gbps, link.width, link.speed,
                self.labels(link.labels),
            )
            for link in topology.links
        ]  # fmt: skip
        labels = {(self.guid(guid), port): label for (guid, port), label in topology.port_labels.items()}
        return Topology(self.fabric(topology.fabric), nodes, links, source=topology.source, port_labels=labels)

    def _node(self, node: Node) -> Node:
        labels = self.labels({key: value for key, value in node.labels.items() if key not in ("short", "description")})
        if "node_guid" in node.labels:
            labels["node_guid"] = format_guid(self.guid(int(node.labels["node_guid"], 16)))
        return dataclasses.replace(
            node,
            guid=self.guid(node.guid),
            name=self.node_name(node),
            host=self.hashed("host", node.host),
            system_guid=self.guid(node.system_guid),
            port_guids={port: self.guid(guid) for port, guid in node.port_guids.items()},
            labels=labels,
        )
