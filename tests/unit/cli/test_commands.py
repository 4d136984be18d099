"""The command line as a user meets it: help, exit status, one line for an error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fabricd.cli import all_commands, main


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_help_reads_well(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])  # type: ignore[attr-defined]
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: fabricd {command.name}")  # type: ignore[attr-defined]
    assert "--config" in text


def test_every_command_has_one_line_of_summary() -> None:
    names = [command.name for command in all_commands()]
    assert len(names) == len(set(names))
    for command in all_commands():
        assert command.summary
        assert "\n" not in command.summary
        assert not command.summary.endswith(".")


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["nodes", "--no-such-option"], ["completion", "fish"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: fabricd" in capsys.readouterr().err


def test_a_wrong_configuration_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text("[api]\nport = 99999\n")
    for command in (["config", "check"], ["nodes"], ["aggregator"], ["api"], ["up"], ["record", str(tmp_path / "r")]):
        assert main([*command, "--config", str(tmp_path / "c.toml")]) == 2
        errors = capsys.readouterr().err
        assert errors.count("\n") == 1
        assert "api.port = 99999" in errors


def test_the_config_option_may_stand_before_or_after_the_action(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text("[api]\nport = 4711\n")
    for arguments in (
        ["config", "--config", str(tmp_path / "c.toml"), "show"],
        ["config", "show", "--config", str(tmp_path / "c.toml")],
    ):
        assert main(arguments) == 0
        assert "port = 4711" in capsys.readouterr().out


def test_config_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    keys = {entry["key"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert keys["broker.port"]["default"] == 1883
    assert keys["broker.port"]["description"]


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "--url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == "fabricd: http://127.0.0.1:1: Connection refused; is fabricd running there?\n"
    assert main(["ports", "--url", "ftp://x"]) == 2
    assert "must begin with http" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_the_shell_takes(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in ("aggregator", "nodes", "--config"):
        assert name in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        done = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_pipe_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "fabricd", "config", "show"], stdout=write, stderr=subprocess.PIPE, text=True
    )
    os.close(write)
    assert done.stderr == ""


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fabricd", "config", "show"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, "fabricd: No space left on device\n")


@pytest.mark.parametrize(
    "command",
    [
        "topo show", "topo export", "model allreduce --nodes 2", "model transformer --busbw 1", "model busbw x",
        "actions list", "actions expire", "policy check", "place simulate", "config check", "config show",
    ],
)  # fmt: skip
def test_every_action_takes_a_configuration(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.toml")
    assert main([*command.split(), "--config", missing]) == 2
    assert capsys.readouterr().err == f"fabricd: {missing}: No such file or directory\n"


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_help_fits_a_screen(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command.name, "--help"])  # type: ignore[attr-defined]
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 140
