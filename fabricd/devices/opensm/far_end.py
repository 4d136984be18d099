"""Both ends of the pipe to opensm on another machine: one JSON line asks, one answers, over ssh's standard input and output.

The far end is the only command the controller's key may run there (``command="fabricd sm-host …"`` in authorized_keys). It knows a
handful of verbs, files in the directories it was started with, and the console commands of ``host.COMMANDS``: nothing else.
"""

from __future__ import annotations

import json
import select
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from fabricd.devices.base import DeviceError, DeviceUnreachable
from fabricd.devices.opensm.host import MOST_BYTES, Host, Mark

MOST_LINE = 2 * MOST_BYTES
# Asked twice by accident these do no harm, so a broken pipe is opened again and the question repeated.
REPEATABLE = frozenset({"read", "mark", "log", "identity"})


def answer(host: Host, line: bytes) -> bytes:
    """The answer to one line; never raises."""
    try:
        question = json.loads(line)
        verb = _VERBS[question["do"]]
        out = verb(host, question)
    except DeviceError as error:
        out = {"error": str(error), "reached": error.reached, "unreachable": isinstance(error, DeviceUnreachable)}
    except (ValueError, KeyError, TypeError):
        out = {"error": f"not one of {', '.join(_VERBS)} with its arguments", "reached": False, "unreachable": False}
    return json.dumps(out).encode() + b"\n"


def _log(host: Host, question: Mapping[str, Any]) -> dict[str, Any]:
    text, mark = host.log_since(Mark(int(question["inode"]), int(question["size"])))
    return {"text": text, "inode": mark.inode, "size": mark.size}


def _mark(host: Host, question: Mapping[str, Any]) -> dict[str, Any]:
    mark = host.mark()
    return {"inode": mark.inode, "size": mark.size}


def _write(host: Host, question: Mapping[str, Any]) -> dict[str, Any]:
    text = question["text"]
    if text is not None and not isinstance(text, str):
        raise TypeError
    host.write(str(question["path"]), text)
    return {}


def _hangup(host: Host, question: Mapping[str, Any]) -> dict[str, Any]:
    host.hangup()
    return {}


_VERBS: dict[str, Callable[[Host, Mapping[str, Any]], dict[str, Any]]] = {
    "read": lambda host, question: {"text": host.read(str(question["path"]))},
    "write": _write,
    "hangup": _hangup,
    "console": lambda host, question: {"text": host.console(str(question["command"]))},
    "mark": _mark,
    "log": _log,
    "identity": lambda host, question: {"text": host.identity()},
}


def serve(host: Host, questions: IO[bytes], answers: IO[bytes]) -> None:
    """Until the other side closes."""
    while line := questions.readline(MOST_LINE):
        answers.write(answer(host, line))
        answers.flush()


class RemoteHost:
    """A ``Host`` behind a command, such as ``ssh -o BatchMode=yes fabricd@ufm1``. Started when first needed and kept."""

    def __init__(self, command: Sequence[str], timeout_s: float = 10.0) -> None:
        self._command, self._timeout = list(command), timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._one = threading.Lock()

    def _ask(self, do: str, **more: Any) -> dict[str, Any]:
        with self._one:
            for last in (False, True):
                try:
                    return self._once({"do": do, **more})
                except (OSError, ValueError) as error:
                    self._end()
                    if last or do not in REPEATABLE:
                        raise DeviceUnreachable(f"{self._command[0]}: {error}", reached=do not in REPEATABLE) from None
        raise AssertionError

    def _once(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        # The answer is one line written at once; a pipe that stays silent is given up.
        poll = select.poll()  # select() knows no descriptor above 1023
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(self._timeout * 1000):
            raise OSError(f"no answer within {self._timeout:g} s")
        line = process.stdout.readline(MOST_LINE)
        if not line:
            raise OSError("the connection ended")
        out = json.loads(line)
        if not isinstance(out, dict):
            raise ValueError("an answer that is none")
        if "error" in out:
            kind = DeviceUnreachable if out.get("unreachable") else DeviceError
            raise kind(str(out["error"]), reached=bool(out.get("reached")))
        return out

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass
            self._process = None

    def close(self) -> None:
        with self._one:
            self._end()

    def read(self, path: str) -> str | None:
        text = self._ask("read", path=path)["text"]
        return None if text is None else str(text)

    def write(self, path: str, text: str | None) -> None:
        self._ask("write", path=path, text=text)

    def hangup(self) -> None:
        self._ask("hangup")

    def console(self, command: str) -> str:
        return str(self._ask("console", command=command)["text"])

    def mark(self) -> Mark:
        out = self._ask("mark")
        return Mark(int(out["inode"]), int(out["size"]))

    def log_since(self, mark: Mark) -> tuple[str, Mark]:
        out = self._ask("log", inode=mark.inode, size=mark.size)
        return str(out["text"]), Mark(int(out["inode"]), int(out["size"]))

    def identity(self) -> str:
        return str(self._ask("identity")["text"])
