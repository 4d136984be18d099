"""Log lines: one line each, whatever happens; JSON that parses."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from fabricd import logs


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:], _ = handlers, logger.setLevel(level)


def emit(capsys: pytest.CaptureFixture[str]) -> list[str]:
    log = logging.getLogger("fabricd.transport.publisher")
    log.info("plain %d", 7)
    log.debug("unseen")
    try:
        raise OSError(9, "Bad file descriptor")
    except OSError:
        log.exception("Exception in callback\nhandle: <something>")
    return capsys.readouterr().err.splitlines()


def test_text(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", "info")
    lines = emit(capsys)
    assert len(lines) == 2
    assert lines[0].endswith("Z info transport.publisher: plain 7")
    assert lines[1].endswith("error transport.publisher: Exception in callback: OSError: [Errno 9] Bad file descriptor")


def test_json(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("json", "info")
    documents = [json.loads(line) for line in emit(capsys)]
    assert [d["level"] for d in documents] == ["info", "error"]
    assert documents[0]["room"] == "transport.publisher"


def test_a_traceback_only_for_debugging(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("text", "debug")
    assert any("Traceback" in line for line in emit(capsys))
