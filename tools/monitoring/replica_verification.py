"""kafka-replica-verification: reads the same partitions from all of their replicas, and reports differences.

It runs until it is stopped, or until replicas have different offsets.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from base.topic_partition import TopicPartition, partition_name
from protocol.errors import KafkaError, Malformed
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from protocol.messages.metadata import MetadataResponseTopic
from protocol.records.batch import BatchHeader, batches
from tools.base.command_line import CommandLine, StopRequest, UsageError, run_tool
from tools.base.topic_patterns import topic_pattern
from tools.client.admin_client import LATEST, AdminClient, CallTimedOut
from tools.client.admin_options import admin_client

DEBUGGER: Final = -2
"""The replica id with which every replica, leader or not, may be read to the end of its log."""


class Fetched(NamedTuple):
    """One replica's response for a partition."""

    high_watermark: int
    batches: Sequence[BatchHeader]


class Difference(Exception):  # noqa: N818 - named as what it reports
    """Replicas have different offsets; the text names them."""


class Comparison:
    """Compares the replicas of partitions, batch by batch.

    Pure: the offset of each partition moves on with the batches that all replicas have returned.
    """

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        self._lags: dict[TopicPartition, int] = {}

    def add(self, partition: TopicPartition, replicas: Mapping[int, Fetched]) -> Iterator[str]:
        """Compare the responses of all replicas, by broker id; yield differing checksums. Raises Difference."""
        (first_id, first), *others = sorted(replicas.items())
        for number, batch in enumerate(first.batches):
            if batch.last_offset >= first.high_watermark:
                break
            for broker_id, other in others:
                if number >= len(other.batches) or other.batches[number].last_offset >= other.high_watermark:
                    break
                found = other.batches[number]
                if found.last_offset != batch.last_offset:
                    raise Difference(
                        f"partition {partition_name(partition)}: replica {first_id}'s offset {batch.last_offset} "
                        f"doesn't match replica {broker_id}'s offset {found.last_offset}"
                    )
                if found.crc != batch.crc:
                    yield (
                        f"partition {partition_name(partition)} has unmatched checksum at offset {batch.last_offset}; "
                        f"replica {first_id}'s checksum {batch.crc}; replica {broker_id}'s checksum {found.crc}"
                    )
            else:
                self.offsets[partition] = batch.next_offset
                continue
            break
        high_watermark = max(fetched.high_watermark for fetched in replicas.values())
        self._lags[partition] = high_watermark - self.offsets[partition]

    def report(self) -> str:
        """Return the line about the partition with the largest lag."""
        if not self._lags:
            return f"max lag is -1 for partition null at offset -1 among {len(self.offsets)} partitions"
        partition = max(self._lags, key=lambda each: self._lags[each])
        return (
            f"max lag is {self._lags[partition]} for partition {partition_name(partition)} at offset "
            f"{self.offsets[partition]} among {len(self.offsets)} partitions"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if offsets differ."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-replica-verification", "Validate that all replicas for a set of topics have the same data."
    )
    line.add_option(
        "--broker-list",
        "--bootstrap-server",
        "--bootstrap-servers",
        value="hostname:port,...,hostname:port",
        help_text="REQUIRED: Brokers to connect to, as host:port,host:port.",
    )
    line.add_option(
        "--topics-include",
        "--topic-white-list",
        value="Java regex (String)",
        default=".*",
        help_text="The topics to verify, as a regular expression (default: .*).",
    )
    line.add_option(
        "--fetch-size",
        value="bytes",
        parse=int,
        default=1024 * 1024,
        help_text="The fetch size of each request (default: 1048576).",
    )
    line.add_option(
        "--max-wait-ms",
        value="ms",
        parse=int,
        default=1000,
        help_text="How long a fetch request waits for records (default: 1000).",
    )
    line.add_option(
        "--time",
        value="timestamp/-1(latest)/-2(earliest)",
        parse=int,
        default=LATEST,
        help_text="Where to begin: at a time, the end or the beginning (default: -1).",
    )
    line.add_option(
        "--report-interval-ms",
        value="ms",
        parse=int,
        default=30_000,
        help_text="The interval of the reports (default: 30000).",
    )
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    line.require(options, "--broker-list")
    if options.fetch_size < 1 or options.max_wait_ms < 0:
        raise UsageError("Expected a --fetch-size above 0 and a --max-wait-ms of 0 or more")
    pattern = topic_pattern(options.topics_include)
    options.bootstrap_server, options.command_config = options.broker_list, None
    try:
        with admin_client(options) as admin, StopRequest() as stop:
            topics = [topic for topic in admin.metadata().topics if pattern.fullmatch(topic.name or "")]
            if not any(topic.partitions for topic in topics):
                print(f"No topics found. --topics-include {options.topics_include} matches no topic.", file=sys.stderr)
                return 1
            verification = _Verification(admin, topics, options)
            _report("verification process is started")
            while not stop.is_made:
                verification.round()
    except (KafkaError, CallTimedOut, Malformed) as error:
        print(error, file=sys.stderr)
        return 1
    except Difference as difference:
        _report(str(difference))
        return 1
    return 0


