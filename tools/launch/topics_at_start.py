"""Creates the topics that a container's environment names, once its broker serves.

Owns the request. Must not know where the names come from.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from broker.requests.local_client import LocalClient
from broker.server import Server
from config.broker import BrokerConfig
from config.broker_properties import SUPER_USERS
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tools.launch.container_environment import NewTopic

logger = logging.getLogger("kafka.server.KafkaServer")

TIMEOUT_MS = 30_000


async def create(server: Server, config: BrokerConfig, topics: Sequence[NewTopic]) -> None:
    """Create topics, and log each with the reason if it could not be created. An existing one is left as it is."""
    client = LocalClient(server.dispatcher, server.clock, config.listeners[0].name)
    if super_users := config[SUPER_USERS].split(";"):
        client.channel.principal = super_users[0].strip() or client.channel.principal
    request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics], timeout_ms=TIMEOUT_MS)
    for result in (await client.ask(request)).topics:
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            logger.info("created topic %s of %d partitions", result.name, result.num_partitions)
        elif code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            logger.error("cannot create topic %s: %s", result.name, result.error_message or code.name)


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
