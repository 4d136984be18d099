"""What really happens in the simulated fabric, for comparing: written beside its faces, never used by them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from fabricd.flow.labels import build_label
from fabricd.flow.paths import path_of
from fabricd.flow.recorder import Recorder
from fabricd.flow.staging import Scene
from fabricd.model.ident import format_guid

KEPT_WINDOWS = 600
KEPT_MESSAGES = 100_000
EVERY_S = 5.0


class Truth:
    """Keeps the exact record of the last windows and writes it as one JSON document, renewed while the scene runs."""

    def __init__(self, scene: Scene, path: Path) -> None:
        self.path = path
        self._scene = scene
        self._recorder = Recorder(scene.model, scene.window_s)
        self._started_ns = time.time_ns()
        self._dropped = 0
        self._due = scene.window_s
        self._next_write = 0.0
        self._writer = 0  # process id of the copy that is writing
        graph = scene.model.graph
        self._nodes = {
            str(index): {"guid": format_guid(guid), "name": graph.topology.nodes[guid].name}
            for index, guid in enumerate(graph.guids)
        }

    def advance(self) -> None:
        """Close the windows that are over; every few seconds the document is written again."""
        while self._scene.model.engine.now >= self._due - 1e-9:
            self._recorder.close_window()
            self._due += self._scene.window_s
        if time.monotonic() >= self._next_write and self._writer_is_done():
            self._next_write = time.monotonic() + EVERY_S
            self._write_aside()
        extra = len(self._recorder.windows) - KEPT_WINDOWS
        if extra > 0:
            del self._recorder.windows[:extra]
            self._dropped += extra
        messages = self._scene.model.messages.all
        if len(messages) > 2 * KEPT_MESSAGES:
            del messages[:KEPT_MESSAGES]

    def _write_aside(self) -> None:
        """Write from a copy of this process: on large fabrics it takes seconds, and the faces must not wait for it."""
        self._writer = os.fork()
        if self._writer == 0:
            try:
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # sockets of the faces must not live on in the copy
                os.nice(10)
                self.write()
            finally:
                os._exit(0)

    def _writer_is_done(self) -> bool:
        if self._writer and os.waitpid(self._writer, os.WNOHANG)[0]:
            self._writer = 0
        return self._writer == 0

    def close(self) -> None:
        """Wait for the copy that may still be writing."""
        if self._writer:
            os.waitpid(self._writer, 0)
            self._writer = 0

    def write(self) -> None:
        """Replace the document."""
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(self.document(), separators=(",", ":")), encoding="utf-8")
        temporary.rename(self.path)

    def document(self) -> dict[str, Any]:
        """The label of what was recorded so far: times count from ``started_at_ns`` + ``offset_ns``; nodes by index."""
        scene = self._scene
        header = {
            "scenario": scene.name,
            "seed": scene.seed,
            "started_at_ns": self._started_ns,
            "offset_ns": round(self._dropped * scene.window_s * 1e9),
            "trouble": {"begin_s": scene.begin, "end_s": scene.end},
            "intent": scene.intent,
            "nodes": self._nodes,
        }
        paths = [path_of(scene.model, flow) for flow in range(scene.model.engine.flows.n)]
        return build_label(scene.model, self._recorder, paths, header, scene.wrong, scene.quiet_by_design)
