"""Reads the records that a topic has at the time of the call, without Spark: markers, pairs of offsets, results."""

from collections.abc import Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.topics import partitions_of

_TIMEOUT_S = 60
# A broker answers a fetch at the end of a partition after this time; only that response ends the read.
_WAIT_AT_END_MS = 5


def stored_messages(client: Mapping[str, str], topic: str) -> Iterator[Message]:
    """Yield the committed records of all partitions up to their ends, in order per partition.

    `client` is settings of librdkafka's clients. Raises JobError if the topic cannot be read.
    """
    settings = {
        "group.id": "spark-job-stored",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": _WAIT_AT_END_MS,
    }
    consumer = Consumer({**client, **settings})
    try:
        # With the metadata at hand, the client does not wait for its next periodic search for the leader.
        open_partitions = set(partitions_of(consumer, topic))
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in open_partitions])
        while open_partitions:
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise JobError(f"{topic} cannot be read: no response within {_TIMEOUT_S} s")
            if message.error() is None:
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise JobError(f"{topic} cannot be read: {message.error().str()}")
    finally:
        consumer.close()
