"""A packet trace told by other people's tools, UFM's CSV and ibdiagnet's directories, leads to the same root."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fabricd.cli import main
from fabricd.outputs.trace import read_trace
from tests.exporters import Watched

TRACES = Path(__file__).parent.parent / "data" / "traces"
START = 1_764_000_000 * 10**9
STEP = 30 * 10**9


@cache
def watched(name: str) -> Watched:
    """The trace's millisecond becomes half a minute."""
    return Watched(read_trace(TRACES / name), 30_000)


def replay(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["replay", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def labelled(name: str) -> tuple[Any, str]:
    episode = json.loads((TRACES / name / "label.json").read_text())["episodes"][0]
    return episode["roots"], episode["cause"]


def leads_to_the_root(found: dict[str, Any], name: str) -> None:
    """The first verdict names the labelled root and its cause. Traces count nodes from 0, GUIDs here from 1."""
    roots, cause = labelled(name)
    guids = [[watched(name).guid(node + 1), port] for node, port in roots]
    first = found["verdicts"][0]
    assert (first["roots"], first["cause"]) == (guids, cause)
    assert any("every shortest path was assumed" in word for word in first["blind"])
    assert any("virtual lane" in word for word in first["blind"])


@pytest.mark.parametrize("name", ["incast-1"])
def test_ufm_csv(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ufm.csv").write_text(watched(name).ufm_csv(START, STEP))
    (tmp_path / "topology.json").write_text(watched(name).topology_json())
    found = replay(capsys, "--from", f"ufm-csv:{tmp_path}/ufm.csv", "--topology", f"{tmp_path}/topology.json")
    assert found["rejects"] == []
    leads_to_the_root(found, name)


@pytest.mark.parametrize("name", ["incast-1"])
def test_ibdiagnet_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(30, 60):
        run = tmp_path / f"run-{number}"
        run.mkdir()
        (run / "ibdiagnet2.db_csv").write_text(watched(name).db_csv(START, number * STEP))
    found = replay(capsys, "--from", f"ibdiagnet:{tmp_path}")
    assert found["rejects"] == []
    leads_to_the_root(found, name)


def test_ibdiagnet_tells_the_routes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the adaptive-routing tables of a run nothing has to be assumed; they need not be the newest run's."""
    for number in range(30, 60):
        run = tmp_path / "day" / f"run-{number}"
        run.mkdir(parents=True)
        (run / "ibdiagnet2.db_csv").write_text(watched("incast-1").db_csv(START, number * STEP))
    (tmp_path / "day" / "run-40" / "ibdiagnet2.far").write_text(watched("incast-1").far())
    found = replay(capsys, "--from", f"ibdiagnet:{tmp_path}")
    assert found["rejects"] == []
    first = found["verdicts"][0]
    roots, cause = labelled("incast-1")
    assert (first["roots"], first["cause"]) == ([[watched("incast-1").guid(n + 1), port] for n, port in roots], cause)
    assert not any("assumed" in word for word in first["blind"])


def test_ibdiagnet_needs_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ibdiagnet2.db_csv").write_text(watched("incast-1").db_csv(START, 0))
    assert main(["replay", "--from", f"ibdiagnet:{tmp_path}"]) == 1
    assert "two or more" in capsys.readouterr().err


def test_ufm_csv_needs_a_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ufm.csv").write_text("timestamp,node_guid,port_num,PortXmitWait\n")
    assert main(["replay", "--from", f"ufm-csv:{tmp_path}/ufm.csv"]) == 2
    assert "--topology" in capsys.readouterr().err