class _Verification:
    """Fetches from all brokers in rounds. Raises Difference, KafkaError and CallTimedOut."""

    def __init__(
        self, admin: AdminClient, topics: Sequence[MetadataResponseTopic], options: argparse.Namespace
    ) -> None:
        self._admin = admin
        self._options = options
        self._replicas = {
            (topic.name or "", partition.partition_index): partition.replica_nodes
            for topic in topics
            for partition in topic.partitions
        }
        self._topic_ids = {topic.name or "": topic.topic_id for topic in topics}
        self._names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        offsets = admin.list_offsets(dict.fromkeys(self._replicas, options.time))
        beginnings = {}
        for partition, offset in offsets.items():
            if isinstance(offset, KafkaError):
                raise offset
            beginnings[partition] = max(offset, 0)
        self._comparison = Comparison(beginnings)
        self._reported_s = time.monotonic()

    def round(self) -> None:
        """Fetch once from each broker, and compare what all replicas of a partition have returned."""
        partitions_by_broker: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition, brokers in self._replicas.items():
            for broker_id in brokers:
                partitions_by_broker[broker_id].append(partition)
        fetched: defaultdict[TopicPartition, dict[int, Fetched]] = defaultdict(dict)
        # Only the first broker waits for records: the others have them when it responds.
        max_wait_ms = self._options.max_wait_ms
        for broker_id, partitions in partitions_by_broker.items():
            for partition, result in self._fetch(broker_id, partitions, max_wait_ms):
                fetched[partition][broker_id] = result
            max_wait_ms = 0
        for partition, found in fetched.items():
            if len(found) == len(self._replicas[partition]):
                for text in self._comparison.add(partition, found):
                    _report(text)
        if time.monotonic() - self._reported_s > self._options.report_interval_ms / 1000:
            _report(self._comparison.report())
            self._reported_s = time.monotonic()

    def _fetch(
        self, broker_id: int, partitions: Sequence[TopicPartition], max_wait_ms: int
    ) -> Iterator[tuple[TopicPartition, Fetched]]:
        topics: dict[str, list[FetchPartition]] = {}
        for name, index in partitions:
            wanted = FetchPartition(
                partition=index,
                fetch_offset=self._comparison.offsets[name, index],
                partition_max_bytes=self._options.fetch_size,
            )
            topics.setdefault(name, []).append(wanted)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=DEBUGGER),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[
                FetchTopic(topic=name, topic_id=self._topic_ids[name], partitions=wanted)
                for name, wanted in topics.items()
            ],
        )
        response = self._admin.call(request, FetchResponse, broker_id=broker_id)
        for topic in response.responses:
            name = topic.topic or self._names.get(topic.topic_id, "")
            for partition in topic.partitions:
                if not partition.error_code:
                    headers = [header for _, header in batches(partition.records or b"")]
                    yield (name, partition.partition_index), Fetched(partition.high_watermark, headers)


def _report(text: str) -> None:
    now = datetime.now().astimezone()
    print(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}: {text}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
