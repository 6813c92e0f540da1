"""The ids of topics (KIP-516), by which a topic differs from a deleted one of the same name.

Owns the request. Must not know who compares ids.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger(__name__)
_TIMEOUT_S: Final = 10.0
_NO_ID: Final = "A" * 22
"""The zeros that brokers without ids send."""


def topic_ids(client: Mapping[str, Any], topics: Collection[str]) -> dict[str, str]:
    """Return the ids of topics; those are missing that the brokers do not name in time.

    `client` has the settings of an administration client, as the client library has them.
    """
    wanted = sorted(topics)
    found: dict[str, str] = {}
    admin = AdminClient(dict(client))  # its requests end when nothing refers to it
    described = admin.describe_topics(TopicCollection(wanted), request_timeout=_TIMEOUT_S)
    for topic in wanted:
        try:
            found[topic] = str(described[topic].result().topic_id)
        except KafkaException as error:
            _LOG.warning("the id of topic %s is not known: %s", topic, error.args[0].str())
    return {topic: each for topic, each in found.items() if each != _NO_ID}
