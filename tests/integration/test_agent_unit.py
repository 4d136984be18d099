"""The agent's systemd unit: valid, sandboxed, and honest about how long it takes to stop."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd/fabricd-agent.service"
FABRICD = Path(sys.executable).with_name("fabricd")


def test_unit_is_valid(tmp_path: Path) -> None:
    """verify also wants the program to be there, so it gets the one under test."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/fabricd", str(FABRICD)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=60)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_exposure(tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", UNIT],
        capture_output=True,
        text=True,
        timeout=60,
    )
    match = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert match is not None, done.stderr
    assert float(match[1]) <= 3.5


def test_sysusers(tmp_path: Path) -> None:
    users = ROOT / "systemd/sysusers.d/fabricd-agent.conf"
    (tmp_path / "etc").mkdir()
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", users], check=True, capture_output=True, timeout=60)
    assert "fabricd-agent" in (tmp_path / "etc/passwd").read_text()
    assert re.search(r"^User=fabricd-agent$", UNIT.read_text(), re.MULTILINE)
