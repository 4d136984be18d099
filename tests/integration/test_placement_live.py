"""A job placed on a live fabric: rails discovered in-band from ibsim, two of them crossed at one host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricd.cli import main
from tests.ibsim import Fabric, Net

UNITS, HOSTS, RAILS = 2, 4, 2
CROSSED = "gpu003"


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    net = Net()
    spines = [net.switch(f"SPINE-{s + 1}", 8) for s in range(2)]
    for unit in range(UNITS):
        leaves = [net.switch(f"LEAF-{unit + 1}-{rail + 1}", 8) for rail in range(RAILS)]
        for number in range(HOSTS):
            host = f"gpu{unit * HOSTS + number + 1:03d}"
            order = leaves[::-1] if host == CROSSED else leaves
            for rail, leaf in enumerate(order):
                net.link(leaf, net.host(f"{host} mlx5_{rail}"), number + 1)
        for leaf in leaves:
            for spine in spines:
                net.link(leaf, spine)
    with Fabric(net, opensm=False) as running:
        yield running


@pytest.fixture
def config(fabric: Fabric, tmp_path: Path) -> str:
    file = tmp_path / "fabricd.toml"
    file.write_text(
        f'[topology]\nmad_socket = "{fabric.socket_name}"\nmad_host = "{fabric.hosts[0]}"\n'
        "[api]\nport = 1\n[placement]\nrefine_seconds = 0\n"  # nothing listens on port 1: no heat, no verdicts
    )
    return str(file)


def test_place_on_the_live_fabric(config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"nodes": 4, "tp": 16}))
    words = ["place", "--topology", "live", "--request", str(request), "--config", config, "--json"]
    assert main(words) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["rank_order"] == ["gpu005", "gpu006", "gpu007", "gpu008"]
    assert [entry["node"] for entry in plan["fabric"]["excluded_nodes"]] == [CROSSED]
    assert plan["fabric"]["excluded_nodes"][0]["why"].startswith("crossed_rail")
    saved = tmp_path / "plan.json"
    saved.write_text(json.dumps(plan))
    check = ["place", "check", "--plan", str(saved), "--topology", "live", "--config", config, "--json"]
    assert main([*check, "--hosts", "gpu[005-008]"]) == 0
    capsys.readouterr()
    assert main([*check, "--hosts", "gpu[001-004]"]) == 3
    findings = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert findings["rails"]["verdict"] == "fail" and CROSSED in findings["rails"]["nodes"]


def test_export_of_the_live_fabric(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "export", "--format", "nccl", "--node", CROSSED, "--config", config]) == 0
    assert "NCCL_IB_HCA==mlx5_1:1:0:0,mlx5_0:1:1:0" in capsys.readouterr().out
    assert main(["topo", "export", "--format", "slurm-tree", "--config", config]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "SwitchName=su1 Nodes=gpu[001-004]" in lines and "SwitchName=su2 Nodes=gpu[005-008]" in lines
