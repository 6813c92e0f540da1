"""Records whose timestamp Spark cannot hold: its times are microseconds in 64 bits, those of Kafka milliseconds.

Spark's source reads the timestamp of every record, so one in nanoseconds fails the query, without naming the record.
Owns finding it. Must not know which job reads the topics.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_jobs.skeleton.errors import cause_of

TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // 1000
OVERFLOW: Final = "long overflow"
"""What Spark reports."""
NAMED_MAX: Final = 10
TIMEOUT_S: Final = 30


def explained(error: BaseException, client: Mapping[str, str], read_topics: Callable[[], Sequence[str]]) -> str:
    """Return why Spark failed; if a timestamp overflowed, with the first such record of each partition that it reads.

    `read_topics` asks for the topics, and may raise OSError.
    """
    cause = cause_of(error)
    if OVERFLOW not in str(error):
        return cause
    try:
        found = first_unreadable(client, read_topics())
    except (KafkaException, OSError) as failure:
        return f"{cause}; a timestamp is too large for Spark, and its record cannot be found: {failure}"
    places = [f"topic {each.topic}, partition {each.partition}, offset {each.offset}" for each in found[:NAMED_MAX]]
    if len(found) > NAMED_MAX:
        places.append(f"{len(found) - NAMED_MAX} more partitions")
    if not places:
        return cause
    return (
        f"{OVERFLOW}: Spark holds timestamps up to {TIMESTAMP_MS_MAX} ms, and these records have later ones: "
        f"{'; '.join(places)}. Start after them with a new --checkpoint and --starting-offsets"
    )


def first_unreadable(client: Mapping[str, str], topics: Sequence[str]) -> list[TopicPartition]:
    """Return for each partition the first offset with a timestamp that is too large. Raises KafkaException."""
    consumer = Consumer({**client, "group.id": "spark-job-unreadable", "enable.auto.commit": False})
    try:
        partitions = [
            TopicPartition(name, number, TIMESTAMP_MS_MAX + 1)
            for name in topics
            for number in consumer.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        ]
        found = consumer.offsets_for_times(partitions, timeout=TIMEOUT_S) if partitions else []
        return [each for each in found if each.error is None and each.offset >= 0]
    finally:
        consumer.close()
