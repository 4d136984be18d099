"""One retained message and away: for commands that report once and end."""

from __future__ import annotations

import asyncio

import aiomqtt

from fabricd.config.broker import BrokerConfig
from fabricd.errors import FabricdError
from fabricd.transport.login import read_password, tls_context

TIMEOUT_S = 10.0


async def post(broker: BrokerConfig, topic: str, payload: bytes, *, retain: bool = True) -> None:
    """Publish at QoS 1 and wait for the broker's acknowledgement. Raises FabricdError when it cannot be delivered."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            aiomqtt.Client(
                broker.host,
                broker.port,
                username=broker.username,
                password=read_password(broker),
                tls_context=tls_context(broker),
                keepalive=broker.keepalive,
                timeout=TIMEOUT_S,
            ) as client,
        ):
            await client.publish(topic, payload, qos=1, retain=retain)
    except (aiomqtt.MqttError, OSError, TimeoutError) as error:
        raise FabricdError(f"broker {broker.host}:{broker.port}: {error or 'no answer'}") from None
