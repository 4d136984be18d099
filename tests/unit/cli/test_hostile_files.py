"""Files of any content, given to every option that takes one: exit status 2 (or 1), one line, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricd.cli import main

CONTENT = {
    "empty": b"",
    "binary": bytes(range(256)) * 300,
    "deep-list": b"[" * 200_000,
    "deep-object": b'{"a":' * 200_000,
    "deep-toml": b"a = " + b"[" * 100_000,
    "null": b"null",
    "huge-number": b'{"nodes": ' + b"9" * 5000 + b"}",
    "utf16": '{"a": 1}'.encode("utf-16"),
    "long-line": b"x" * 2_000_000,
}
# FILE stands for the hostile file.
COMMANDS = (
    "config check --config FILE",
    "topo show --from FILE",
    "topo show --from-ibnetdiscover FILE",
    "topo diff FILE",
    "place --topology FILE --request FILE",
    "place check --plan FILE --topology FILE --hosts a",
    "model busbw FILE",
    "doctor --root FILE --json",
    "agent --once --json --sysfs FILE",
)


@pytest.mark.parametrize(
    ("command", "content"),
    # An empty file is a configuration.
    [(c, k) for c in COMMANDS for k in CONTENT if (c, k) != (COMMANDS[0], "empty")],
)
def test_a_hostile_file_is_one_line(
    command: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENT[content])
    assert main([str(file) if word == "FILE" else word for word in command.split()]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fabricd: ")
    assert said.err.count("\n") == 1
    assert len(said.err) < 1000


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_hostile_list_of_jobs(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = tmp_path / f"jobs{suffix}"
    jobs.write_bytes(b"[" * 200_000 if suffix == ".json" else CONTENT["deep-toml"])
    config = tmp_path / "c.toml"
    config.write_text(f'[jobs]\nsource = "file"\nfile = "{jobs}"\n')
    assert main(["jobs", "--list", "--config", str(config)]) == 2
    assert capsys.readouterr().err.startswith(f"fabricd: {jobs}: neither JSON")


@pytest.mark.parametrize(
    "command", ["record DIR --seconds -1", "record DIR --seconds nan", "sweep --interval nan", "sweep --interval inf"]
)
def test_a_number_that_is_none(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "r") if word == "DIR" else word for word in command.split()]) == 2
    option, value = command.split()[-2:]
    assert f"{option} {value}: must be" in capsys.readouterr().err
