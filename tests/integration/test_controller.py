"""The controller as a process: verdicts by a real broker, killed at every step, approvals, latches, the dead man's timer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabricd.config.broker import BrokerConfig
from fabricd.control.journal import SqliteJournal
from fabricd.control.life import Life
from fabricd.model import topics
from fabricd.model.action import IN_FORCE, Action
from fabricd.model.ident import format_guid
from fabricd.model.verdict import Verdict
from fabricd.transport.post import post
from tests import brokers
from tests.integration.controller_child import FileAdapter, Scene

PATIENCE_S = 60.0
TOKEN = "a-long-random-token"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    found = brokers.mosquitto(tmp_path_factory.mktemp("broker"))
    found.start()
    yield found
    found.kill()


def wait(what: Callable[[], Any], name: str = "") -> Any:
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        pause.wait(0.05)
    raise AssertionError(f"did not happen: {name or what}")


def send(broker: brokers.Broker, topic: str, payload: bytes, *, retain: bool = True) -> None:
    asyncio.run(post(BrokerConfig(port=broker.port), topic, payload, retain=retain))


def verdict(scene: Scene, name: str) -> Verdict:
    now = time.time_ns()
    return Verdict(
        id=name,
        start=now - 10**9,
        detected_at=now,
        roots=[(format_guid(scene.root[0]), scene.root[1])],
        cause="incast",
        victims=[(format_guid(guid), port) for guid, port in scene.senders],
        confidence=0.9,
    )


class Process:
    """The child and its directory."""

    def __init__(self, directory: Path, broker: brokers.Broker) -> None:
        self.directory, self.broker = directory, broker
        self.adapter = FileAdapter(directory)
        self.scene = Scene(self.adapter)
        (directory / "token").write_text(TOKEN)
        self.child: subprocess.Popen[bytes] | None = None

    def start(self, die_at: str = "-", mode: str = "enforce") -> subprocess.Popen[bytes]:
        module = "tests.integration.controller_child"
        command = [sys.executable, "-m", module, str(self.directory), str(self.broker.port), die_at, mode]
        (self.directory / "ready").unlink(missing_ok=True)
        with (self.directory / "log").open("ab") as log:
            self.child = subprocess.Popen(command, stderr=log)
        return self.child

    def ready(self) -> None:
        wait((self.directory / "ready").exists, "ready")

    def stop(self) -> None:
        assert self.child is not None
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(30) == 0

    @property
    def journal(self) -> SqliteJournal:
        return SqliteJournal(self.directory / "journal.db")

    def actions(self) -> list[Action]:
        journal = self.journal
        try:
            return journal.actions()
        finally:
            journal.close()

    def states(self) -> list[str]:
        return [action.state for action in self.actions()] if (self.directory / "journal.db").exists() else []


@pytest.fixture
def process(tmp_path: Path, broker: brokers.Broker) -> Iterator[Process]:
    found = Process(tmp_path, broker)
    name = topics.verdict("default", "v1")
    send(broker, name, msgspec.json.encode(verdict(found.scene, "v1")))
    yield found
    send(broker, name, b"")
    if found.child is not None and found.child.poll() is None:
        found.child.kill()
        found.child.wait()


def retained(broker: brokers.Broker, pattern: str) -> dict[str, Any]:
    done = subprocess.run(
        ["mosquitto_sub", "-p", str(broker.port), "-t", pattern, "-v", "--retained-only", "-W", "1"],
        capture_output=True, text=True,
    )  # fmt: skip
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return {topic.rsplit("/", 1)[1]: json.loads(body) for topic, _, body in lines if body and body != "(null)"}


def test_from_a_verdict_to_a_verified_action_and_back(process: Process) -> None:
    process.start()
    wait(lambda: "verified" in process.states(), "verified")
    held = process.adapter.values()
    assert len(held) == 3
    (action,) = process.actions()
    assert [event.state for event in action.events] == ["admitted", "intended", "pushed", "confirmed", "verified"]
    assert len(action.events[1].data["sends"]) == 3
    documents = wait(
        lambda: {
            k: v for k, v in retained(process.broker, "fabricd/default/actions/+").items() if v["kind"] == "action"
        },
        "published",
    )
    assert documents[action.id]["state"] in ("confirmed", "verified")
    send(process.broker, topics.control("default", "revert-all"), b'{"who": "test"}', retain=False)
    wait(lambda: process.adapter.values() == {}, "everything undone")
    wait(lambda: "freeze" in process.journal.latches(), "frozen afterwards")
    assert process.states() == ["released"]
    process.stop()


def test_it_listens_nowhere(process: Process) -> None:
    child = process.start()
    wait(lambda: "verified" in process.states(), "verified")
    inodes = set()
    for link in Path(f"/proc/{child.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(str(link.readlink()).removeprefix("socket:[").rstrip("]"))
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{child.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening.add(fields[9])
    assert not inodes & listening
    process.stop()


# The adapter reads three levers, then pushes each: a read to compare, the write, and reads all back.
# (Every single step is killed in the unit tests of the life; here the process is real.)
POINTS = ["push:1", "pushed:2", "after:intended", "before:confirmed", "after:confirmed", "after:verified"]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_step_nothing_is_left_without_a_lease(process: Process, point: str) -> None:
    child = process.start(point)
    assert child.wait(PATIENCE_S) == -signal.SIGKILL
    send(process.broker, topics.verdict("default", "v1"), b"")  # the trouble is over: nothing new is proposed
    process.start()
    process.ready()
    wait(lambda: not set(process.states()) & {"intended", "pushed"}, "reconciled")
    standing = [action for action in process.actions() if action.state in IN_FORCE]
    if standing:
        assert [action.state for action in standing] in (["confirmed"], ["verified"])
        assert standing[0].lease_until_ns > time.time_ns()
        assert len(process.adapter.values()) == 3
    else:
        wait(lambda: process.adapter.values() == {}, "nothing left on the device")
    process.stop()


def test_without_a_controller_the_timer_undoes_what_is_past_its_lease(process: Process) -> None:
    (process.directory / "lease").write_text("8")
    child = process.start("after:verified")
    assert child.wait(PATIENCE_S) == -signal.SIGKILL
    assert len(process.adapter.values()) == 3
    journal = process.journal
    life = Life(journal, {"ufm": process.adapter})
    (action,) = journal.actions()
    wait(lambda: time.time_ns() > action.lease_until_ns, "the lease runs out")
    (process.directory / "unreachable").touch()
    assert [one.state for one in life.expire()] == ["stuck"]
    (process.directory / "unreachable").unlink()
    assert [one.state for one in life.expire()] == ["rolled_back"]
    assert process.adapter.values() == {}
    journal.close()


def test_advise_waits_for_a_person(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    process.start(mode="advise")
    wait(lambda: "admitted" in process.states(), "waiting for approval")
    (action,) = process.actions()
    assert process.adapter.values() == {}
    request = topics.request("default", action.id)
    wrong = {"verb": "approve", "who": "mallory", "token": "guess"}
    send(process.broker, request, json.dumps(wrong).encode(), retain=False)
    right = {"verb": "approve", "who": "alice", "token": TOKEN}
    send(process.broker, request, json.dumps(right).encode(), retain=False)
    wait(lambda: "verified" in process.states(), "approved and done")
    assert len(process.adapter.values()) == 3
    assert "wrong token" in (process.directory / "log").read_text()
    config = process.directory / "fabricd.toml"
    config.write_text(f'[control]\njournal = "{process.directory / "journal.db"}"\n')
    from fabricd.cli import main

    assert main(["actions", "rollback", action.id[:6], "--config", str(config)]) == 0
    assert f"{action.id}: rolled_back" in capsys.readouterr().out
    assert process.adapter.values() == {}
    assert main(["actions", "show", action.id, "--config", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "rolled back by" in shown
    assert "sends set" in shown
    process.stop()


def test_observe_writes_nothing_and_keeps_a_ledger(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    process.start(mode="observe")

    def followed() -> Any:
        if not (process.directory / "journal.db").exists():
            return None
        journal = process.journal
        try:
            return [entry for entry in journal.ledger() if entry.get("intervals", 0) >= 10]
        finally:
            journal.close()

    (entry,) = wait(followed, "ten intervals watched")
    assert entry["what"] == "would act"
    assert entry["stall_after"] == pytest.approx(0.6)
    assert len(entry["would_send"]) == 3
    assert process.states() == []
    assert process.adapter.values() == {}
    process.stop()


def test_pause_by_file_stops_new_actions(process: Process) -> None:
    (process.directory / "latches").mkdir()
    (process.directory / "latches" / "pause").touch()
    process.start()

    def waiting() -> Any:
        if not (process.directory / "journal.db").exists():
            return None
        journal = process.journal
        try:
            return [entry for entry in journal.ledger() if "latched: pause" in entry.get("refused", ())]
        finally:
            journal.close()

    wait(waiting, "refused by the guard")
    assert process.adapter.values() == {}
    config = process.directory / "fabricd.toml"
    config.write_text(
        f'[control]\njournal = "{process.directory / "journal.db"}"\nlatch_dir = "{process.directory / "latches"}"\n'
    )
    from fabricd.cli import main

    assert main(["resume", "--config", str(config)]) == 0
    wait(lambda: "verified" in process.states(), "goes on after resume")
    process.stop()
