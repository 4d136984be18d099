"""Captures hold no secrets and give the same verdicts; fixes are journalled and taken back; the fleet view names the odd node."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fabricd.cli import main
from fabricd.doctor.capture import opened_root, write_capture
from fabricd.doctor.fix import FixJournal, OwnFile, plan
from fabricd.doctor.fleet import compare
from fabricd.doctor.run import make_context, report, run_checks
from fabricd.errors import FabricdError, UsageError
from fabricd.model.topology import Fault
from tests.unit.doctor.trees import h100

SECRETS = ["hunter2", "AKIAEXAMPLE", "tok-5f3a", "s3cr3t-limit"]


def planted(root: Path) -> str:
    tree = h100(root, ethernet=True)
    tree.process(
        4711, {"NCCL_IB_TC": "104", "DB_PASSWORD": SECRETS[0], "AWS_KEY": SECRETS[1], "XNCCL_TOKEN": SECRETS[2]}
    )
    tree.write("/etc/security/limits.d/a.conf", f"# {SECRETS[3]}\n* soft memlock unlimited\n")
    tree.write("/etc/shadow", SECRETS[0])
    tree.write("/proc/4712/environ", f"PASSWORD={SECRETS[0]}\0")
    return tree.done()


def test_a_capture_holds_no_secret_and_gives_the_same_verdicts(tmp_path: Path) -> None:
    context = make_context(planted(tmp_path / "node"))
    file = str(tmp_path / "capture.tar.gz")
    assert write_capture(context, file) > 100
    with tarfile.open(file) as archive:
        blob = b"".join(archive.extractfile(member).read() for member in archive if member.isreg())  # type: ignore[union-attr]
        names = archive.getnames()
    for secret in SECRETS:
        assert secret.encode() not in blob
    assert "etc/shadow" not in names
    assert "proc/4712/environ" not in names
    with opened_root(file) as root:
        again = report(make_context(root), run_checks(make_context(root)))
    before = report(context, run_checks(context))
    assert [(c["id"], c["verdict"], c["value"]) for c in again["checks"]] == [
        (c["id"], c["verdict"], c["value"]) for c in before["checks"]
    ]


def test_links_that_lead_out_of_a_capture_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc/cmdline").symlink_to(outside)
    assert make_context(str(root)).tree.read("/proc/cmdline").text is None


def test_what_is_not_a_capture(tmp_path: Path) -> None:
    bad = tmp_path / "x.tar.gz"
    bad.write_text("no")
    with pytest.raises(FabricdError, match="neither a directory nor a capture"), opened_root(str(bad)):
        pass


def limited(root: Path) -> str:
    tree = h100(root, pairs=1)
    tree.write("/proc/self/limits", "Max locked memory         65536            65536            bytes\n")
    return tree.done()


def test_fix_writes_its_own_files_and_takes_them_back(tmp_path: Path) -> None:
    root = limited(tmp_path)
    context = make_context(root)
    files = plan(context, run_checks(context))
    assert [file.path for file in files] == ["/etc/security/limits.d/60-fabricd-memlock.conf"]
    target = tmp_path / "etc/security/limits.d/60-fabricd-memlock.conf"
    assert not target.exists()
    journal = FixJournal(tmp_path)
    journal.apply(files)
    assert "memlock unlimited" in target.read_text()
    context = make_context(root)
    assert plan(context, run_checks(context)) == []
    assert journal.undo() == ([f"removed {files[0].path}"], [])
    assert not target.exists()
    assert journal.undo() == ([], [])


def test_undo_restores_what_was_there_and_respects_others(tmp_path: Path) -> None:
    target = tmp_path / "etc/x.conf"
    target.parent.mkdir()
    target.write_text("old")
    journal = FixJournal(tmp_path)
    journal.apply([OwnFile("/etc/x.conf", "one", "why")])
    journal.apply([OwnFile("/etc/x.conf", "two", "why")])
    assert journal.undo() == (["restored /etc/x.conf"], [])
    assert target.read_text() == "old"
    journal.apply([OwnFile("/etc/x.conf", "three", "why")])
    target.write_text("edited by a person")
    undone, conflicts = journal.undo()
    assert undone == []
    assert "left alone" in conflicts[0]
    assert target.read_text() == "edited by a person"


def test_a_torn_journal_line_costs_only_itself(tmp_path: Path) -> None:
    journal = FixJournal(tmp_path)
    journal.apply([OwnFile("/etc/x.conf", "one", "why")])
    with journal.path.open("a") as file:
        file.write('{"op": "wri')
    assert journal.undo() == (["removed /etc/x.conf"], [])


def test_the_gpu_operator_keeps_its_modules(tmp_path: Path) -> None:
    tree = h100(tmp_path, pairs=1)
    (tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version").unlink()
    tree.calls["verbs"]["mlx5_0"]["dmabuf"] = "EOPNOTSUPP"
    context = make_context(tree.done())
    assert [f.path for f in plan(context, run_checks(context))] == [
        "/etc/modprobe.d/60-fabricd.conf",
        "/etc/modules-load.d/60-fabricd.conf",
    ]
    tree.write("/run/nvidia/driver", "")
    context = make_context(tree.done())
    assert plan(context, run_checks(context)) == []


def reports(tmp_path: Path, count: int, **odd: Any) -> list[dict[str, Any]]:
    out = []
    for i in range(count):
        tree = h100(tmp_path / str(i), pairs=2)
        tree.write("/proc/sys/kernel/hostname", f"gpu{i:03d}")
        if i == 1 and odd.get("firmware"):
            nic = (tmp_path / str(i) / "sys/class/infiniband/mlx5_0/fw_ver").resolve()
            nic.write_text(odd["firmware"])
        context = make_context(tree.done())
        out.append(report(context, run_checks(context)))
    return out


def test_the_fleet_view_names_the_odd_node(tmp_path: Path) -> None:
    found = compare(
        reports(tmp_path, 4, firmware="28.30.0"), [Fault("crossed_rail", "gpu002", "rails 2 and 3 are crossed")]
    )
    assert [(d["node"], d["property"]) for d in found["differing"]] == [("gpu001", "firmware")]
    assert found["crossed_rails"] == [{"node": "gpu002", "detail": "rails 2 and 3 are crossed", "reported": True}]
    assert found["majority"]["pairing"]


def test_without_a_majority_nobody_is_named() -> None:
    def one(node: str, mtu: int) -> dict[str, Any]:
        return {
            "node": node,
            "checks": [{"id": "port.mtu", "subjects": [{"subject": "a", "value": {"active_mtu": mtu}}]}],
        }

    found = compare([one("a", 4096), one("b", 2048), one("c", 1024), one("d", 4096)])
    assert found["differing"] == []
    assert found["undecided"][0]["property"] == "active_mtu"
    assert compare([one("a", 1), one("b", 2)])["differing"] == []


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = h100(tmp_path / "bad", pairs=1, acs=0x1D).done()
    assert main(["doctor", "--root", bad, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "fabricd.doctor/1"
    good = h100(tmp_path / "good", pairs=1).done()
    assert main(["doctor", "--root", good]) == 0
    assert "29" not in capsys.readouterr().err
    assert main(["doctor", "--root", str(tmp_path / "none")]) == 2
    assert "none: No such file or directory" in capsys.readouterr().err
    assert main(["doctor", "--root", limited(tmp_path / "fix"), "--fix", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["applied"] is False
    assert not (tmp_path / "fix/etc/security").exists()
    assert main(["doctor", "--root", str(tmp_path / "fix"), "--fix", "--yes", "--json"]) == 0
    assert (tmp_path / "fix/etc/security/limits.d/60-fabricd-memlock.conf").exists()
    assert main(["doctor", "--root", str(tmp_path / "fix"), "--undo"]) == 0
    assert not (tmp_path / "fix/etc/security/limits.d/60-fabricd-memlock.conf").exists()


def test_the_live_node_is_read_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fabricd", "doctor", "--json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode in (0, 3), done.stderr
    assert len(json.loads(done.stdout)["checks"]) == 29


def test_fleet_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    for i, one in enumerate(reports(tmp_path, 4, firmware="28.30.0")):
        (folder / f"{i}.json").write_text(json.dumps(one))
    (folder / "broken.json").write_text("{")
    assert main(["doctor", "--fleet", "--reports", str(folder)]) == 3
    captured = capsys.readouterr()
    assert "gpu001: firmware" in captured.out
    assert "broken.json: left out" in captured.err


@pytest.mark.parametrize("cut", [5, 20, 200, -30])
def test_a_torn_capture_is_said_in_one_line(cut: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole.tar.gz"
    with tarfile.open(whole, "w:gz") as archive:
        for name in ("fabricd", "tests"):
            archive.add(Path(__file__).parents[3] / name / "__init__.py", name)
        info = tarfile.TarInfo("random")
        info.size = 5000
        archive.addfile(info, io.BytesIO(os.urandom(5000)))
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(UsageError) as raised, opened_root(str(torn)):
        pass
    assert str(raised.value).startswith(f"--root {torn}: neither")
    assert "\n" not in str(raised.value)
