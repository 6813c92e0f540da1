"""Resets a job, so that its next run reads everything again: reprocessing in place.

It removes the checkpoint with its state, sets the offsets of `--commit-group`, and with `--delete-output` removes
what the job has written: the records of `--output` topics, and the content of `--output-folder`. Brokers do not delete
the records of a compacted topic: there each key gets a tombstone. It refuses to run while the job does, which it sees
by the checkpoint: a running job changes a file there at least every 20 seconds (`--force` skips this check).

    spark-job reset wordcount --bootstrap-servers localhost:9092 --checkpoint var/wordcount --dry-run

The next run of the job begins at `--starting-offsets`, or with `--from-group` where this program has set the group.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pyspark.sql import SparkSession

from spark_jobs.skeleton.clients import LINGER_MS, client_settings
from spark_jobs.skeleton.commits import GroupOffsets
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.parameters import add_client_settings, add_session_settings, bare_parser, session_settings
from spark_jobs.skeleton.presence import ACTIVE_MS
from spark_jobs.skeleton.programs import run_program
from spark_jobs.skeleton.session import spark_session
from spark_jobs.skeleton.stored import stored_messages
from spark_jobs.skeleton.topics import partitions_of

_TIMEOUT_S = 30
_FULL_QUEUE_WAIT_S = 0.1

Step = tuple[str, Callable[[], None]]


def plan(spark: SparkSession, flags: argparse.Namespace) -> list[Step]:
    """Return what there is to do: the line that states each step, and the step. Raises JobError if the job runs."""
    checkpoint = Folder(spark, flags.checkpoint)
    idle_ms = time.time() * 1000 - checkpoint.newest_change_ms()
    if idle_ms < ACTIVE_MS and not flags.force:
        raise JobError(
            f"{flags.app}: {checkpoint} has changed {idle_ms / 1000:.0f} s ago: stop the job first, and try again "
            f"{ACTIVE_MS // 1000} s later, or use --force if it does not run"
        )
    steps: list[Step] = []
    if flags.delete_output:
        for topic in flags.output:
            if may_delete_records(flags, topic):
                steps.append((f"delete the records of {topic}", partial(delete_records, flags, topic)))
            else:
                text = f"write a tombstone for each key of {topic}, which is compacted"
                steps.append((text, partial(write_tombstones, flags, topic)))
        for uri in flags.output_folder:
            folder = Folder(spark, uri)
            steps.append((f"delete {uri} ({folder.size_bytes():,} bytes)", folder.delete))
    if flags.commit_group is not None:
        offsets = new_offsets(flags)
        group = GroupOffsets(_settings(flags), flags.commit_group)
        text = "; ".join(
            f"{topic}-{part} {offset}" for topic, parts in offsets.items() for part, offset in parts.items()
        )
        steps.append((f"set the offsets of group {flags.commit_group}: {text}", lambda: group.commit(offsets)))
    steps.append((f"delete checkpoint {checkpoint} ({checkpoint.size_bytes():,} bytes)", checkpoint.delete))
    return steps


def new_offsets(flags: argparse.Namespace) -> dict[str, dict[int, int]]:
    """Return the offsets that the flags name, for each partition of the inputs, within what the partition has.

    Raises JobError if a broker does not know one.
    """
    consumer = _consumer(flags)
    try:
        found: dict[str, dict[int, int]] = {}
        for topic in flags.input:
            for partition in partitions_of(consumer, topic):
                place = TopicPartition(topic, partition)
                start, end = consumer.get_watermark_offsets(place, _TIMEOUT_S)
                offset = start
                if flags.to_offset is not None:
                    offset = flags.to_offset
                elif flags.to_datetime is not None:
                    place.offset = flags.to_datetime
                    (first,) = consumer.offsets_for_times([place], _TIMEOUT_S)
                    if first.error is not None:
                        raise JobError(f"--to-datetime: no offset of {topic}-{partition}: {first.error.str()}")
                    offset = end if first.offset < 0 else first.offset
                found.setdefault(topic, {})[partition] = min(max(offset, start), end)
        return found
    finally:
        consumer.close()


def may_delete_records(flags: argparse.Namespace, topic: str) -> bool:
    """Return whether brokers delete records of a topic on request: not if it is only compacted."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(_settings(flags))
    config = admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
    return "delete" in config["cleanup.policy"].value


