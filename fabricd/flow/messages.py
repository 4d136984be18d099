"""Messages: what a flow was asked to send, and when each piece had fully arrived."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from fabricd.flow.graph import IntArray
from fabricd.flow.sources import Flows

_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True)
class Message:
    """One message. ``end`` is the flow's delivered byte count at which it is complete; ``done_s`` None while it is not."""

    flow: int
    size: int
    request_s: float
    end: int
    start_s: float | None = None  # when it reached the head of its flow
    done_s: float | None = None


class MessageLog:
    """Pending messages per flow in order, and all messages in order of request."""

    def __init__(self, keep: bool = True) -> None:
        self.keep = keep
        self.all: list[Message] = []
        self._pending: dict[int, deque[Message]] = {}

    def offer(self, flows: Flows, flow: int, size: int, now: float) -> None:
        """Queue ``size`` bytes on ``flow`` as one message."""
        flows.offered[flow] += size
        flows.backlog[flow] += size
        message = Message(flow, size, now, int(flows.offered[flow]))
        queue = self._pending.setdefault(flow, deque())
        if not queue:
            message.start_s = now
            flows.watch[flow] = message.end
        queue.append(message)
        if self.keep:
            self.all.append(message)

    def settle(self, flows: Flows, done: IntArray, now: float) -> list[Message]:
        """Close the messages of ``done`` flows that are complete; returns them."""
        closed: list[Message] = []
        for flow in done.tolist():
            queue = self._pending[flow]
            delivered = int(flows.delivered[flow])
            while queue and queue[0].end <= delivered:
                message = queue.popleft()
                message.done_s = now
                closed.append(message)
                if queue:
                    queue[0].start_s = now
            flows.watch[flow] = queue[0].end if queue else _NEVER
        return closed
