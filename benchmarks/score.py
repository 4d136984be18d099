"""The detector's score per scenario and view, on traces and on random draws of the flow model.

    python -m benchmarks.score [--json] [--traces DIR] [--draws N] [--views roce,5x,20x,ib] [--draw-views roce,ib] [--details]

Views: ``roce`` per priority without queue depths; ``5x`` windows five times longer, 5 % of rows lost, 20 % of switches unseen;
``20x`` windows twenty times longer; ``ib`` whole ports, no wait on hosts; ``frames`` pause frames without durations; ``skew``
clocks off by a tenth of a window; ``cleared`` counters cleared in the middle; ``mixed`` switches read five times slower than hosts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import trace_views as views
from benchmarks.scoring import Score, pairs_score, score
from fabricd.flow.headless import run as run_flow
from fabricd.flow.scenarios import SCENARIOS
from fabricd.flow.staging import Draw
from fabricd.outputs.replay import run
from fabricd.outputs.trace import Trace, read_trace

TRACES = Path(__file__).parent.parent / "tests" / "data" / "traces"
OUT = Path(__file__).parent / "results" / "score.md"
STRESS = ("bursty_uniform",)  # reported apart: micro-incasts everywhere
HARD = ("oversub", "decoy", "microburst", "microburst_ok", "mild_incast", "degraded_hidden", "ar_incast")
View = Callable[[Trace], Trace]


def _roce(trace: Trace) -> Trace:
    return views.without(trace, views.QUEUES)


def _middle(trace: Trace) -> int:
    return int(trace.counters.t_ns[len(trace.counters) // 2])


VIEWS: dict[str, tuple[View, int]] = {
    "roce": (_roce, 1),
    "5x": (lambda t: views.degraded(_roce(t), coarse=5, drop=0.05, blind=0.2), 5),
    "20x": (lambda t: views.degraded(_roce(t), coarse=20), 20),
    "ib": (views.infiniband, 1),
    "frames": (lambda t: views.without(_roce(t), ("paused_ns", "xmit_wait_ns")), 1),
    "skew": (lambda t: views.skewed(_roce(t), 0.1), 1),
    "cleared": (lambda t: views.cleared(_roce(t), _middle(t)), 1),
    "mixed": (lambda t: views.mixed(_roce(t), 5), 5),
}


def judge(directory: Path, names: list[str]) -> Iterator[tuple[str, str, Score, tuple[int, int, int]]]:
    """(view, scenario, score, victim pairs) of one trace in each view."""
    trace = read_trace(directory)
    label = json.loads((directory / "label.json").read_text())
    topology = json.loads((directory / "topology.json").read_text())
    flows = json.loads((directory / "flows.json").read_text())
    pairs = sorted({(flow["src"], flow["dst"], flow["prio"]) for flow in flows})
    for name in names:
        view, coarse = VIEWS[name]
        known = [(a, b, None) for a, b, _ in pairs] if name == "ib" else pairs
        verdicts = run(view(trace), known).to_json()["verdicts"]
        result = score(verdicts, label, topology, label["dt_ns"] * coarse)
        yield name, label["scenario"], result, pairs_score(verdicts, label, flows)


def draws(count: int, seed: int) -> Iterator[Path]:
    """Random runs of the flow model as trace directories, one at a time."""
    with tempfile.TemporaryDirectory() as base:
        scenarios = list(SCENARIOS)
        for number in range(count):
            name, own_seed = scenarios[number % len(scenarios)], seed + number // len(scenarios)
            trace = run_flow(name, Draw(seed=own_seed))
            directory = Path(base) / f"{number}-{trace.name}"
            directory.mkdir()
            for name, content in trace.files().items():
                (directory / name).write_bytes(content)
            yield directory


def table(directories: Iterator[Path], names: list[str]) -> dict[str, Any]:
    """Scores added up by view and set, and by view and scenario."""
    sets: dict[tuple[str, str], Score] = {}
    scenarios: dict[tuple[str, str], Score] = {}
    pairs: dict[str, list[int]] = {}
    for directory in directories:
        for view, scenario, result, found in judge(directory, names):
            group = "stress" if scenario in STRESS else "hard" if scenario in HARD else "plain"
            sets.setdefault((view, group), Score()).add(result)
            scenarios.setdefault((view, scenario), Score()).add(result)
            if group != "stress":
                pairs[view] = [a + b for a, b in zip(pairs.get(view, [0, 0, 0]), found, strict=True)]
    return {
        "sets": {f"{view} {group}": s.to_json() for (view, group), s in sorted(sets.items())},
        "scenarios": {f"{view} {name}": s.to_json() for (view, name), s in sorted(scenarios.items())},
        "victim_pairs_f1": {
            view: round(2 * right / max(2 * right + wrong + missed, 1), 3)
            for view, (right, wrong, missed) in pairs.items()
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES, help="directory of trace directories")
    parser.add_argument("--draws", type=int, default=200, help="also score this many random runs of the flow model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--views", default=",".join(VIEWS))
    parser.add_argument("--draw-views", default="roce,ib", help="views of the random runs")
    parser.add_argument("--details", action="store_true", help="by scenario too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT, help="write the tables to this file as Markdown too")
    args = parser.parse_args()
    names = args.views.split(",")
    unknown = [name for name in (*names, *args.draw_views.split(",")) if name not in VIEWS]
    if unknown:
        parser.error(f"--views {unknown[0]}: one of {', '.join(VIEWS)}")
    began = time.monotonic()
    out: dict[str, Any] = {"traces": table((p.parent for p in sorted(args.traces.glob("*/label.json"))), names)}
    if args.draws:
        out["draws"] = {"count": args.draws} | table(draws(args.draws, args.seed), args.draw_views.split(","))
    out["seconds"] = round(time.monotonic() - began, 1)
    if args.out:
        args.out.write_text(markdown(out))
    if args.json:
        print(json.dumps(out, indent=1))
        return 0
    for source in ("traces", "draws"):
        for kind in ("sets", *(("scenarios",) if args.details else ())):
            for name, row in out.get(source, {}).get(kind, {}).items():
                print(
                    f"{source:7s}{name:24s} F1 {_cell(row['root_f1'])} P {_cell(row['root_precision'])} R {_cell(row['root_recall'])}"
                    f" ({row['episodes']:4d} episodes, {row['wrong']:3d} wrong) cause {_cell(row['cause_accuracy'])}"
                    f" affected P {_cell(row['affected_precision'])} R {_cell(row['affected_recall'])}"
                    f" false alarms {row['false_alarms']} delay {row['delay_windows_median']} {' '.join(row['wrong_causes'][:4])}"
                )
        if source in out:
            print(f"{source:7s}victim pairs F1 {out[source]['victim_pairs_f1']}")
    print(f"{out['seconds']} s", file=sys.stderr)
    return 0


def markdown(out: dict[str, Any]) -> str:
    """The tables as a page."""
    lines = [
        "# Detector scores",
        "",
        "`make score`; rules of scoring: `benchmarks/scoring.py`, views: `benchmarks/score.py`.",
        "",
    ]
    head = "| view and set | episodes | root F1 | P | R | cause | affected P | R | false alarms | median delay (intervals) |"
    for source, title in (("traces", "Packet-level traces"), ("draws", "Random runs of the flow model")):
        if source not in out:
            continue
        for kind, words in (("sets", ""), ("scenarios", ", by scenario")):
            lines += [f"## {title}{words}", "", head, "|" + "---|" * 10]
            for name, row in out[source][kind].items():
                cells = [row[key] for key in ("episodes", "root_f1", "root_precision", "root_recall", "cause_accuracy")]
                cells += [
                    row[key]
                    for key in ("affected_precision", "affected_recall", "false_alarms", "delay_windows_median")
                ]
                lines.append(f"| {name} | " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |")
            lines.append("")
        lines += [f"Victim pairs F1: {out[source]['victim_pairs_f1']}", ""]
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "  -  " if value is None else f"{value:.3f}"


if __name__ == "__main__":
    sys.exit(main())
