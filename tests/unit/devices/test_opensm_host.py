"""The machine of opensm: what may be touched, the log as acknowledgement, the pipe to another machine."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricd.devices.base import DeviceError, DeviceUnreachable
from fabricd.devices.opensm.far_end import RemoteHost, answer, serve
from fabricd.devices.opensm.host import LocalHost
from fabricd.devices.opensm.sweep import sweep


class LoggingHost(LocalHost):
    """Every SIGHUP makes the log say ``says``."""

    says = "12:00:00 -> SUBNET UP\n"

    def hangup(self) -> None:
        with self.log.open("a") as file:
            file.write(self.says)


@pytest.fixture
def host(tmp_path: Path) -> LoggingHost:
    (tmp_path / "opensm.log").write_text("old SUBNET UP\n")
    (tmp_path / "conf").mkdir()
    return LoggingHost(log=tmp_path / "opensm.log", directories=(tmp_path / "conf",), readable=(tmp_path / "guid2lid",))


def test_files_outside_are_neither_read_nor_written(host: LoggingHost, tmp_path: Path) -> None:
    inside = str(tmp_path / "conf" / "a")
    host.write(inside, "text\n")
    assert host.read(inside) == "text\n"
    assert host.read(str(tmp_path / "guid2lid")) is None
    for path in (str(tmp_path / "b"), f"{tmp_path}/conf/../b", "a", "/etc/passwd", str(tmp_path / "guid2lid")):
        with pytest.raises(DeviceError):
            host.write(path, "x")
    for path in (str(tmp_path / "b"), f"{tmp_path}/conf/../b", "/etc/passwd"):
        with pytest.raises(DeviceError):
            host.read(path)
    assert [path.name for path in (tmp_path / "conf").iterdir()] == ["a"]
    host.write(inside, None)
    assert host.read(inside) is None


def test_a_file_keeps_its_mode(host: LoggingHost, tmp_path: Path) -> None:
    path = tmp_path / "conf" / "a"
    path.write_text("x")
    path.chmod(0o640)
    host.write(str(path), "y")
    assert path.stat().st_mode & 0o777 == 0o640


def test_only_new_lines_of_the_log_acknowledge(host: LoggingHost) -> None:
    assert sweep(host, "hangup", "option", 1).said == "12:00:00 -> SUBNET UP"
    host.says = "nothing\n"
    with pytest.raises(DeviceError, match="no 'SUBNET UP' within") as late:
        sweep(host, "hangup", "option", 0.05)
    assert late.value.reached
    host.says = "x -> Errors during initialization\n"
    with pytest.raises(DeviceError, match="Errors during"):
        sweep(host, "hangup", "option", 1)
    host.says = "osm_qos_policy_validate: ERR AC10: Default qos-level (default) not defined.\n-> SUBNET UP\n"
    assert sweep(host, "hangup", "qos_policy", 1).complaints == ("ERR AC10: Default qos-level (default) not defined.",)
    assert sweep(host, "hangup", "partition", 1).complaints == ()


def test_a_log_begun_anew_is_read_from_its_start(host: LoggingHost) -> None:
    mark = host.mark()
    host.log.unlink()
    host.log.write_text("fresh\npart")
    text, mark = host.log_since(mark)
    assert text == "fresh\n"
    with host.log.open("a") as file:
        file.write("ly\n")
    assert host.log_since(mark)[0] == "partly\n"


def test_a_process_id_of_something_else_gets_no_signal(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    host = LocalHost(log=tmp_path / "log", pid_file=tmp_path / "pid")
    with pytest.raises(DeviceUnreachable, match="not opensm"):
        host.hangup()
    (tmp_path / "pid").write_text("no number")
    with pytest.raises(DeviceUnreachable, match="no running process"):
        host.hangup()
    with pytest.raises(DeviceError, match="is not one of"):
        host.console("exit")


@given(st.binary(max_size=60))
def test_any_question_has_an_answer(line: bytes) -> None:
    out = json.loads(answer(LocalHost(log=Path("/none")), line))
    assert "error" in out


def test_the_far_end_serves_until_the_pipe_closes(host: LoggingHost, tmp_path: Path) -> None:
    path = str(tmp_path / "conf" / "a")
    questions = [
        {"do": "write", "path": path, "text": "x"},
        {"do": "read", "path": path},
        {"do": "run", "command": "id"},
    ]
    out = io.BytesIO()
    serve(host, io.BytesIO(b"".join(json.dumps(q).encode() + b"\n" for q in questions)), out)
    written, read, unknown = map(json.loads, out.getvalue().splitlines())
    assert written == {} and read == {"text": "x"} and "not one of" in unknown["error"]


def test_a_broken_pipe_repeats_what_is_harmless_only() -> None:
    """``cat`` echoes: not an answer of ours; ``false`` ends at once."""
    host = RemoteHost(["false"])
    with pytest.raises(DeviceUnreachable) as lost:
        host.write("/x", "y")
    assert lost.value.reached
    with pytest.raises(DeviceUnreachable) as lost:
        host.read("/x")
    assert not lost.value.reached
    host.close()
    silent = RemoteHost([sys.executable, "-c", "import sys; sys.stdin.read()"], timeout_s=0.3)
    with pytest.raises(DeviceUnreachable, match="no answer within"):
        silent.read("/x")
    silent.close()
    with pytest.raises(DeviceUnreachable):
        RemoteHost(["/no/such/ssh"]).mark()


def test_one_pipe_is_shared_by_threads(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\nfrom fabricd.devices.opensm.far_end import serve\nfrom fabricd.devices.opensm.host import LocalHost\n"
        f"host = LocalHost(log=pathlib.Path('/none'), directories=(pathlib.Path({str(tmp_path)!r}),))\n"
        "serve(host, sys.stdin.buffer, sys.stdout.buffer)"
    )
    host = RemoteHost([sys.executable, "-c", program])
    for number in range(4):
        host.write(str(tmp_path / f"f{number}"), str(number))
    wrong: list[int] = []

    def read(number: int) -> None:
        for _ in range(20):
            if host.read(str(tmp_path / f"f{number}")) != str(number):
                wrong.append(number)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    host.close()
    assert wrong == []
