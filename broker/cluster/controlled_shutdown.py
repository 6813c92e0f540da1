"""Move the leadership off this broker before it stops, so that clients have new leaders immediately.

Owns the attempts (`controlled.shutdown.*`). Must not know which broker is the controller, or how requests reach it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from base.topic_partition import TopicPartition, partition_name
from broker.network.outgoing import PeerUnavailable
from protocol.errors import KafkaError

logger = logging.getLogger("kafka.server.KafkaServer")

NAMED_PARTITIONS_MAX = 10


async def move_leadership(
    ask: Callable[[], Awaitable[Collection[TopicPartition]]],
    *,
    attempts_max: int,
    backoff_ms: int,
    timeout_ms: int,
) -> bool:
    """Ask the controller until this broker leads nothing that another one could lead; return whether that succeeded.

    `ask()` returns the partitions that this broker still leads. One call may take `timeout_ms`.
    """
    for attempt in range(attempts_max):
        if attempt:
            await asyncio.sleep(backoff_ms / 1000)
        try:
            remaining = await asyncio.wait_for(ask(), timeout_ms / 1000)
        except (KafkaError, PeerUnavailable) as error:
            logger.warning("the controller did not move the leadership of this broker: %s", error)
        except TimeoutError:
            logger.warning("the controller did not respond to the controlled shutdown within %d ms", timeout_ms)
        else:
            if not remaining:
                logger.info("controlled shutdown succeeded")
                return True
            named = ", ".join(map(partition_name, sorted(remaining)[:NAMED_PARTITIONS_MAX]))
            logger.info("still leading %d partitions, among them %s", len(remaining), named)
    logger.warning("stopping without a controlled shutdown after %d attempts", attempts_max)
    return False
