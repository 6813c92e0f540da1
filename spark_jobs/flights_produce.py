"""Sends the flights of 2013 to a topic: JSON keyed by carrier, departure time as record timestamp, in time order.

It starts no Spark, because Spark's Kafka sink has no column for the record timestamp.
It uses an idempotent producer, so that a retry neither repeats a flight nor changes the order within a partition.
"""

import sys
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from spark_jobs.flights import TOPIC_CONFIG, FlightRecord, records_by_time
from spark_jobs.skeleton.clients import producer_settings
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.parameters import client_parser
from spark_jobs.skeleton.programs import prepare_topics, run_program
from spark_jobs.skeleton.topics import TopicSpec, record_count

_PRODUCER_DEFAULTS: Mapping[str, str | bool] = {
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",  # the partitioner of Java clients and of Spark's sink
    "compression.type": "lz4",
    "linger.ms": "20",
    "queue.buffering.max.kbytes": "65536",
    "delivery.report.only.error": True,
}
_FULL_QUEUE_WAIT_S = 0.1
_FLUSH_TIMEOUT_S = 60
_RECORDS_BETWEEN_UPDATES = 2_000


class DeliveryError(JobError):
    """At least one record was not stored; the text gives the reason."""


def produce(settings: Mapping[str, str], topic: str, records: Sequence[FlightRecord]) -> None:
    """Send all `records` with a client of these settings, with a progress bar if standard error is a terminal.

    Returns once the broker has acknowledged every one; raises DeliveryError with the first reason otherwise.
    """
    producer = Producer({**_PRODUCER_DEFAULTS, **settings})
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    with _progress_bar() as progress:
        task = progress.add_task(topic, total=len(records))
        for sent, record in enumerate(records):
            _enqueue(producer, topic, record, on_delivery)
            if sent % _RECORDS_BETWEEN_UPDATES == 0:
                producer.poll(0)
                progress.update(task, completed=max(sent + 1 - len(producer), 0))
                if failures:
                    break
        unsent = producer.flush(_FLUSH_TIMEOUT_S)
        progress.update(task, completed=len(records) - unsent)
    if failures:
        raise DeliveryError(f"{len(failures)} records were refused: {failures[0]}")
    if unsent:
        raise DeliveryError(f"{unsent} records were not acknowledged within {_FLUSH_TIMEOUT_S} s")


def _enqueue(producer: Producer, topic: str, record: FlightRecord, on_delivery: object) -> None:
    while True:
        try:
            producer.produce(topic, record.value, record.key, timestamp=record.timestamp_ms, on_delivery=on_delivery)
            return
        except BufferError:
            producer.poll(_FULL_QUEUE_WAIT_S)


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = client_parser("flights_produce", "Sends the flights of 2013 to a topic.")
    parser.add_argument("--output", default="flights", metavar="TOPIC", help="topic to write (default %(default)s)")
    parser.add_argument("--append", action="store_true", help="send the flights although the topic has records")
    flags = parser.parse_args(arguments)
    topic = TopicSpec(flags.output, flags.partitions, flags.replication_factor, TOPIC_CONFIG)

    def prepare() -> Mapping[str, str]:
        present = record_count(prepare_topics(flags, [topic]), topic.name)
        if present and not flags.append:
            raise JobError(
                f"{topic.name} has {present:,} records already: "
                "use --append to send the flights again, or --output for another topic"
            )
        return producer_settings(flags.bootstrap_servers, flags.kafka_option)

    def work(client: Mapping[str, str]) -> None:
        records = records_by_time()
        produce(client, topic.name, records)
        print(f"{len(records)} flights are in {topic.name}")

    return run_program("flights_produce", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
