"""MQTT topics. The fabric id is in every topic from the first frame."""

from __future__ import annotations

from urllib.parse import unquote

ROOT = "fabricd"
_FORBIDDEN = "+#/\0"
# NATS maps MQTT topics to subjects, where a dot separates levels: a host name with dots would be refused by older servers.
_QUOTED = str.maketrans({c: f"%{ord(c):02X}" for c in "%. *>"})


def _part(text: str) -> str:
    if not text or any(c in _FORBIDDEN for c in text):
        raise ValueError(f"not usable in a topic: {text!r}")
    return text.translate(_QUOTED)


def frames(fabric: str, node: str) -> str:
    """Live frames of a node, QoS 1."""
    return f"{ROOT}/{_part(fabric)}/frames/{_part(node)}"


def backlog(fabric: str, node: str) -> str:
    """Frames sent again after an outage, rate-limited, QoS 1."""
    return f"{ROOT}/{_part(fabric)}/backlog/{_part(node)}"


def schema(fabric: str, node: str, stream: int) -> str:
    """Retained: what the frames of one stream mean."""
    return f"{ROOT}/{_part(fabric)}/schema/{_part(node)}/{stream}"


def status(fabric: str, node: str) -> str:
    """Retained: version, devices, rejects; the last will overwrites it with ``{"state": "dead"}``."""
    return f"{ROOT}/{_part(fabric)}/status/{_part(node)}"


def stored(fabric: str, node: str) -> str:
    """Retained, by the aggregator: the last (boot, sequence) that is on its disk."""
    return f"{ROOT}/{_part(fabric)}/stored/{_part(node)}"


def verdict(fabric: str, verdict_id: str) -> str:
    """Retained while the verdict is open, cleared when it ends."""
    return f"{ROOT}/{_part(fabric)}/verdicts/{_part(verdict_id)}"


def doctor(fabric: str, node: str) -> str:
    """Retained: a node's latest doctor report."""
    return f"{ROOT}/{_part(fabric)}/doctor/{_part(node)}"


def control(fabric: str, word: str) -> str:
    """Latches: ``pause``, ``freeze``, ``revert-all``."""
    return f"{ROOT}/{_part(fabric)}/control/{_part(word)}"


def action(fabric: str, action_id: str) -> str:
    """Retained, by the controller: an action and its life so far, or advice where nothing is done; cleared when it is old."""
    return f"{ROOT}/{_part(fabric)}/actions/{_part(action_id)}"


def request(fabric: str, action_id: str) -> str:
    """To the controller: ``{"verb": "approve", "who": …, "token": …}`` for an action. Not retained."""
    return f"{ROOT}/{_part(fabric)}/requests/{_part(action_id)}"


def lease(fabric: str, name: str) -> str:
    """Retained: who holds a lease, such as a shard of the switches to sweep."""
    return f"{ROOT}/{_part(fabric)}/lease/{_part(name)}"


def split(topic: str) -> tuple[str, str, str, str] | None:
    """(fabric, kind, name, rest) of a topic of ours, else None."""
    parts = topic.split("/", 4)
    if len(parts) < 4 or parts[0] != ROOT:
        return None
    return unquote(parts[1]), parts[2], unquote(parts[3]), parts[4] if len(parts) > 4 else ""


def of_all_nodes(fabric: str, kind: str) -> str:
    """The filter for ``frames``, ``backlog``, ``schema`` or ``status`` of every node."""
    return f"{ROOT}/{_part(fabric)}/{kind}/+" + ("/+" if kind == "schema" else "")
