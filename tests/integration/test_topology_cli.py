"""``fabricd topo`` on files: documents, exit status, one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data" / "topology"
TRAPS = str(DATA / "ibnetdiscover_traps.txt")


def topo(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fabricd", "topo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_the_document_of_show() -> None:
    result = topo("show", "--from-ibnetdiscover", TRAPS, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert {"nodes", "links", "rails", "faults", "rejects"} <= document.keys()
    node = next(node for node in document["nodes"] if node["name"] == "gpu001 mlx5_0")
    assert (node["guid"], node["type"], node["host"]) == ("0xb8599f0300000106", "ca", "gpu001")
    link = next(link for link in document["links"] if ["0xb8599f0300000106", 1] in (link["a"], link["b"]))
    assert (link["a"], link["b"], link["rate_gbps"]) == (["0xb8599f0300000100", 1], ["0xb8599f0300000106", 1], 400.0)
    assert document["rails"][0]["hosts"] == ["gpu001", "gpu002"]
    assert {fault["kind"] for fault in document["faults"]} == {"crossed_rail", "factory_name", "short_uplinks"}
    assert document["rejects"] == []


def test_bad_lines_are_in_the_document_and_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_text(Path(TRAPS).read_text() + "what is this\n")
    result = topo("show", "--from-ibnetdiscover", str(path), "--json")
    assert result.returncode == 0
    (reject,) = json.loads(result.stdout)["rejects"]
    assert (reject["kind"], reject["what"]) == ("line", "what is this")
    assert reject["where"].startswith("dump:")


def test_a_golden_file_and_three_for_differences(tmp_path: Path) -> None:
    golden, broken = tmp_path / "golden.json", tmp_path / "broken.txt"
    assert topo("export", "--format", "golden", "--output", str(golden), "--from", TRAPS).returncode == 0
    same = topo("diff", str(golden), "--from", TRAPS)
    assert (same.returncode, same.stdout) == (0, "as in the golden file\n")
    lines = [
        line for line in Path(TRAPS).read_text().splitlines() if not line.startswith("[61]") or "000104" not in line
    ]
    broken.write_text("\n".join(line for line in lines if not line.startswith('[1]\t"S-b8599f0300000100"[61]')) + "\n")
    changed = topo("diff", str(golden), "--from", str(broken), "--json")
    assert changed.returncode == 3
    found = json.loads(changed.stdout)["differences"]
    assert {difference["kind"] for difference in found} == {"missing_link"}
    assert found[0]["was"] == [["0xb8599f0300000100", 61], ["0xb8599f0300000104", 1]]
    config = tmp_path / "fabricd.toml"
    config.write_text(f'[topology]\ngolden = "{golden}"\nsource = "{broken}"\n')
    by_config = topo("diff", "--config", str(config))
    assert by_config.returncode == 3
    assert "missing link" in by_config.stdout


@pytest.mark.parametrize("name", ["json", "golden", "svg", "slurm-tree", "slurm-yaml", "k8s-labels", "nccl"])
def test_every_format_is_written(name: str) -> None:
    result = topo("export", "--format", name, "--from", TRAPS)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "--from", "/absent"), "/absent: No such file"),
        (("show", "--from", "/etc/hostname"), "not a topology"),
        (("show", "--from-ibnetdiscover", "/etc/hostname"), "no line of it is ibnetdiscover output"),
        (("export", "--format", "pdf", "--from", TRAPS), "--format pdf: unknown format"),
        (("export", "--output", "/absent/file", "--from", TRAPS), "--output /absent/file"),
        (("diff", "--from", TRAPS), "give a GOLDEN file"),
        (("diff", "/etc/hostname", "--from", TRAPS), "not a topology"),
    ],
)
def test_wrong_use_is_one_line_and_status_two(arguments: tuple[str, ...], says: str) -> None:
    result = topo(*arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_no_such_fabric_is_a_failure_in_one_line() -> None:
    result = topo("show", "--mad-socket", "nobody-is-there")
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "nobody-is-there" in result.stderr


def test_a_roce_fabric_from_its_links_file() -> None:
    result = topo("show", "--from", str(DATA / "roce.toml"))
    assert result.returncode == 0
    assert result.stdout.startswith("fabric roce-lab: 4 switches, 2 hosts with 2 adapters, 6 links")
