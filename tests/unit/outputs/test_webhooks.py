"""Alerts reach receivers that fail, hang and lie; nothing is told twice; what waits is on disk."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fabricd.config.alerts import AlertsConfig, AlertTarget
from fabricd.errors import FabricdError, UsageError
from fabricd.model.verdict import Verdict
from fabricd.outputs.alert import alert_of, alertmanager_body, json_body, slack_body
from fabricd.outputs.alert_queue import AlertQueue
from fabricd.outputs.webhooks import Alerts, sign


def verdict(name: str = "v1", **more: Any) -> Verdict:
    base: dict[str, Any] = {
        "id": name, "start": 1_700_000_000_000_000_000, "detected_at": 1_700_000_002_000_000_000, "cause": "incast",
        "roots": [("0x0000000000000020", 7)], "root_labels": [{"faceplate": "1/4/1", "cable": "MCP7Y00"}],
        "victims": [("0x0000000000000021", p) for p in range(30)], "jobs_hurt": ["llm"], "priority": 3, "confidence": 0.9,
    }  # fmt: skip
    return Verdict(**{**base, **more})


class Receiver:
    """Answers with the statuses given, then 200; keeps what it was sent."""

    def __init__(self, statuses: list[int]) -> None:
        self.statuses, self.got = statuses, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.got.append((self.path, dict(self.headers), body))
                status = outer.statuses.pop(0) if outer.statuses else 200
                self.send_response(status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.got: list[tuple[str, dict[str, str], bytes]] = []

    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.got]


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def make(*statuses: int) -> Receiver:
        made.append(Receiver(list(statuses)))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def wait_for(done: Callable[[], bool], seconds: float) -> None:
    pause = threading.Event()
    for _ in range(int(seconds * 50)):
        if done():
            return
        pause.wait(0.02)


def run_until(alerts: Alerts, done: Callable[[], bool], seconds: float = 20) -> None:
    async def main() -> None:
        task = asyncio.create_task(alerts.run())
        try:
            async with asyncio.timeout(seconds):
                await asyncio.to_thread(wait_for, done, seconds)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def config(tmp_path: Path, *targets: AlertTarget, **more: Any) -> AlertsConfig:
    return AlertsConfig(targets=list(targets), queue_dir=str(tmp_path / "queue"), retry_max_s=1, **more)


def test_firing_once_and_resolved_once(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    hook = receiver()
    alerts = Alerts(config(tmp_path, AlertTarget(kind="json", url=hook.url)))
    alerts.tell(verdict())
    alerts.tell(verdict(victims=[], confidence=0.95))  # the same tree, a little later
    run_until(alerts, lambda: len(hook.got) == 1)
    alerts.tell(verdict(end=1_700_000_050_000_000_000))
    alerts.tell(verdict(end=1_700_000_050_000_000_000))
    run_until(alerts, lambda: len(hook.got) == 2)
    assert [(b["status"], b["fingerprint"]) for b in hook.bodies()] == [("firing", "v1"), ("resolved", "v1")]
    assert len(alerts.receivers[0].queue) == 0


def test_a_changed_root_is_news(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    hook = receiver()
    alerts = Alerts(config(tmp_path, AlertTarget(kind="json", url=hook.url)))
    alerts.tell(verdict())
    run_until(alerts, lambda: len(hook.got) == 1)
    alerts.tell(verdict(roots=[("0x0000000000000022", 1)]))
    run_until(alerts, lambda: len(hook.got) == 2)


def test_what_is_over_before_anybody_was_told_is_not_told(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    hook = receiver()
    alerts = Alerts(config(tmp_path, AlertTarget(kind="json", url=hook.url)))
    alerts.tell(verdict(end=1_700_000_050_000_000_000))
    assert len(alerts.receivers[0].queue) == 0


def test_failures_are_retried_and_refusals_are_final(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    hook = receiver(500, 503, 200, 422)
    alerts = Alerts(config(tmp_path, AlertTarget(kind="json", url=hook.url)))
    alerts.tell(verdict("v1"))
    run_until(alerts, lambda: len(hook.got) >= 3 and len(alerts.receivers[0].queue) == 0)
    alerts.tell(verdict("v2"))
    run_until(alerts, lambda: len(alerts.receivers[0].queue) == 0)
    assert alerts.receivers[0].counts == {"failed": 2, "sent": 1, "refused": 1}


def test_the_queue_outlives_the_process(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/"
    first = Alerts(config(tmp_path, AlertTarget(kind="json", url=dead)))
    first.tell(verdict("v1"))
    first.tell(verdict("v2"))
    run_until(first, lambda: first.receivers[0].counts["failed"] > 0)
    hook = receiver()
    second = Alerts(config(tmp_path, AlertTarget(kind="json", url=hook.url)))
    run_until(second, lambda: len(hook.got) == 2)
    assert [b["fingerprint"] for b in hook.bodies()] == ["v1", "v2"]


def test_a_receiver_that_hangs_holds_only_itself(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        hook = receiver()
        slow = AlertTarget(kind="json", url=f"http://127.0.0.1:{deaf.getsockname()[1]}/", timeout_s=0.2)
        alerts = Alerts(config(tmp_path, slow, AlertTarget(kind="slack", url=hook.url)))
        alerts.tell(verdict())
        run_until(alerts, lambda: len(hook.got) == 1 and alerts.receivers[0].counts["failed"] >= 1)
        assert len(alerts.receivers[0].queue) == 1


def test_requests_are_signed(tmp_path: Path, receiver: Callable[..., Receiver]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    hook = receiver()
    alerts = Alerts(config(tmp_path, AlertTarget(kind="json", url=hook.url, secret_file=str(secret))))
    alerts.tell(verdict())
    run_until(alerts, lambda: len(hook.got) == 1)
    _, headers, body = hook.got[0]
    low = {name.lower(): value for name, value in headers.items()}
    assert low["x-fabricd-signature"] == sign(b"sesame", low["x-fabricd-timestamp"], body)
    assert b"sesame" not in body


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [("secret_file", "", "is empty"), ("secret_file", None, "No such file"), ("template", "{", "not JSON")],
)
def test_unusable_files_are_named(tmp_path: Path, key: str, text: str | None, said: str) -> None:
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError, match=key) as caught:
        Alerts(config(tmp_path, AlertTarget(kind="json", url="http://127.0.0.1:1/", **{key: str(file)})))  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_the_queue_is_bounded_replaces_and_survives_damage(tmp_path: Path) -> None:
    queue = AlertQueue(tmp_path / "q", keep=3)
    for number in range(5):
        queue.put(alert_of(verdict(f"v{number}")))
    assert (len(queue), queue.dropped) == (3, 2)
    queue.put(alert_of(verdict("v4", end=1_700_000_050_000_000_000)))
    assert len(queue) == 3
    head = queue.head()
    assert head is not None
    head[0].write_bytes(b"{torn")
    again = AlertQueue(tmp_path / "q", keep=3)
    following = again.head()
    assert following is not None
    assert following[1].fingerprint == "v3"
    assert again.damaged == 1
    (tmp_path / "plain").write_text("")
    with pytest.raises(FabricdError, match=r"alerts\.queue_dir"):
        AlertQueue(tmp_path / "plain" / "q", keep=1)


def test_bodies_name_root_cable_victims_and_jobs() -> None:
    alert = alert_of(verdict(), "http://page:9470/")
    (body,) = alertmanager_body(alert)
    assert body["labels"]["root"] == "0x0000000000000020/7"
    assert "faceplate 1/4/1" in body["annotations"]["root"]
    assert "and 10 more" in body["annotations"]["victims"]
    assert body["annotations"]["jobs"] == "llm"
    assert body["generatorURL"] == "http://page:9470/?verdict=v1"
    assert "endsAt" not in body
    assert "llm" in slack_body(alert)["text"]
    assert "resolved" in slack_body(alert_of(verdict(end=1_700_000_050_000_000_000)))["text"]
    filled = json_body(alert, {"title": "{cause} at {root}", "tags": ["{severity}", 3]})
    assert filled == {"title": "incast at 0x0000000000000020/7", "tags": ["warning", 3]}
