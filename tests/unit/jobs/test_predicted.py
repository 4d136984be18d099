"""A job's measured communication against the wire time of its bytes; congestion shows as a lowered share."""

import json
from typing import Any

import pytest

from fabricd.cli import main
from fabricd.jobs.predicted import against_measured


def report(**more: Any) -> dict[str, Any]:
    base = {
        "id": "llm", "step": {"seconds": 10.0, "correlation": 0.9, "reason": ""},
        "bytes_per_rail_per_step": [100e9, 100e9, None], "exposed_communication": [0.15, 0.25], "stragglers": [], "notes": [],
    }  # fmt: skip
    return {**base, **more}


def test_a_healthy_job_is_as_predicted() -> None:
    found = against_measured(report(), 50.0, 1.0)
    assert found["predicted_wire_seconds"] == pytest.approx(2.0)
    assert found["measured_communication_seconds"] == pytest.approx([1.5, 2.5])
    assert "as predicted" in found["note"]


def test_congestion_shows_as_a_share_of_the_rate() -> None:
    found = against_measured(report(exposed_communication=[0.4, 0.5], hurt_by=["v1"]), 50.0, 1.0)
    assert "about 50% of the NICs' rate; see v1" in found["note"]
    assert "as predicted" in against_measured(report(exposed_communication=[0.35, 0.45]), 50.0, 0.5)["note"]
    assert "faster" in against_measured(report(exposed_communication=[0.01, 0.1]), 50.0, 1.0)["note"]


def test_what_is_not_observable_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    blind = report(step={"seconds": None, "correlation": 0.0, "reason": "needs a second sampling"})
    with pytest.raises(ValueError, match="needs a second sampling"):
        against_measured(blind, 50.0, 1.0)
    with pytest.raises(ValueError, match="uplink share"):
        against_measured(report(), 50.0, 0.0)
    monkeypatch.setattr("fabricd.commands.model.get_json", lambda *_: {"jobs": [report()]})
    assert main(["model", "allreduce", "--job", "llm", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "llm"
    assert main(["model", "allreduce"]) == 2
    assert "--nodes is needed" in capsys.readouterr().err
