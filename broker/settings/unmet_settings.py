"""Settings that a single broker cannot satisfy: what fails because of them, and which value to set.

Owns the conditions and the wording. Must not know when the lines are logged, or where settings are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from config import broker_properties as properties
from config.broker import BrokerConfig
from config.definition import Property
from config.topic_properties import MIN_INSYNC_REPLICAS
from protocol.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

NAMED_TOPICS_MAX: Final = 10

# The feature that fails if an internal topic needs more replicas than the cluster has brokers.
_OF_NEW_TOPICS: Final[tuple[tuple[str, Property[int], str], ...]] = (
    (
        GROUP_METADATA_TOPIC,
        properties.OFFSETS_TOPIC_REPLICATION_FACTOR,
        f"{GROUP_METADATA_TOPIC} cannot be created, and consumer groups fail with COORDINATOR_NOT_AVAILABLE",
    ),
    (
        TRANSACTION_STATE_TOPIC,
        properties.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        f"{TRANSACTION_STATE_TOPIC} cannot be created, and transactions fail with COORDINATOR_NOT_AVAILABLE",
    ),
    (
        TRANSACTION_STATE_TOPIC,
        properties.TRANSACTION_STATE_LOG_MIN_ISR,
        f"nothing can be written to {TRANSACTION_STATE_TOPIC}, and transactions fail with COORDINATOR_NOT_AVAILABLE",
    ),
)
_OF_ALL_TOPICS: Final[tuple[tuple[Property[int], str], ...]] = (
    (
        properties.DEFAULT_REPLICATION_FACTOR,
        "topics without a replication factor of their own cannot be created, automatically created ones among them",
    ),
    (properties.MIN_INSYNC_REPLICAS, "writes with acks=all fail with NOT_ENOUGH_REPLICAS"),
)


def unmet_by_one_broker(config: BrokerConfig, topics: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Return a line for each setting that needs more than one broker. `topics` has the overrides of each topic."""
    for topic, row, consequence in _OF_NEW_TOPICS:
        if topic not in topics and config[row] > 1:
            yield _line(row, config[row], consequence)
    for row, consequence in _OF_ALL_TOPICS:
        if config[row] > 1:
            yield _line(row, config[row], consequence)
    key = MIN_INSYNC_REPLICAS.name
    if unwritable := sorted(name for name, overrides in topics.items() if int(overrides.get(key, "1")) > 1):
        names = ", ".join(unwritable[:NAMED_TOPICS_MAX])
        others = len(unwritable) - NAMED_TOPICS_MAX
        yield (
            f"{key} of topics cannot be met by one broker: writes with acks=all to {names}"
            f"{f' and {others} more' if others > 0 else ''} fail with NOT_ENOUGH_REPLICAS; "
            f"set {key}=1 on these topics with kafka-configs"
        )


def _line(row: Property[int], value: int, consequence: str) -> str:
    return f"{row.name}={value} cannot be met by one broker: {consequence}; set {row.name}=1"
