"""Ensures that a job's topics exist before Spark uses them.

Spark's source fails if a topic is missing. Its sink makes the broker auto-create a topic with default settings,
which is wrong for an output that must be compacted. So this module creates topics with the settings that the job
needs, has the brokers make them, or waits for them.

Owns creation and waiting. Must not know which topics a job has.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.skeleton.errors import JobError

_LOG = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 30
_POLL_INTERVAL_S = 1
_POLLS_BETWEEN_WARNINGS = 30


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that a job needs, and how to create it."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


Preparation = Callable[[Mapping[str, str], list[TopicSpec]], None]
"""Returns once the topics exist; `client` has the settings of a client (`client_settings`), here and below."""


def topic_preparation(creates: bool, creates_automatically: bool) -> Preparation:
    """Return what the flags `--create-topics` and `--auto-create-topics` ask for."""
    if creates:
        return create_topics
    return auto_create_topics if creates_automatically else wait_for_topics


def create_topics(client: Mapping[str, str], specs: list[TopicSpec]) -> None:
    """Create those of `specs` that do not exist; existing topics stay unchanged.

    Raises KafkaException with the broker's reason if one cannot be created.
    """
    admin = AdminClient(dict(client))
    absent = _missing(admin, specs)
    missing = list({spec.name: spec for spec in specs if spec.name in absent}.values())
    if not missing:
        return
    requests = [
        NewTopic(spec.name, spec.partitions, spec.replication_factor, config=dict(spec.config)) for spec in missing
    ]
    for future in admin.create_topics(requests, operation_timeout=_REQUEST_TIMEOUT_S).values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another job may have made it since then
                raise


def auto_create_topics(client: Mapping[str, str], specs: list[TopicSpec]) -> None:
    """Have the brokers make those of `specs` that do not exist, if they do so, and return once all exist."""
    admin = AdminClient(dict(client))
    for name in _missing(admin, specs):
        # A request for a topic by name makes it, where auto.create.topics.enable is true.
        admin.list_topics(name, timeout=_REQUEST_TIMEOUT_S)
    wait_for_topics(client, specs)


def wait_for_topics(client: Mapping[str, str], specs: list[TopicSpec]) -> None:
    """Return once all of `specs` exist; until then logs the missing ones."""
    admin = AdminClient(dict(client))
    polls = 0
    while missing := _missing(admin, specs):
        if polls % _POLLS_BETWEEN_WARNINGS == 0:
            _LOG.warning("waiting for missing topics: %s (--create-topics makes them)", ", ".join(sorted(missing)))
        polls += 1
        time.sleep(_POLL_INTERVAL_S)


def partition_count(client: Mapping[str, str], topic: str) -> int:
    """Return the number of partitions of an existing topic."""
    admin = AdminClient(dict(client))
    return len(admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics[topic].partitions)


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    """Return the partitions of a topic. Raises JobError if it does not exist, or cannot be read."""
    found = consumer.list_topics(topic, _REQUEST_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise JobError(f"{topic} cannot be read: {found.error.str()}")
    return sorted(found.partitions)


def record_count(client: Mapping[str, str], topic: str) -> int:
    """Return the number of offsets between the first and the last record of `topic`."""
    consumer = Consumer({**client, "group.id": "spark-job-record-count"})
    try:
        bounds = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), _REQUEST_TIMEOUT_S)
            for partition in partitions_of(consumer, topic)
        ]
    finally:
        consumer.close()
    return sum(end - start for start, end in bounds)


def topic_names(client: Mapping[str, str]) -> list[str]:
    """Return the names of all topics, sorted. Raises ConnectionError if no broker responds."""
    return sorted(_names(AdminClient(dict(client))))


def _missing(admin: AdminClient, specs: list[TopicSpec]) -> set[str]:
    return {spec.name for spec in specs} - _names(admin)


def _names(admin: AdminClient) -> set[str]:
    # This lists all topics, because a request for one by name could make the broker auto-create it.
    try:
        return set(admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics)
    except KafkaException as error:
        raise ConnectionError(f"no broker responded: {error.args[0].str()}") from error
