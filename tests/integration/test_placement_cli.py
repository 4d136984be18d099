"""``fabricd place`` and ``topo export`` as processes a user runs, and the api process over a real socket."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from fabricd.cli import main
from fabricd.model.topology import Fault, Topology
from fabricd.topology.golden import full_json
from fabricd.topology.railfaults import check_rails
from tests.fabrics import rail_fabric

DATA = Path(__file__).parents[1] / "data" / "placement"


def run(*words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fabricd", *words], input=stdin, capture_output=True, text=True, timeout=100, check=False
    )


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """The same inside this process: no start-up to wait for."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


def fabric(**shape: int) -> Topology:
    topology = rail_fabric(**{"units": 3, "hosts": 4, "rails": 4, **shape})
    check_rails(topology)
    return topology


@pytest.fixture
def topology(tmp_path: Path) -> str:
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(full_json(fabric())))
    return str(file)


def request_file(tmp_path: Path, **document: Any) -> str:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(document))
    return str(file)


def test_place_prints_one_document_and_writes_launch_files(topology: str, tmp_path: Path) -> None:
    request = request_file(tmp_path, nodes=6, tp=16, pp=3)
    done = run("place", "--topology", topology, "--request", request, "--json", "--write", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["schema"] == "fabricd.plan/1" and len(plan["rank_order"]) == 6
    assert (tmp_path / "out" / "slurm_hostfile").read_text().split("\n")[::8][:6] == plan["rank_order"]
    people = run("place", "--topology", topology, "--request", "-", stdin=Path(request).read_text())
    assert people.returncode == 0 and "no tensor-parallel group leaves its rail group" in people.stdout


def test_an_impossible_request_is_exit_1_with_reasons(topology: str, tmp_path: Path) -> None:
    request = request_file(tmp_path, nodes=13)
    done = call("place", "--topology", topology, "--request", request, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["reasons"] == ["13 nodes asked for, 12 usable"]
    people = call("place", "--topology", topology, "--request", request)
    assert people.returncode == 1 and people.stderr == "fabricd: no placement: 13 nodes asked for, 12 usable\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--request", "R"], "--topology: missing"),
        (["--topology", "T"], "--request: missing"),
        (["--topology", "T", "--request", "/nowhere"], "/nowhere"),
        (["--topology", "/nowhere", "--request", "R"], "/nowhere"),
        (["--topology", "R", "--request", "R"], "not a topology"),
        (["--topology", "T", "--request", "BAD"], "job.tp = 3"),
        (["--topology", "T", "--request", "R", "--refine", "-1"], "placement.refine_seconds = -1.0"),
        (["--topology", "T", "--request", "R", "--heat", "HEAT"], "su1 = 2"),
        (["--topology", "T", "--request", "R", "--verdicts", "R"], "--verdicts"),
        (["--topology", "T", "--request", "R", "--doctor", "R"], "doctor report"),
    ],
)
def test_wrong_usage_is_exit_2_and_one_line(words: list[str], said: str, topology: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"nodes": 4, "tp": 3}')
    (tmp_path / "heat.json").write_text('{"su1": 2}')
    paths = {
        "T": topology,
        "R": request_file(tmp_path, nodes=4),
        "BAD": str(tmp_path / "bad.json"),
        "HEAT": str(tmp_path / "heat.json"),
    }
    done = call("place", *(paths.get(word, word) for word in words))
    assert done.returncode == 2, done.stdout
    assert said in done.stderr and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


def test_raw_ibnetdiscover_is_a_topology(tmp_path: Path) -> None:
    dump = str(DATA / "ibnetdiscover_traps.txt")
    done = call("place", "--topology", dump, "--request", request_file(tmp_path, nodes=1), "--json")
    assert done.returncode == 0
    assert "gpu002" in {e["node"] for e in json.loads(done.stdout)["fabric"]["excluded_nodes"]}


