"""The flow model against packet-level traces: same fabric, flows and trouble; compare roots, victims and stall shares.

``python -m benchmarks.flow_vs_packets TRACES [--trace NAME] [--json]``; TRACES holds <name>/topology.json and so on.
Per trace: packet-level episodes found (the same root, overlapping in time), their cause, affected ports, and the stall
share of every port over each episode (mean absolute difference, and total stall of the tree as a ratio).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from fabricd.flow.headless import Trace, run_scene
from fabricd.flow.packet_traces import MessageRow, scene_from_trace

Port = tuple[int, int]
COVER = 0.2  # share of an episode the model's episode must cover to count as the same


def load(path: Path) -> dict[str, Any]:
    """The documents of one trace."""
    state = list(csv.reader((path / "link_state.csv").open()))[1:]
    messages: list[MessageRow] | None = None
    if (path / "messages.csv.gz").exists():
        with gzip.open(path / "messages.csv.gz", "rt") as file:
            messages = [(int(r["flow"]), int(r["req_ns"]), int(r["size"])) for r in csv.DictReader(file)]
    return {
        "topology": json.loads((path / "topology.json").read_text()),
        "flows": json.loads((path / "flows.json").read_text()),
        "label": json.loads((path / "label.json").read_text()),
        "link_state": [tuple(int(x) for x in row) for row in state],
        "messages": messages,
    }


def packet_waits(path: Path) -> dict[Port, np.ndarray[Any, Any]]:
    """Cumulative wait (ns) per port and window, the largest over priorities."""
    waits: dict[tuple[int, int, int], list[int]] = {}
    with gzip.open(path / "counters.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            waits.setdefault((int(row["node"]), int(row["port"]), int(row["prio"])), []).append(
                int(row["xmit_wait_ns"])
            )
    return _largest({key: np.asarray(values, dtype=float) for key, values in waits.items()})


def model_waits(trace: Trace) -> dict[Port, np.ndarray[Any, Any]]:
    """The same of a model run."""
    table = np.stack(trace.counters)  # [W, rows, 20]
    names = table[0][:, 1:4]
    return _largest({(int(a), int(b), int(c)): table[:, k, 11].astype(float) for k, (a, b, c) in enumerate(names)})


def _largest(waits: dict[tuple[int, int, int], np.ndarray[Any, Any]]) -> dict[Port, np.ndarray[Any, Any]]:
    out: dict[Port, np.ndarray[Any, Any]] = {}
    for (node, port, _), values in waits.items():
        out[node, port] = np.maximum(out[node, port], values) if (node, port) in out else values
    return out


def stall(waits: dict[Port, np.ndarray[Any, Any]], first: int, last: int, dt_ns: float) -> dict[Port, float]:
    """Stall share of each port over windows [first, last)."""
    out = {}
    for port, values in waits.items():
        before = values[first - 1] if first > 0 else 0.0
        out[port] = float(values[min(last, len(values)) - 1] - before) / ((last - first) * dt_ns)
    return out


def overlap(a: dict[str, Any], b: dict[str, Any]) -> float:
    """Share of episode ``a`` that ``b`` covers."""
    common = float(min(a["end_ns"], b["end_ns"]) - max(a["start_ns"], b["start_ns"]))
    return max(0.0, common) / float(a["end_ns"] - a["start_ns"])


def compare(
    truth: dict[str, Any], packets: dict[Port, np.ndarray[Any, Any]], model: Trace, *others: Trace
) -> dict[str, Any]:
    """What agrees between a packet-level label and a model run.

    Waits are averaged over ``model`` and ``others`` (further seeds): single message times are drawn, not recorded.
    """
    runs = [model_waits(trace) for trace in (model, *others)]
    mine = {port: np.mean([run[port] for run in runs], axis=0) for port in runs[0]}
    found = [*model.label["episodes"], *model.label["contention"]]
    episodes = []
    for episode in truth["episodes"]:
        roots = {tuple(r) for r in episode["roots"]}
        same = [e for e in found if roots & {tuple(r) for r in e["roots"]}]
        cover = sum(overlap(episode, e) for e in same)
        first, last = episode["start_ns"] // truth["dt_ns"], episode["end_ns"] // truth["dt_ns"]
        theirs, ours = (stall(w, first, last, truth["dt_ns"]) for w in (packets, mine))
        ports = [p for p in theirs if max(theirs[p], ours.get(p, 0.0)) >= 0.02]
        gaps = [abs(theirs[p] - ours.get(p, 0.0)) for p in ports]
        victims = {tuple(v) for v in episode["victims"]}
        best = max(same, key=lambda e: overlap(episode, e), default=None)
        hit = {tuple(v) for e in same for v in e.get("victims", [])}
        tree = {tuple(v) for e in same for v in e["tree_ports"]}
        theirs_tree = {tuple(v) for v in episode["tree_ports"]} | victims
        episodes.append(
            {
                "root": episode["root_names"][:2],
                "cause": episode["cause"],
                "robust": episode["robust"],
                "found": cover >= COVER,
                "cover": round(min(cover, 1.0), 2),
                "scored": any(e in model.label["episodes"] for e in same),
                "model_cause": best["cause"] if best else None,
                "victim_recall": round(len(hit & victims) / len(victims), 2) if victims else None,
                "victim_precision": round(len(hit & theirs_tree) / len(hit), 2) if hit else None,
                "tree_recall": round(len(tree & theirs_tree) / len(theirs_tree), 2) if theirs_tree else None,
                "stall_gap_mean": round(float(np.mean(gaps)), 3) if gaps else 0.0,
                "stall_total_ratio": round(
                    sum(ours.get(p, 0) for p in ports) / max(sum(theirs[p] for p in ports), 1e-9), 2
                ),
            }
        )
    neutral = [*truth["episodes"], *truth["contention"], *truth["transients"]]
    extra = [
        e["root_names"]
        for e in model.label["episodes"]
        if not any({tuple(r) for r in e["roots"]} & {tuple(r) for r in t["roots"]} for t in neutral)
    ]
    span = stall(packets, 0, truth["duration_ns"] // truth["dt_ns"], truth["dt_ns"])
    ours = stall(mine, 0, truth["duration_ns"] // truth["dt_ns"], truth["dt_ns"])
    return {
        "episodes": episodes,
        "extra_roots": extra,
        "stall_whole_run_gap": round(float(np.mean([abs(span[p] - ours.get(p, 0.0)) for p in span])), 4),
        "negative_in_both": truth["negative"] and not model.label["episodes"] if truth["negative"] else None,
    }


def cut_label(label: dict[str, Any], windows: int) -> dict[str, Any]:
    """The label of the first ``windows`` windows: later episodes dropped, running ones shortened."""
    end = windows * label["dt_ns"]
    out = dict(label, duration_ns=end, flows_span_ns=label["duration_ns"])
    for key in ("episodes", "contention", "transients", "soft_congestion"):
        out[key] = [
            dict(e, end_ns=min(e["end_ns"], end)) for e in label[key] if e["start_ns"] < end - 8 * label["dt_ns"]
        ]
    for episode in out["episodes"]:
        episode.pop("victim_flows", None)
    return out


def pack(path: Path, windows: int) -> bytes:
    """One trace as a small file for tests: documents, shortened label and the waits of every port in microseconds."""
    documents = load(path)
    documents["label"] = cut_label(documents["label"], windows)
    waits = packet_waits(path)
    documents["waits_us"] = {
        f"{n}:{p}": (w[:windows] / 1e3).round().astype(int).tolist() for (n, p), w in waits.items()
    }
    return gzip.compress(json.dumps(documents, separators=(",", ":")).encode(), 9, mtime=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--trace", action="append", help="only these")
    parser.add_argument("--quantum", type=int, default=16384)
    parser.add_argument(
        "--seeds", type=int, default=1, help="stalls are averaged over this many draws of message times"
    )
    parser.add_argument("--pack", type=Path, help="write <trace>.json.gz for tests there instead of comparing")
    parser.add_argument("--windows", type=int, default=100, help="how much of a trace --pack keeps")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    out = {}
    for path in sorted(p.parent for p in args.traces.glob("*/label.json")):
        if args.trace and path.name not in args.trace:
            continue
        if args.pack:
            (args.pack / f"{path.name}.json.gz").write_bytes(pack(path, args.windows))
            continue
        started = time.perf_counter()
        documents = load(path)
        runs = [
            run_scene(scene_from_trace(**documents, quantum=args.quantum, seed=seed))
            for seed in range(1, args.seeds + 1)
        ]
        result = compare(documents["label"], packet_waits(path), *runs)
        result["seconds"] = round(time.perf_counter() - started, 1)
        out[path.name] = result
        if not args.json:
            print(
                f"{path.name} ({result['seconds']} s) whole-run gap {result['stall_whole_run_gap']} extra {result['extra_roots']}"
            )
            for episode in result["episodes"]:
                print("   ", episode)
    if args.json and not args.pack:
        print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
