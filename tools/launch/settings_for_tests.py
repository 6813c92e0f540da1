"""The settings of brokers for tests that differ from Kafka's: groups form immediately, internal topics are small.

Owns these settings. Must not know how such a broker is started.
"""

from collections.abc import Mapping
from typing import Final

SETTINGS_FOR_TESTS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "true",
    "controlled.shutdown.retry.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
