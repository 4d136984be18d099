"""Follows a few retained topics for as long as it runs; losing the broker only means reading them again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

import aiomqtt

from fabricd.config.broker import BrokerConfig
from fabricd.transport.login import read_password, tls_context

log = logging.getLogger(__name__)


async def watch(broker: BrokerConfig, filters: Sequence[str], take: Callable[[str, bytes], None]) -> None:
    """Call ``take(topic, payload)`` for every message until cancelled. Raises UsageError for unusable TLS or password files."""
    tls, password = tls_context(broker), read_password(broker)
    pause = 0.25
    while True:
        try:
            async with aiomqtt.Client(
                broker.host,
                broker.port,
                username=broker.username,
                password=password,
                tls_context=tls,
                keepalive=broker.keepalive,
            ) as client:
                for pattern in filters:
                    await client.subscribe(pattern, qos=1)
                pause = 0.25
                async for message in client.messages:
                    payload = message.payload
                    take(str(message.topic), payload if isinstance(payload, bytes) else str(payload or "").encode())
        except aiomqtt.MqttError as error:
            log.info("broker %s:%d: %s", broker.host, broker.port, error)
        await asyncio.sleep(random.uniform(0.05, pause))
        pause = min(pause * 2, broker.reconnect_max)
