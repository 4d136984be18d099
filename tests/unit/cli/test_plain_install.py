"""The plain install is what a node agent needs: other commands say which extra they lack, in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fabricd.commands.extras import what_is_missing

EXTRAS = (
    "numpy", "scipy", "starlette", "uvicorn", "sse_starlette", "httpx", "prometheus_client", "iotcore", "yaml", "ortools",
    "pysnmp", "textual", "grafanalib",
)  # fmt: skip
# A module that is None in sys.modules is one that is not installed.
PLAIN = f"import sys\nfor name in {EXTRAS!r}: sys.modules[name] = None\nfrom fabricd.cli import main\nsys.exit(main(sys.argv[1:]))\n"


def plain(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PLAIN, *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize(
    "arguments",
    [
        ["aggregator"], ["api"], ["collector"], ["controller"], ["policy", "check"], ["replay", "."], ["sweep"],
        ["topo", "show"], ["twin", "quiet"], ["up"], ["verdicts", "--replay", "."], ["record", "r", "--seconds", "1"],
        ["place", "simulate"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_command_of_an_extra_names_it(arguments: list[str], tmp_path: Path) -> None:
    done = plain(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"fabricd: {arguments[0]} needs the Python package "), done.stderr
    assert "extra aggregator" in done.stderr or arguments[0] == "place"
    assert done.stderr.count("\n") == 1


def test_what_the_plain_install_can_do(tmp_path: Path) -> None:
    once = plain("agent", "--once", "--json", cwd=tmp_path)
    assert (once.returncode, once.stderr) == (0, "")
    assert set(json.loads(once.stdout)) >= {"node", "devices", "rejects"}
    for arguments in (
        ["config", "check"],
        ["config", "show"],
        ["completion", "bash"],
        ["model", "allreduce", "--nodes", "2"],
    ):
        done = plain(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), arguments


def test_the_extra_of_a_package() -> None:
    assert "extra aggregator or placement (" in what_is_missing("numpy.linalg", "sweep")
    assert "'.[metrics]'" in what_is_missing("prometheus_client", "agent")
    assert "'.[snmp]'" in what_is_missing("pysnmp", "x")
    assert "package pyyaml," in what_is_missing("yaml", "x")
    assert what_is_missing("nobody", "x") == "x needs the Python package nobody, which is not installed"
