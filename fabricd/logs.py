"""Log lines on stderr: text for people, JSON for collectors. A traceback only at level debug: one line is what an operator reads."""

from __future__ import annotations

import json
import logging
import sys
import time

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class TextFormatter(logging.Formatter):
    """``2026-12-01T10:00:00.123Z warning transport.publisher: …``"""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname.lower()} {_room(record)}: {_message(self, record)}"


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, room, message and, at level debug, the exception."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": _time(record), "level": record.levelname.lower(), "room": _room(record), "message": _message(self, record),
        }  # fmt: skip
        return json.dumps(document, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _room(record: logging.LogRecord) -> str:
    return record.name.removeprefix("fabricd.")


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        error = record.exc_info[1]
        text = f"{text.splitlines()[0]}: {record.exc_info[0].__name__}: {error}"
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            text = f"{text}\n{formatter.formatException(record.exc_info)}"
    return text


def set_up(log_format: str, level: str) -> None:
    """Send all logging of this process to stderr. ``log_format`` text or json; ``level`` a key of LEVELS."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for chatty in ("httpx", "httpcore", "uvicorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
