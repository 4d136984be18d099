"""A node's doctor report and the running jobs, through the broker and a real aggregator, to the command line and /metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.pipeline import wait_for
from tests.integration.test_up import Up, get
from tests.unit.doctor.trees import h100


def fabricd(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fabricd", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


def test_reports_and_jobs_reach_the_api(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[jobs]]\nid = "llm"\nnodes = "gpu[001-002]"\n')
    config = tmp_path / "fabricd.toml"
    config.write_text(f'[jobs]\nsource = "file"\nfile = "{jobs}"\ninterval_s = 1\n')
    up = Up("--json", "--config", str(config))
    try:
        found: dict[str, Any] = json.loads(up.line())
        broker = found["broker"].rsplit(":", 1)
        bad = h100(tmp_path / "tree", pairs=1, acs=0x1D).done()
        sent = fabricd(
            "doctor", "--root", bad, "--publish", "--json",
            FABRICD_BROKER__PORT=broker[1], FABRICD_AGENT__NODE="gpu001",
        )  # fmt: skip
        assert sent.returncode == 3, sent.stderr

        def reported() -> bool:
            return "gpu001" in json.loads(get(f"{found['api']}/doctor/fleet"))["failing"]

        wait_for(reported, "the report is in the fleet view")
        assert 'fabricd_doctor_check{node="gpu001",check="pcie.acs",verdict="fail"} 1' in get(found["metrics"])
        fleet = fabricd("doctor", "--fleet", "--url", found["status_page"])
        assert fleet.returncode == 3
        assert "gpu001: fails pcie.acs" in fleet.stdout
        assert "<li>gpu001 fails pcie.acs" in get(found["status_page"])

        wait_for(lambda: json.loads(get(f"{found['api']}/jobs"))["jobs"] != [], "the jobs file is read")
        listed = fabricd("jobs", "--url", found["status_page"])
        assert listed.returncode == 0, listed.stderr
        assert "llm: 2 nodes gpu[001-002]" in listed.stdout
        assert "not observable" in listed.stdout
        jobs.write_text("jobs = 3\n")
        wait_for(lambda: json.loads(get(f"{found['api']}/jobs"))["problem"] is not None, "a broken file is said")
        assert "the jobs' source" in fabricd("jobs", "--url", found["status_page"]).stderr
    finally:
        up.stop(15)


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1).done()
    done = fabricd("doctor", "--root", tree, "--publish", FABRICD_BROKER__PORT="1")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "broker 127.0.0.1:1" in done.stderr
