"""``doctor --fix``: writes files of its own, and nothing else; shows them first, journals them, takes them back.

Class A only. Commands that could touch running queue pairs or need a reboot (classes B and C) are shown, never run. On
Kubernetes with the GPU operator the driver's life cycle belongs to the operator: nothing about modules is written there.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricd.doctor.report import CheckResult, Context
from fabricd.errors import BAD_DOCUMENT, FabricdError

JOURNAL = "/var/lib/fabricd/doctor-fix.jsonl"
OPERATOR_MARKS = ("/run/nvidia/validations", "/run/nvidia/driver")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of the doctor's: path, content, and why it is written."""

    path: str
    content: str
    why: str


def plan(context: Context, results: list[CheckResult]) -> list[OwnFile]:
    """The files that would help, given the verdicts."""
    verdict = {result.id: result.verdict for result in results}
    files = []
    if verdict.get("limits.memlock") in ("warn", "fail"):
        files.append(
            OwnFile(
                "/etc/security/limits.d/60-fabricd-memlock.conf",
                "# Registering RDMA memory counts against locked memory.\n* soft memlock unlimited\n* hard memlock unlimited\n",
                "limits.memlock",
            )
        )
    operator = any(context.tree.exists(mark) for mark in OPERATOR_MARKS)
    module = context.tree.exists("/sys/module/nvidia_peermem") or context.tree.exists("/sys/module/nvidia")
    if verdict.get("gdr.peermem") == "warn" and verdict.get("gdr.dmabuf") == "warn" and module and not operator:
        files.append(
            OwnFile(
                "/etc/modprobe.d/60-fabricd.conf",
                "# nvidia_peermem registers only when ib_core is there first.\nsoftdep nvidia-peermem pre: ib_core nvidia\n",
                "gdr.peermem",
            )
        )
        files.append(
            OwnFile(
                "/etc/modules-load.d/60-fabricd.conf", "nvidia-peermem\n", "gdr.peermem: DMA-BUF is not usable here"
            )
        )
    return [file for file in files if context.tree.read(file.path).text != file.content.strip()]


class FixJournal:
    """Append-only JSON lines, fsynced before a file is touched; what is undone is marked, never removed."""

    def __init__(self, root: Path, path: str = JOURNAL) -> None:
        self.root = root
        self.path = self._at(path)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _append(self, record: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), **record}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[dict[str, Any]]:
        """Every whole record; a torn last line (power loss while writing) is left out."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        out = []
        for line in lines:
            try:
                out.append(json.loads(line))
            except BAD_DOCUMENT:
                continue
        return out

    def apply(self, files: list[OwnFile]) -> list[str]:
        """Write each file atomically; returns what was done. Raises FabricdError when one cannot be written."""
        done = []
        try:
            for file in files:
                target = self._at(file.path)
                before = target.read_text(encoding="utf-8") if target.exists() else None
                self._append(
                    {"op": "write", "path": file.path, "content": file.content, "before": before, "why": file.why}
                )
                _write(target, file.content)
                done.append(f"wrote {file.path} ({file.why})")
        except OSError as error:
            raise FabricdError(f"--fix: {error.filename}: {error.strerror}") from None
        return done

    def undo(self) -> tuple[list[str], list[str]]:
        """(undone, conflicts): a file that no longer holds what was written is somebody else's now and stays."""
        open_writes: dict[str, dict[str, Any]] = {}
        for record in self.records():
            path = str(record.get("path"))
            if record.get("op") == "write":
                # The oldest content wins: a second write of ours must not make our own first one the state to return to.
                first = open_writes.get(path, record)
                open_writes[path] = record | {"before": first.get("before")}
            elif record.get("op") == "undo":
                open_writes.pop(path, None)
        undone, conflicts = [], []
        try:
            for path, record in open_writes.items():
                target = self._at(path)
                now = target.read_text(encoding="utf-8") if target.exists() else None
                if now is not None and now != record["content"]:
                    conflicts.append(f"{path} was changed by someone else: left alone")
                    continue
                if record["before"] is None:
                    target.unlink(missing_ok=True)
                else:
                    _write(target, record["before"])
                self._append({"op": "undo", "path": path})
                undone.append(f"{'restored' if record['before'] is not None else 'removed'} {path}")
        except OSError as error:
            raise FabricdError(f"--undo: {error.filename}: {error.strerror}") from None
        return undone, conflicts


def _write(target: Path, content: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.fabricd")
    with partial.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)
