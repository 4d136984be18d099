"""The client that writes at once: what the socket does not take must still arrive."""

from __future__ import annotations

import asyncio

import pytest

from fabricd.transport.prompt import PromptClient


class SlowBroker:
    """Accepts one client and reads nothing of what it publishes until told; acknowledges the first publish."""

    def __init__(self) -> None:
        self.read_now = asyncio.Event()
        self.received = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(b"\x20\x02\x00\x00")  # CONNACK
        await self.read_now.wait()
        first = await reader.readexactly(1)
        length = shift = 0
        while True:
            (byte,) = await reader.readexactly(1)
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        body = await reader.readexactly(length)
        topic = int.from_bytes(body[:2], "big")
        self.received = length - topic - 4
        assert first == b"\x32"
        writer.write(b"\x40\x02" + body[2 + topic : 4 + topic])  # PUBACK
        await reader.read()
        writer.close()


@pytest.mark.parametrize("size", [10, 16 << 20])
def test_a_payload_the_socket_does_not_take_at_once(size: int) -> None:
    async def run() -> int:
        broker = SlowBroker()
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with PromptClient("127.0.0.1", port) as client:
            publishing = asyncio.create_task(client.publish("t", bytes(size), qos=1, timeout=60))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not publishing.done()
            broker.read_now.set()
            await publishing
        server.close()
        return broker.received

    assert asyncio.run(run()) == size