def test_check_finds_a_job_that_moved(topology: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        call("place", "--topology", topology, "--request", request_file(tmp_path, nodes=4), "--json").stdout
    )
    hosts = json.loads(plan.read_text())["rank_order"]
    good = call("place", "check", "--plan", str(plan), "--topology", topology, "--hosts", ",".join(hosts), "--json")
    assert good.returncode == 0 and json.loads(good.stdout)["as_planned"] is True
    moved = call("place", "check", "--plan", str(plan), "--topology", topology, "--hosts", ",".join(reversed(hosts)))
    assert moved.returncode == 3 and "the rank order is not" in moved.stdout
    refused = call("place", "check", "--plan", topology, "--topology", topology, "--hosts", "x")
    assert refused.returncode == 2 and "--plan" in refused.stderr


def test_simulate_compares_policies(topology: str) -> None:
    done = call("place", "simulate", "--topology", topology, "--jobs", "30", "--json")
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["nodes"] == 12 and set(result["policies"]) == {"random", "reorder", "scheduler", "fabricd"}
    assert call("place", "simulate", "--policies", "luck").returncode == 2
    assert call("place", "simulate", "--groups", "0").returncode == 2


def test_topo_export_keeps_a_file_true(topology: str, tmp_path: Path) -> None:
    out = tmp_path / "topology.conf"
    config = tmp_path / "f.toml"
    config.write_text("[placement]\nexport_min_interval_s = 1\n")
    words = ["topo", "export", "--from", topology, "--format", "slurm-tree", "--watch", "--every", "0.2", "--json"]
    watcher = subprocess.Popen(
        [sys.executable, "-m", "fabricd", *words, "--output", str(out), "--config", str(config)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    try:
        assert json.loads(watcher.stdout.readline())["changes"] == [{"what": "first export", "nodes": 12}]
        changed = fabric(hosts=5)
        changed.faults.append(Fault("short_uplinks", "LEAF-01-01", "3 uplinks", []))
        replacement = tmp_path / "new.json"
        replacement.write_text(json.dumps(full_json(changed)))
        replacement.replace(topology)
        record = json.loads(watcher.stdout.readline())
        assert {change["what"] for change in record["changes"]} == {"joined", "moved"}
        assert any("short_uplinks" in why for why in record["why"])
        assert "SwitchName=su3 Nodes=gpu[011-015]" in out.read_text()
    finally:
        watcher.send_signal(signal.SIGINT)
        assert watcher.wait(30) == 130
        watcher.stdout.close()


def test_the_api_process_answers_placement(topology: str, tmp_path: Path) -> None:
    config = tmp_path / "f.toml"
    config.write_text(
        f'[topology]\nsource = "{topology}"\n[aggregator]\nsocket = "{tmp_path}/none.sock"\n'
        "[api]\nport = 0\n[placement]\nrefine_seconds = 0\n"
    )
    log = tmp_path / "log"
    with log.open("w") as stderr:
        api = subprocess.Popen(
            [sys.executable, "-m", "fabricd", "api", "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        url = wait_for_url(api, log)
        plan = httpx.post(f"{url}/api/v1/place", json={"nodes": 4, "tp": 16}, timeout=60)
        assert plan.status_code == 200 and len(plan.json()["rank_order"]) == 4
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        uid = httpx.post(f"{url}/v1/generate", json={"engine": {"name": "slurm"}}, timeout=60).text
        deadline = time.monotonic() + 60
        while (answer := httpx.get(f"{url}/v1/topology", params={"uid": uid}, timeout=60)).status_code == 202:
            assert time.monotonic() < deadline
        assert answer.status_code == 200 and "SwitchName=su1 Nodes=gpu[001-004]" in answer.text
    finally:
        api.terminate()
        assert api.wait(60) == 0, log.read_text()


def wait_for_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines():
            if "listening on " in line:
                return line.split("listening on ")[1].strip()
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())
