"""Live heat as Slurm node weights, through ``scontrol``: small steps, seldom, compare-and-set, and undone on request.

Slurm gives nodes of lower weight first, before it looks at topology, so the steps are small. What was there before and what
we wrote is kept in a state file; a node whose weight is no longer ours is somebody else's and is left alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricd.config.placement import PlacementConfig
from fabricd.errors import BAD_DOCUMENT, FabricdError
from fabricd.jobs.hostlist import compress
from fabricd.placement.fabric import Fabric
from fabricd.placement.files import write_atomically

SCHEMA = "fabricd.weights/1"
_NODE = re.compile(r"\bNodeName=(\S+)")
_WEIGHT = re.compile(r"\bWeight=(\d+)")


@dataclass(slots=True)
class Change:
    """``result``: planned, written, conflict (someone else changed it), unknown (Slurm has no such node)."""

    nodes: list[str]
    before: int | None
    after: int
    result: str

    def to_json(self) -> dict[str, Any]:
        return {"nodes": compress(self.nodes), "before": self.before, "after": self.after, "result": self.result}


@dataclass(slots=True)
class State:
    """Per node: the weight before us and the one we wrote."""

    written_at: float = 0.0
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)


def load_state(path: str) -> State:
    """Raises FabricdError when the file is there and is not a state."""
    file = Path(path)
    if not file.exists():
        return State()
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}")
        nodes = {str(n): {"before": int(v["before"]), "ours": int(v["ours"])} for n, v in document["nodes"].items()}
        return State(float(document["written_at"]), nodes)
    except (OSError, *BAD_DOCUMENT, KeyError, TypeError, AttributeError) as error:
        raise FabricdError(f"{path}: not a weights state: {error}") from None


def save_state(path: str, state: State) -> None:
    document = {"schema": SCHEMA, "written_at": state.written_at, "nodes": state.nodes}
    write_atomically(path, json.dumps(document, sort_keys=True) + "\n")


@dataclass(frozen=True, slots=True)
class Scontrol:
    """The ``scontrol`` command. Raises FabricdError when it cannot be run or fails."""

    command: str = "scontrol"
    timeout_s: float = 30.0

    def weights(self) -> dict[str, int]:
        """Weight of every node Slurm knows."""
        out: dict[str, int] = {}
        for line in self._run("-o", "show", "nodes").splitlines():
            name, weight = _NODE.search(line), _WEIGHT.search(line)
            if name and weight:
                out[name[1]] = int(weight[1])
        return out

    def set_weight(self, nodes: list[str], weight: int) -> None:
        self._run("update", f"NodeName={compress(nodes)}", f"Weight={weight}")

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [self.command, *words], capture_output=True, text=True, timeout=self.timeout_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FabricdError(f"{self.command} {words[0]}: {error}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[:200]
            raise FabricdError(f"{self.command} {' '.join(words)}: exit {done.returncode}: {said}")
        return done.stdout


def apply_heat(
    fabric: Fabric,
    heat: Mapping[str, float],
    slurm: Scontrol,
    state_path: str,
    config: PlacementConfig,
    write: bool,
    now: float | None = None,
) -> list[Change]:
    """Bring weights to base + step × heat of the node's rail group. Without ``write`` nothing is touched.

    Raises FabricdError when writing is switched off in the configuration or comes too soon after the last time.
    """
    now = time.time() if now is None else now
    state = load_state(state_path)
    if write:
        if not config.slurm_weight_enabled:
            raise FabricdError("placement.slurm_weight_enabled = false: Slurm weights are not written")
        wait = state.written_at + config.slurm_weight_min_interval_s - now
        if wait > 0:
            raise FabricdError(
                f"weights were written {now - state.written_at:.0f} s ago: the next write is due in {wait:.0f} s"
            )
    current = slurm.weights()
    wanted: dict[str, int] = {}
    for host, index in fabric.index.items():
        base = state.nodes[host]["before"] if host in state.nodes else current.get(host, 0)
        group = fabric.groups[int(fabric.group[index])].name
        wanted[host] = base + round(config.slurm_weight_step * heat.get(group, 0.0))
    return _bring(wanted, current, state, slurm, state_path, write, now)


def undo(slurm: Scontrol, state_path: str, write: bool = True) -> list[Change]:
    """Put back every weight that is still ours; not rate-limited, allowed whatever the configuration says."""
    state = load_state(state_path)
    wanted = {host: entry["before"] for host, entry in state.nodes.items()}
    changes = _bring(wanted, slurm.weights(), state, slurm, state_path, write, state.written_at)
    if write:
        # What others changed meanwhile is theirs for good: forget it.
        state.nodes.clear()
        save_state(state_path, state)
    return changes


def _bring(
    wanted: Mapping[str, int],
    current: Mapping[str, int],
    state: State,
    slurm: Scontrol,
    state_path: str,
    write: bool,
    now: float,
) -> list[Change]:
    steps: dict[tuple[int | None, int, str], list[str]] = {}
    for host, weight in wanted.items():
        have = current.get(host)
        if have is None:
            steps.setdefault((None, weight, "unknown"), []).append(host)
        elif host in state.nodes and have != state.nodes[host]["ours"]:
            steps.setdefault((have, weight, "conflict"), []).append(host)
        elif have != weight:
            steps.setdefault((have, weight, "planned"), []).append(host)
        elif host in state.nodes and weight == state.nodes[host]["before"] and write:
            del state.nodes[host]
    changes = [
        Change(hosts, before, after, result) for (before, after, result), hosts in sorted(steps.items(), key=str)
    ]
    if not write:
        return changes
    for change in changes:
        if change.result != "planned" or change.before is None:
            continue
        # Intent first: if we die between the two steps, the state still knows what to put back.
        for host in change.nodes:
            entry = state.nodes.setdefault(host, {"before": change.before, "ours": change.before})
            entry["ours"] = change.after
        state.written_at = now
        save_state(state_path, state)
        slurm.set_weight(change.nodes, change.after)
        change.result = "written"
        for host in change.nodes:
            if state.nodes[host]["before"] == change.after:
                del state.nodes[host]
    save_state(state_path, state)
    return changes
