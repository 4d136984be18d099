"""Packet-level traces replayed: the scores as floor, whole and worsened; causality; the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import trace_views as views
from benchmarks.score import VIEWS
from benchmarks.scoring import Score, pairs_score, score
from fabricd.cli import main
from fabricd.outputs.replay import run
from fabricd.outputs.trace import Trace, read_trace

TRACES = Path(__file__).parent.parent / "data" / "traces"
PLAIN = ("deadlock-1", "incast-1", "quiet_uniform-1", "slow_receiver-1", "tp_storage-2")
HARD = ("decoy-2", "oversub-1", "degraded_hidden-2")


@cache
def trace_of(name: str) -> Trace:
    return read_trace(TRACES / name)


def document(name: str, file: str) -> Any:
    return json.loads((TRACES / name / file).read_text())


def verdicts_of(trace: Trace, pairs: Any = ()) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run(trace, pairs).to_json()["verdicts"]
    return found


def total(names: tuple[str, ...], view: Callable[[Trace], Trace], coarse: int = 1) -> Score:
    out = Score()
    for name in names:
        label = document(name, "label.json")
        found = verdicts_of(view(trace_of(name)))
        out.add(score(found, label, document(name, "topology.json"), label["dt_ns"] * coarse))
    return out


@pytest.mark.parametrize("view", ["roce", "5x", "20x", "ib", "skew", "cleared", "mixed", "frames"])
def test_plain_traces_keep_their_score(view: str) -> None:
    make, coarse = VIEWS[view]
    result = total(PLAIN, make, coarse)
    floor = {"roce": 0.99, "5x": 0.97, "20x": 0.9, "ib": 0.95}.get(view, 0.9)
    assert (result.f1 or 0) >= floor
    assert result.causes == result.found
    assert result.alarms == 0
    assert sorted(result.delays)[len(result.delays) // 2] <= 3


@pytest.mark.parametrize(("view", "floor"), [("roce", 0.92), ("5x", 0.85), ("20x", 0.75), ("ib", 0.85)])
def test_hard_traces_keep_their_score(view: str, floor: float) -> None:
    make, coarse = VIEWS[view]
    result = total(HARD, make, coarse)
    assert (result.f1 or 0) >= floor


def test_affected_ports_are_the_right_ones() -> None:
    plain, hard = total(PLAIN, VIEWS["roce"][0]), total(HARD, VIEWS["roce"][0])
    assert plain.affected_in_tree >= 0.97 * plain.affected
    assert plain.affected_hit >= 0.92 * plain.affected_true
    assert hard.affected_in_tree >= 0.95 * hard.affected


def test_victim_pairs() -> None:
    right = wrong = missed = 0
    for name in PLAIN:
        flows = document(name, "flows.json")
        pairs = sorted({(flow["src"], flow["dst"], flow["prio"]) for flow in flows})
        found = pairs_score(verdicts_of(trace_of(name), pairs), document(name, "label.json"), flows)
        right, wrong, missed = right + found[0], wrong + found[1], missed + found[2]
    assert 2 * right / (2 * right + wrong + missed) >= 0.85


def told(verdict: dict[str, Any]) -> tuple[Any, ...]:
    return verdict["start"], verdict["detected_at"], verdict["cause"], tuple(map(tuple, verdict["roots"]))


@pytest.mark.parametrize(
    ("name", "coarse"), [("incast-1", 1), ("degraded_hidden-2", 5), ("deadlock-1", 1), ("incast-1", 20)]
)
def test_a_prefix_gives_exactly_the_verdicts_detected_inside_it(name: str, coarse: int) -> None:
    trace = views.degraded(trace_of(name), coarse=coarse)
    whole = verdicts_of(trace)
    times = np.unique(trace.counters.t_ns)
    for cut in times[:: max(1, len(times) // 9)]:
        prefix = verdicts_of(views.select(trace, trace.counters.t_ns <= cut))
        assert [told(v) for v in prefix] == [told(v) for v in whole if v["detected_at"] <= cut]


def test_what_could_not_be_seen_is_said() -> None:
    trace = trace_of("incast-1")
    frames = verdicts_of(VIEWS["frames"][0](trace))
    assert any("pause frames" in word for v in frames for word in v["blind"])
    unseen = verdicts_of(views.degraded(trace, blind=0.2))
    assert any("send no counters" in word for v in unseen for word in v["blind"])
    reset = verdicts_of(views.cleared(trace, 60_000_000))
    assert any("cleared by someone else" in word for v in reset for word in v["blind"])
    assert any("not observable" in word for v in verdicts_of(views.infiniband(trace)) for word in v["blind"])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "pairs.csv"
    flows = document("incast-1", "flows.json")
    pairs.write_text(
        "src,dst,prio\n" + "".join(f"{f['src']},{f['dst']},{f['prio']}\n" for f in flows) + "99,1,3\nnonsense\n"
    )
    directory = str(TRACES / "incast-1")
    assert main(["replay", directory, "--json", "--pairs", str(pairs)]) == 0
    answer = json.loads(capsys.readouterr().out)
    first = answer["verdicts"][0]
    assert first["roots"] == [[33, 1]] and first["cause"] == "incast" and first["priority"] == 3
    assert len(first["victim_pairs"]) > 100 and first["contributors"]
    assert {r["kind"] for r in answer["rejects"]} == {"pair_host", "pair_line"}
    assert main(["explain", first["id"], "--replay", directory]) == 0
    text = capsys.readouterr().out
    assert "leaf1:1: used" in text and "not the root" in text and "waits" in text
    assert main(["verdicts", "--replay", directory]) == 0
    assert "incast at leaf1:1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["replay"], 2, "give a directory"),
        (["replay", "/nonexistent"], 2, "no such directory"),
        (["replay", "--from", "elsewhere:x"], 2, "begin with prometheus:"),
        (["explain", "zz", "--replay", str(TRACES / "quiet_uniform-1")], 1, "no verdict zz"),
    ],
)
def test_refusals_are_one_line(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_damaged_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "t"
    small.mkdir()
    assert main(["replay", str(small)]) == 1
    assert "topology.json" in capsys.readouterr().err
    (small / "topology.json").write_text((TRACES / "deadlock-1" / "topology.json").read_text())
    assert main(["replay", str(small)]) == 1
    assert "no counters.csv.gz" in capsys.readouterr().err
    (small / "counters.csv").write_text(
        "t_ns,node,port,tx_bytes\n1000,0,1,5\n2000,0,1,\nbroken\n3000,0,x,1\n4000,0,1,9\n5000,77,1,9\n"
    )
    assert main(["replay", str(small), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == []


def test_absent_columns_and_priorities_are_not_observable() -> None:
    trace = trace_of("incast-1")
    bare = views.without(trace, tuple(set(trace.counters.values) - {"tx_bytes"}))
    assert verdicts_of(dataclasses.replace(bare)) == [] or all(v["roots"] for v in verdicts_of(bare))
