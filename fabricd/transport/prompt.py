"""aiomqtt's client, writing at once where the socket takes it.

By default every packet goes by way of the event loop: wake it through its pipe, watch the socket for room, write, stop
watching. For one frame a second that is most of the cost of sending, and nearly always the socket has room.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiomqtt


class PromptClient(aiomqtt.Client):
    """Only what the socket does not take at once waits for the event loop."""

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        """Called by paho when a packet is queued: in the loop's thread by publish, in another one by connect."""
        if _in_loop(self._loop):
            client.loop_write()
            if not client.want_write():
                return
        super()._on_socket_register_write(client, userdata, sock)


def _in_loop(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
