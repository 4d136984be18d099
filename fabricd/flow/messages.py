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
    """Pending messages per flow in order, and all messages in order of request.

    Queue pairs pipeline their messages. With ``serial`` a flow sends one message at a time: the next waits until the last
    has arrived and :meth:`begin_next` is called (the acknowledgement came back).
    """

    def __init__(self, keep: bool = True, serial: bool = False) -> None:
        self.keep, self.serial = keep, serial
        self.all: list[Message] = []
        self._pending: dict[int, deque[Message]] = {}

    def offer(self, flows: Flows, flow: int, size: int, now: float) -> None:
        """Queue ``size`` bytes on ``flow`` as one message."""
        flows.offered[flow] += size
        message = Message(flow, size, now, int(flows.offered[flow]))
        queue = self._pending.setdefault(flow, deque())
        if not self.serial:
            flows.backlog[flow] += size
        queue.append(message)
        if len(queue) == 1:
            self.begin_next(flows, flow, now)
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
                if queue and not self.serial:
                    self.begin_next(flows, flow, now)
            if self.serial or not queue:
                flows.watch[flow] = _NEVER
        return closed

    def begin_next(self, flows: Flows, flow: int, now: float) -> bool:
        """Start the flow's first pending message if it has not started; True when it did."""
        queue = self._pending.get(flow)
        if not queue or queue[0].start_s is not None:
            return False
        message = queue[0]
        message.start_s = now
        flows.watch[flow] = message.end
        if self.serial:
            flows.backlog[flow] += message.size
        return True
