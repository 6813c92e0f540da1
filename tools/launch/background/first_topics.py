"""The topics and the first records of a broker for tests, from the command line of `milena up`.

Doing it twice changes nothing: an existing topic stays as it is, and records are appended to an empty topic only.

Owns the syntax of topics and seeds, and their way to a broker. Must not know how the broker was started.
"""

from __future__ import annotations

import base64
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tools.base.command_line import InvalidSettingsError
from tools.client import client_library as library
from tools.client.admin_client import LATEST, AdminClient, raise_for
from tools.client.bootstrap import parse_bootstrap

PARTITIONS_MAX = 10_000
FLUSH_TIMEOUT_S = 60
BUFFER_POLL_S = 0.1
_PRODUCER_SETTINGS = {
    "enable.idempotence": True,  # in the order of the file
    "partitioner": "murmur2_random",  # the partitions to which kafka-clients, franz-go and kafkajs send these keys
    "log_level": 0,  # the delivery of each record says what fails
}


DeliveryCallback = Callable[["library.KafkaError | None", "library.Message"], None]


class Topic(NamedTuple):
    """A topic to create."""

    name: str
    partitions: int


class Seed(NamedTuple):
    """A file of records that was checked, and the topic they are for."""

    topic: str
    path: Path
    record_count: int
    partition_max: int
    """The highest partition that a record names; 0 if none does."""


class Done(NamedTuple):
    """What became of one topic or seed."""

    subject: str
    text: str


class TopicsFailed(Exception):  # noqa: N818 - named as what happened
    """A topic cannot be as the command line says. The text names it."""


def parse_topic(text: str) -> Topic:
    """Return the topic of `name` or `name:partitions`. Raises ArgumentTypeError."""
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isdecimal() and 1 <= int(count) <= PARTITIONS_MAX)):
        raise ArgumentTypeError(f"{text!r}: expected name or name:partitions, with 1 to {PARTITIONS_MAX} partitions")
    return Topic(name, int(count) if colon else 1)


def read_seed(text: str) -> Seed:
    """Read `topic=file`, or a file whose name is that of the topic. Raises InvalidSettingsError with file and line."""
    from milena_broker.testing.rows import messages_of_file  # it imports asyncio, for which only seeds are worth it

    topic, equals, name = text.rpartition("=")
    path = Path(name)
    try:
        partitions = [message["partition"] or 0 for message in messages_of_file(path)]
    except OSError as error:
        raise InvalidSettingsError(f"cannot read the seed {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidSettingsError(str(error)) from error
    return Seed(topic if equals else path.stem, path, len(partitions), max(partitions, default=0))


def prepare(bootstrap_servers: str, topics: Sequence[Topic], seeds: Sequence[Seed]) -> Iterator[Done]:
    """Create the topics that are missing, fill those that are empty, and yield what was done.

    Raises TopicsFailed, and what `AdminClient` raises.
    """
    with AdminClient(parse_bootstrap(bootstrap_servers)) as admin:
        partitions = _partitions(admin, [*(topic.name for topic in topics), *(seed.topic for seed in seeds)])
        for topic in topics:
            if topic.name in partitions:
                if partitions[topic.name] != topic.partitions:
                    raise TopicsFailed(
                        f"topic {topic.name} exists with {partitions[topic.name]} partitions, not {topic.partitions}"
                    )
                yield Done(f"topic {topic.name}", f"exists, partitions: {topic.partitions}")
        of_seeds = {seed.topic: Topic(seed.topic, 1) for seed in seeds}
        for topic in (of_seeds | {topic.name: topic for topic in topics}).values():
            if topic.name not in partitions:
                _create(admin, topic)
                partitions[topic.name] = topic.partitions
                yield Done(f"topic {topic.name}", f"created, partitions: {topic.partitions}")
        for seed in seeds:
            _check_partitions(seed, partitions[seed.topic])
        offsets = {seed.topic: _end_offsets(admin, seed.topic, partitions[seed.topic]) for seed in seeds}
    for seed in seeds:
        if offset := offsets[seed.topic]:
            yield Done(f"seed {seed.path}", f"left out, because {seed.topic} has been written to: offset {offset}")
        else:
            _append(bootstrap_servers, seed)
            yield Done(f"seed {seed.path}", f"appended to {seed.topic}, records: {seed.record_count}")


def _check_partitions(seed: Seed, count: int) -> None:
    """Raises TopicsFailed before anything is appended, so that a corrected seed finds the topic empty."""
    if seed.partition_max >= count:
        raise TopicsFailed(
            f"seed {seed.path} has records for partition {seed.partition_max}, but the partitions of topic "
            f"{seed.topic} are 0 to {count - 1}"
        )


def _partitions(admin: AdminClient, names: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions of the topics that exist."""
    found = admin.metadata(names).topics if names else []
    return {topic.name: len(topic.partitions) for topic in found if topic.name and not topic.error_code}


def _create(admin: AdminClient, topic: Topic) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name, num_partitions=topic.partitions, replication_factor=1, assignments=[], configs=[]
            )
        ]
    )
    (result,) = admin.call_controller(
        request, CreateTopicsResponse, lambda response: [result.error_code for result in response.topics]
    ).topics
    if result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise TopicsFailed(result.error_message or f"{topic.name} is no name of a topic")
    raise_for(result.error_code, result.error_message)


def _end_offsets(admin: AdminClient, topic: str, partitions: int) -> int:
    """Return the sum of the end offsets of a topic; 0 if nothing was ever appended. Raises KafkaError."""
    total = 0
    for end in admin.list_offsets({(topic, index): LATEST for index in range(partitions)}).values():
        if isinstance(end, KafkaError):
            raise end
        total += end
    return total


def _append(bootstrap_servers: str, seed: Seed) -> None:
    from milena_broker.testing.rows import messages_of_file

    producer = library.Producer({"bootstrap.servers": bootstrap_servers, **_PRODUCER_SETTINGS})
    failures: list[str] = []

    def delivered(error: library.KafkaError | None, _message: library.Message) -> None:
        if error is not None:
            failures.append(error.str())

    for number, message in enumerate(messages_of_file(seed.path), 1):
        try:
            _send(producer, seed.topic, message, delivered)
        except library.KafkaException as error:
            failures.append(f"record {number}: {error.args[0].str()}")
            break
    left = producer.flush(FLUSH_TIMEOUT_S)
    if failures or left:
        reason = failures[0] if failures else f"{left} records are not acknowledged after {FLUSH_TIMEOUT_S} s"
        raise TopicsFailed(f"seed {seed.path}: {reason}")


def _send(producer: library.Producer, topic: str, message: Mapping[str, Any], delivered: DeliveryCallback) -> None:
    optional = {"partition": message["partition"], "timestamp": message["timestamp_ms"]}
    while True:
        try:
            producer.produce(
                topic,
                key=_decoded(message["key"]),
                value=_decoded(message["value"]),
                headers=[(name, _decoded(value)) for name, value in message["headers"]],
                on_delivery=delivered,
                **{name: value for name, value in optional.items() if value is not None},
            )
        except BufferError:
            producer.poll(BUFFER_POLL_S)
        else:
            return


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
