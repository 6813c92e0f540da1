"""kafka-e2e-latency: sends one message at a time and measures the time until a consumer has it.

kafka-e2e-latency broker_list topic num_messages producer_acks message_size_bytes [properties_file]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from typing import Final

from tools.base.command_line import StopRequest, UnreachableError, UsageError, run_usage_tool
from tools.client import client_library as library
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_settings import library_settings, load_settings
from tools.client.first_connection import require_served
from tools.records.performance import Progress, cpu_line, percentiles

USAGE: Final = (
    "USAGE: kafka-e2e-latency broker_list topic num_messages producer_acks message_size_bytes\n"
    "       [optional] properties_file"
)
TIMEOUT_S: Final = 60.0
SHOWN_EVERY: Final = 1000
PARTITIONS, REPLICAS = 1, 1


def _failure(code: int, text: str) -> library.KafkaException:
    return library.KafkaException(library.KafkaError(code, text))


class _Clients:
    """A producer of one topic, and a consumer that reads from its end."""

    def __init__(self, settings: dict[str, str], acks: str) -> None:
        """`settings` are under Java names. Raises KafkaException, UsageError."""
        from confluent_kafka.admin import AdminClient  # late, as the library itself

        common = {**settings, "client.id": "e2e-latency"}
        self.producer = library.Producer(
            {**library_settings({**common, "acks": acks}, is_consumer=False), "linger.ms": 0, "retries": 0}
        )
        group = f"test-group-{random.randrange(1 << 31)}"
        self.consumer = library.Consumer(
            library_settings(
                {**common, "group.id": group, "enable.auto.commit": "false", "fetch.max.wait.ms": "0"}, is_consumer=True
            )
        )
        self.admin = AdminClient(library_settings(common, is_consumer=False))

    def create_missing_topic(self, topic: str) -> None:
        if topic in self.admin.list_topics(timeout=TIMEOUT_S).topics:
            return
        print(
            f'Topic "{topic}" does not exist. Will create topic with {PARTITIONS} partition(s) and replication factor '
            f"= {REPLICAS}",
            flush=True,
        )
        from confluent_kafka.admin import NewTopic

        self.admin.create_topics([NewTopic(topic, PARTITIONS, REPLICAS)])[topic].result(TIMEOUT_S)

    def assign_end(self, topic: str) -> None:
        """Let the consumer read what comes after the present end of each partition."""
        partitions = self.consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        if not partitions:
            raise _failure(library.KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic {topic} has no partitions")
        ends = [
            library.TopicPartition(each.topic, each.partition, self.consumer.get_watermark_offsets(each, TIMEOUT_S)[1])
            for each in (library.TopicPartition(topic, index) for index in partitions)
        ]
        self.consumer.assign(ends or [library.TopicPartition(topic, 0, library.OFFSET_END)])

    def round_trip(self, topic: str, message: bytes) -> float:
        """Return the seconds from the send of one message until it was consumed. Raises KafkaException."""
        failures: list[library.KafkaError] = []
        started_s = time.perf_counter()
        self.producer.produce(topic, message, on_delivery=lambda error, _: failures.append(error) if error else None)
        # The acknowledgement comes before the consumer may read the message.
        if self.producer.flush(TIMEOUT_S):
            raise _failure(library.KafkaError._TIMED_OUT, "the message was not acknowledged")
        if failures:
            raise library.KafkaException(failures[0])
        received = self.consumer.poll(TIMEOUT_S)
        elapsed_s = time.perf_counter() - started_s
        if received is None:
            raise _failure(
                library.KafkaError._TIMED_OUT,
                f"poll() timed out before finding a result (timeout:[{TIMEOUT_S:.0f} s])",
            )
        if received.error() is not None:
            raise library.KafkaException(received.error())
        if received.value() != message:
            raise _failure(
                library.KafkaError._BAD_MSG, "the message read is not the message sent: others write to the topic"
            )
        return elapsed_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return run_usage_tool(USAGE, _run, given)


def _run(given: Sequence[str]) -> int:
    try:
        bootstrap, topic, count, acks, size, path = _arguments(given)
        settings = {**load_settings(path, ()), "bootstrap.servers": ",".join(map(str, parse_bootstrap(bootstrap)))}
        require_served(settings, "properties_file")
        clients = _Clients(settings, acks)
        cpu_s, started_s = time.process_time(), time.monotonic()
        clients.create_missing_topic(topic)
        clients.assign_end(topic)
        with StopRequest() as stop:
            latencies_s = _measure(clients, topic, count, size, stop)
    except (UsageError, UnreachableError) as error:
        print(error, file=sys.stderr)
        return 1
    except library.KafkaException as error:
        print(f"Error: {error.args[0].str()}", file=sys.stderr)
        return 1
    if latencies_s:
        print(f"Avg latency: {1000 * sum(latencies_s) / len(latencies_s):.4f} ms")
        median, nearly_all, all_but_few = percentiles([int(1000 * each) for each in latencies_s], 0.5, 0.99, 0.999)
        print(f"Percentiles: 50th = {median}, 99th = {nearly_all}, 99.9th = {all_but_few}")
    print(cpu_line(time.process_time() - cpu_s, time.monotonic() - started_s), file=sys.stderr)
    return 0


def _arguments(given: Sequence[str]) -> tuple[str, str, int, str, int, str | None]:
    """Return addresses, topic, count, acks, size and file. Raises UsageError."""
    if len(given) not in (5, 6):
        raise UsageError(USAGE)
    bootstrap, topic, count, acks, size, *path = given
    if acks not in ("1", "all"):
        raise UsageError("Latency testing requires synchronous acknowledgement. Please use 1 or all")
    for name, text in (("num_messages", count), ("message_size_bytes", size)):
        if not text.isdecimal() or not int(text):
            raise UsageError(f"{name} is {text}, expected a number greater than 0\n{USAGE}")
    return bootstrap, topic, int(count), acks, int(size), path[0] if path else None


def _measure(clients: _Clients, topic: str, count: int, size: int, stop: StopRequest) -> list[float]:
    letters = random.Random(0)
    latencies_s: list[float] = []
    progress = Progress(count)
    for number in range(count):
        if stop.is_made:
            break
        message = bytes(letters.choices(range(ord("A"), ord("Z") + 1), k=size))
        latencies_s.append(clients.round_trip(topic, message))
        if number % SHOWN_EVERY == 0:
            progress.clear()
            print(f"{number}\t{round(1000 * latencies_s[-1], 6)}", flush=True)
        progress.show(number + 1)
    progress.clear()
    return latencies_s


if __name__ == "__main__":
    raise SystemExit(main())