def write_tombstones(flags: argparse.Namespace, topic: str) -> None:
    """Write a tombstone for each key that has a value, into its partition. Raises JobError."""
    has_value: dict[tuple[int, bytes], bool] = {}
    for message in stored_messages(_settings(flags), topic):
        if message.key() is not None:
            has_value[message.partition(), message.key()] = message.value() is not None
    failures: list[KafkaError] = []
    producer = Producer({**_settings(flags), "linger.ms": LINGER_MS})

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for (partition, key), is_there in has_value.items():
        while is_there:
            try:
                producer.produce(topic, None, key, partition, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(_FULL_QUEUE_WAIT_S)
    if producer.flush(_TIMEOUT_S) or failures:
        reason = failures[0].str() if failures else f"no response within {_TIMEOUT_S} s"
        raise JobError(f"{topic}: not all tombstones were stored: {reason}")


def delete_records(flags: argparse.Namespace, topic: str) -> None:
    """Delete all records of a topic, which stays."""
    consumer = _consumer(flags)
    try:
        ends = [
            TopicPartition(topic, number, consumer.get_watermark_offsets(TopicPartition(topic, number), _TIMEOUT_S)[1])
            for number in partitions_of(consumer, topic)
        ]
    finally:
        consumer.close()
    admin = AdminClient(_settings(flags))
    for future in admin.delete_records(ends, request_timeout=_TIMEOUT_S).values():
        future.result()


def _consumer(flags: argparse.Namespace) -> Consumer:
    return Consumer({**_settings(flags), "group.id": "spark-job-reset"})


def _settings(flags: argparse.Namespace) -> dict[str, str]:
    return client_settings(flags.bootstrap_servers, flags.kafka_option)


def _milliseconds(text: str) -> int:
    """Parse ISO 8601; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time such as 2013-01-31T10:00:00Z, not {text!r}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _topics(text: str) -> list[str]:
    return text.split(",")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = bare_parser("reset", __doc__)
    add = parser.add_argument
    add("app", help="the --app-id of the job")
    add("--bootstrap-servers", required=True, metavar="HOST:PORT,...", help="brokers to connect to first")
    add("--checkpoint", required=True, metavar="DIR", help="the checkpoint of the job")
    add("--input", type=_topics, default=[], metavar="TOPIC,...", help="topics of the job, for --commit-group")
    add("--commit-group", metavar="GROUP", help="the --commit-group of the job")
    start = parser.add_mutually_exclusive_group().add_argument
    start("--to-earliest", action="store_true", help="the group begins at the first records (default)")
    start("--to-datetime", type=_milliseconds, metavar="TIME", help="the group begins at a time, in ISO 8601")
    start("--to-offset", type=int, metavar="N", help="the group begins at an offset in each partition")
    add("--delete-output", action="store_true", help="delete --output and --output-folder")
    add("--output", type=_topics, default=[], metavar="TOPIC,...", help="topics that the job writes")
    add("--output-folder", type=_topics, default=[], metavar="DIR,...", help="folders that the job writes")
    add("--dry-run", action="store_true", help="only print the steps")
    add("--force", action="store_true", help="do not check whether the job runs")
    add_client_settings(add, "kafka", "the Kafka clients")
    add_session_settings(add)
    flags = parser.parse_args(arguments)
    if flags.delete_output and not (flags.output or flags.output_folder):
        parser.error("argument --delete-output: needs --output TOPIC or --output-folder DIR")
    if flags.commit_group is not None and not flags.input:
        parser.error("argument --commit-group: needs --input TOPIC")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    flags = parse(arguments)

    with ExitStack() as resources:

        def prepare() -> list[Step]:
            spark = spark_session("reset", session_settings(flags.master, flags.spark_conf))
            resources.callback(spark.stop)
            return plan(spark, flags)

        def work(steps: list[Step]) -> None:
            for text, step in steps:
                print(f"would {text}" if flags.dry_run else text)
                if not flags.dry_run:
                    step()

        return run_program("reset", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
