"""The aggregator's MQTT 3.1.1 connection: batches in, acknowledgements when the caller says so.

A small reader of our own because ingest needs what the client libraries at hand do not give together: an acknowledgement sent only
after the message is on disk, on brokers that speak 3.1.1 only (NATS, rumqttd), and few system calls and objects per message. The
numbers are in benchmarks/results/ingest.md. Packet layout: OASIS MQTT 3.1.1, sections 2 and 3. Everything else talks through aiomqtt.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterable, Sequence

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90
PINGREQ, PINGRESP, DISCONNECT = b"\xc0\x00", 0xD0, b"\xe0\x00"
_FIRST_BUFFER = 1 << 18
CONNECT_TIMEOUT_S = 10.0
# After a small read the socket is left alone so long, or until the next acknowledgement: many messages a wake-up instead of one, for
# a delay that does not matter at one frame a second. A wake-up costs as much as a dozen messages.
COALESCE_S = 0.02
_CONNACK_TEXT = {
    1: "protocol version refused", 2: "client id refused", 3: "broker unavailable",
    4: "bad user name or password", 5: "not authorised",
}  # fmt: skip


# One PUBLISH: topic, payload, retained, packet id to acknowledge (0 at QoS 0). A plain tuple, because one is made per message. The
# payload points into the receive buffer: valid only while the batch handler runs.
Message = tuple[bytes, memoryview, bool, int]


class ConnectionLost(ConnectionError):
    """The broker refused or closed the connection, or sent what is not MQTT."""


BatchHandler = Callable[[Sequence[Message]], None]


class Subscriber(asyncio.BufferedProtocol):
    """One connection. Made by :meth:`connect`; ``closed`` ends with ConnectionLost when it breaks."""

    def __init__(self, on_batch: BatchHandler, keepalive: int, max_packet: int) -> None:
        self._on_batch = on_batch
        self._keepalive = keepalive
        self._max_packet = max_packet
        self._buffer = bytearray(_FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._connack: asyncio.Future[bool] = self._loop.create_future()
        self._suback: asyncio.Future[bytes] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._heard = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        on_batch: BatchHandler,
        *,
        client_id: str,
        subscriptions: Iterable[tuple[str, int]],
        clean_session: bool,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        keepalive: int = 30,
        max_packet: int = 64 << 20,
    ) -> Subscriber:
        """Log in and subscribe to (filter, qos). Messages may reach ``on_batch`` before this returns.

        Raises ConnectionLost or OSError.
        """
        loop = asyncio.get_running_loop()
        self: Subscriber
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, self = await loop.create_connection(
                    lambda: cls(on_batch, keepalive, max_packet), host, port, ssl=tls
                )
                try:
                    self._write(_connect_packet(client_id, clean_session, keepalive, username, password))
                    self.session_present = await self._connack
                    wanted = list(subscriptions)
                    self._write(_subscribe_packet(wanted))
                    granted = await self._suback
                    for (topic, _), qos in zip(wanted, granted, strict=True):
                        if qos > 2:
                            raise ConnectionLost(f"broker refused the subscription to {topic}")
                except BaseException:
                    self.close()
                    raise
        except TimeoutError:
            raise ConnectionLost("no answer from the broker") from None
        return self

    session_present = False

    def ack(self, mids: Iterable[int]) -> None:
        """Acknowledge QoS 1 messages of this connection; the broker may have been waiting for that."""
        self._resume()
        self._write(b"".join([b"\x40\x02" + mid.to_bytes(2, "big") for mid in mids if mid]))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send at QoS 0."""
        name = topic.encode()
        body = struct.pack(">H", len(name)) + name + payload
        self._write(bytes([PUBLISH | int(retain)]) + _length(len(body)) + body)

    def close(self) -> None:
        """Say goodbye and close; nothing is handed on after this."""
        self._on_batch = _ignore
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(DISCONNECT)
            self._transport.close()
        for timer in (self._beat, self._pause):
            if timer is not None:
                timer.cancel()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and data and not self._transport.is_closing():
            self._transport.write(data)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._schedule_beat()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc) if exc else "closed by the broker")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        end = self._filled + nbytes
        try:
            used = self._parse(end)
        except ConnectionLost as error:
            self._abort(str(error))
            return
        if used:
            # The rest of a packet moves to the front: at most one packet's worth.
            self._view[: end - used] = bytes(self._view[used:end])
        self._filled = end - used
        if self._filled == len(self._buffer):
            self._grow()
        elif nbytes < len(self._buffer) // 2 and self._connack.done() and self._suback.done():
            self._rest()

    def _rest(self) -> None:
        if self._transport is not None and self._pause is None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._pause = self._loop.call_later(COALESCE_S, self._resume)

    def _resume(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def _grow(self) -> None:
        larger = bytearray(len(self._buffer) * 2)
        larger[: self._filled] = self._view[: self._filled]
        self._buffer, self._view = larger, memoryview(larger)

    def _parse(self, end: int) -> int:
        """Handle all complete packets in buffer[:end]; returns how many bytes they took."""
        buffer, view = self._buffer, self._view
        batch: list[Message] = []
        at = 0
        while end - at >= 2:
            length, shift, body = 0, 0, at + 1
            while True:
                if body >= end:
                    length = -1
                    break
                byte = buffer[body]
                body += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 21:
                    raise ConnectionLost("not MQTT: packet length of more than four bytes")
            if length < 0:
                break
            if length > self._max_packet:
                raise ConnectionLost(f"packet of {length} bytes, allowed {self._max_packet}")
            stop = body + length
            if stop > end:
                break
            first = buffer[at]
            if first & 0xF0 == PUBLISH:
                if length < 2:
                    raise ConnectionLost("not MQTT: a message without a topic")
                start = body + 2 + (buffer[body] << 8 | buffer[body + 1])
                topic = bytes(view[body + 2 : start])
                mid = 0
                if first & 0x06:
                    mid = buffer[start] << 8 | buffer[start + 1]
                    start += 2
                if start > stop:
                    raise ConnectionLost("not MQTT: topic longer than its packet")
                batch.append((topic, view[start:stop], first & 1 == 1, mid))
            else:
                self._control(first, bytes(view[body:stop]))
            at = stop
        if batch:
            self._on_batch(batch)
        return at

    def _control(self, first: int, body: bytes) -> None:
        kind = first & 0xF0
        if kind == CONNACK and len(body) == 2:
            if body[1]:
                raise ConnectionLost(_CONNACK_TEXT.get(body[1], f"refused with code {body[1]}"))
            if not self._connack.done():
                self._connack.set_result(bool(body[0] & 1))
        elif kind == SUBACK:
            if not self._suback.done():
                self._suback.set_result(body[2:])
        elif kind not in (PINGRESP, PUBACK):
            raise ConnectionLost(f"not MQTT as a broker speaks it: packet type {kind >> 4}")

    def _schedule_beat(self) -> None:
        self._beat = self._loop.call_later(self._keepalive / 2, self._on_beat)

    def _on_beat(self) -> None:
        if self._loop.time() - self._heard > self._keepalive * 1.5:
            self._abort("nothing heard from the broker")
            return
        self._write(PINGREQ)
        self._schedule_beat()

    def _abort(self, why: str) -> None:
        self._fail(why)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        if self._beat is not None:
            self._beat.cancel()
        for future in (self._connack, self._suback, self.closed):
            if not future.done():
                future.set_exception(ConnectionLost(why))
                future.exception()  # not every one has a waiter


def _ignore(batch: Sequence[Message]) -> None:
    """Messages that arrive on a connection that is being closed: the broker has them still."""


def _length(n: int) -> bytes:
    out = bytearray()
    while True:
        n, low = n >> 7, n & 0x7F
        out.append(low | (0x80 if n else 0))
        if not n:
            return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _connect_packet(client_id: str, clean: bool, keepalive: int, username: str | None, password: str | None) -> bytes:
    flags = 0x02 if clean else 0
    payload = _text(client_id)
    if username is not None:
        flags |= 0x80
        payload += _text(username)
        if password is not None:
            flags |= 0x40
            payload += _text(password)
    body = _text("MQTT") + bytes([4, flags]) + struct.pack(">H", keepalive) + payload
    return bytes([CONNECT]) + _length(len(body)) + body


def _subscribe_packet(subscriptions: Sequence[tuple[str, int]]) -> bytes:
    body = struct.pack(">H", 1) + b"".join(_text(topic) + bytes([qos]) for topic, qos in subscriptions)
    return bytes([SUBSCRIBE]) + _length(len(body)) + body
