"""One data directory for alternating brokers: Milena and Apache Kafka, each on the other's files.

Owns the house (the folder, a ZooKeeper, one port for all brokers), the written data, and the comparison of everything
read from it. Clients do not notice the change: an idempotent producer runs through all of it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from config.broker import BrokerConfig
from config.log_config import LogConfig
from controller.embedded.sqlite_store import METADATA_FILE, SqliteStore
from controller.machine.model import ReplicaAssignment, Topic
from controller.store.state_store import Create
from controller.tree import paths
from protocol.records.batch import BatchHeader, batches
from storage.disk.checkpoints import read_offsets
from storage.disk.files import OsFiles
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.interop.conftest import create_topic
from tests.storage.builders import done, in_thread, pause
from tests.support.apache_kafka import ApacheKafkaProcess
from tests.support.broker import ROOT, BrokerProcess
from tests.support.manual_clock import ManualClock
from tests.support.zookeeper import ZooKeeperProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_PER_CODEC = 40
FIRST_TIMESTAMP = 1_700_000_000_000
TIMEOUT_S = 60
HOUR_MS = 3_600_000

SEQUENCE, CODED, TIMED, TRANSACTIONS, OPEN, COMPACTED, TRIMMED, SHORTENED = (
    "sequence", "coded", "timed", "transactions", "open", "compacted", "trimmed", "shortened",
)  # fmt: skip
OLD_FORMATS = ("old-v0", "old-v1")
GROUP, TRANSACTIONAL_GROUP = "readers", "movers"
TRANSACTIONAL_ID, OPEN_TRANSACTIONAL_ID = "mover", "opener"
TIMES_MS = (0, *range(FIRST_TIMESTAMP - 100, FIRST_TIMESTAMP + 1200, 100), FIRST_TIMESTAMP * 2)
SMALL = {"segment.bytes": "8192", "index.interval.bytes": "512"}
TOPICS: Mapping[str, Mapping[str, str]] = {
    SEQUENCE: {"segment.bytes": "65536"},
    CODED: SMALL,
    TIMED: {"message.timestamp.type": "LogAppendTime"},
    TRANSACTIONS: SMALL,
    OPEN: {},
    COMPACTED: {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"},
    TRIMMED: {"retention.ms": str(HOUR_MS), **SMALL},
    SHORTENED: SMALL,
}
PROPERTIES = {
    "log.retention.ms": "-1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.backoff.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}


class Record(NamedTuple):
    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


Partition = tuple[str, int]


@dataclass(frozen=True)
class Snapshot:
    """Everything that clients can see."""

    committed: Mapping[Partition, Sequence[Record]]
    uncommitted: Mapping[Partition, Sequence[Record]]
    bounds: Mapping[Partition, tuple[int, int]]
    group_offsets: Mapping[str, Sequence[tuple[str, int, int]]]
    found_by_time: Sequence[tuple[str, int, int]]
    """Topic, a time, and the first offset from that time on."""


@dataclass(frozen=True)
class Handover:
    """The data before a broker's stop, the data served by the next one, and the logs of both."""

    name: str
    is_to_kafka: bool
    was_killed: bool
    before: Snapshot
    after: Snapshot
    log_lines: Sequence[str]
    """Log lines of the new broker, from its start until it served everything."""


Broker = ApacheKafkaProcess | BrokerProcess


@dataclass
class House:
    """Everything below one folder; one broker at a time."""

    folder: Path
    zookeeper: ZooKeeperProcess
    port: int = 0
    """The first broker binds any free port; the others use the same one."""
    round: int = 0
    written: list[bytes] = field(default_factory=list)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Values of the sequence's records, and the offsets of their acknowledgements."""
    resumed: list[tuple[int, int]] = field(default_factory=list)
    """The expected and the actual offset at which a group resumed."""
    _group_position: int = 0
    _shortened_to: int = 0
    _partitions: set[Partition] = field(default_factory=set)

    # Producers are kept for the whole test: a new one would wait half a second for its producer id.

    @cached_property
    def _writer(self) -> Producer:
        return self._producer({"batch.num.messages": 20})

    @cached_property
    def _plain(self) -> Producer:
        return self._producer({"batch.num.messages": 10})

    @cached_property
    def _coded(self) -> Mapping[str, Producer]:
        return {codec: self._producer({"compression.codec": codec, "batch.num.messages": 7}) for codec in CODECS}

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    # Brokers

    def milena(self) -> BrokerProcess:
        broker = BrokerProcess(self.folder / "milena", {**PROPERTIES, "log.dirs": str(self.data)}, port=self.port)
        broker.start()
        self.port = broker.port
        return broker

    def kafka(self) -> ApacheKafkaProcess:
        broker = ApacheKafkaProcess(
            self.folder / "kafka",
            self.zookeeper.connect,
            port=self.port,
            overrides={**PROPERTIES, "log.dirs": str(self.data), "zookeeper.session.timeout.ms": "6000"},
            log_level="INFO",
        )
        return broker.start()

    def hand_over(self, broker: Broker, start: Callable[[], Broker], *, kill: bool = False) -> tuple[Broker, Handover]:
        """Stop `broker` (with `kill`, during production), and start the next one on its data."""
        before = self.snapshot()
        if kill:
            self.kill_while_writing(broker)
        else:
            broker.stop()
        self._copy_metadata(broker)
        lines = _line_count(self.folder / "kafka" / "kafka.log"), _line_count(self.folder / "milena" / "server.log")
        successor = start()
        assert self._writer.flush(TIMEOUT_S) == 0
        after = self.snapshot()
        log = successor.log.read_text().splitlines()[lines[isinstance(successor, BrokerProcess)] :]
        name = f"{broker.name} to {successor.name}" + (", killed" if kill else "")
        return successor, Handover(name, isinstance(successor, ApacheKafkaProcess), kill, before, after, log)

    def kill_while_writing(self, broker: Broker) -> None:
        self._wait_for_checkpoint("log-start-offset-checkpoint", SHORTENED, self._shortened_to)
        acknowledged = len(self.acknowledged)
        self.write_sequence(3000)
        while len(self.acknowledged) < acknowledged + 1000:
            self._writer.poll(0.05)
        broker.kill()

    def _copy_metadata(self, ended: Broker) -> None:
        embedded, remote = ["log-dir", str(self.data)], ["zookeeper", self.zookeeper.connect]
        if isinstance(ended, ApacheKafkaProcess):
            self._end_session()
        source, target = (embedded, remote) if isinstance(ended, BrokerProcess) else (remote, embedded)
        options = (f"--from-{source[0]}", source[1], f"--to-{target[0]}", target[1])
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tools.zookeeper.metadata_copy", *options],
            cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def _end_session(self) -> None:
        """End the session of a killed Kafka; ZooKeeper would do the same a little later."""
        client = KazooClient(self.zookeeper.connect)
        client.start()
        for path in (paths.CONTROLLER, paths.broker_path(0)):
            if client.exists(path):
                client.delete(path)
        client.stop()
        client.close()

    # Writing

    def create_topics(self) -> None:
        for topic, configs in TOPICS.items():
            create_topic(self.bootstrap, topic, configs=dict(configs))

    def write(self) -> None:
        """Write one more round of all kinds of data."""
        self.round += 1
        self.write_sequence(200)
        self._write_coded()
        self._write_transactions()
        self._write_plain(TIMED, [(None, b"%d" % number, FIRST_TIMESTAMP) for number in range(20)])
        self._write_plain(
            COMPACTED,
            [
                (b"key-%d" % (number % 20), b"round %d, %d " % (self.round, number) + bytes(100), FIRST_TIMESTAMP)
                for number in range(100)
            ]
            + [(b"key-%d" % self.round, None, FIRST_TIMESTAMP)],
        )
        now_ms = int(time.time() * 1000)
        old = [] if self.round > 1 else [(None, b"%d " % number + bytes(200), FIRST_TIMESTAMP) for number in range(100)]
        self._write_plain(TRIMMED, [*old, *((None, b"%d" % number, now_ms) for number in range(50))])
        self._write_plain(SHORTENED, [(None, b"%d " % number + bytes(200), FIRST_TIMESTAMP) for number in range(100)])
        self._read_in_group()
        assert self._writer.flush(TIMEOUT_S) == 0

    def delete_a_topic(self) -> None:
        """Delete a topic; its folder stays for a minute, under another name."""
        name = f"deleted-{self.round}"
        create_topic(self.bootstrap, name)
        self._write_plain(name, [(None, b"gone", FIRST_TIMESTAMP)])
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([name])[name].result(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while not list(self.data.glob(f"{name}-0.*-delete")) or name in admin.list_topics(timeout=TIMEOUT_S).topics:
            assert time.monotonic() < deadline, f"{name} is not deleted"
            time.sleep(0.02)

    def delete_records(self) -> None:
        """Delete further records from the start of a topic."""
        self._shortened_to = 60 * self.round + 7
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for deleted in admin.delete_records([TopicPartition(SHORTENED, 0, self._shortened_to)]).values():
            deleted.result(TIMEOUT_S)

    def write_sequence(self, count: int) -> None:
        """Send records with the producer that survives all handovers."""
        for number in range(len(self.written), len(self.written) + count):
            value = b"%d" % number
            self.written.append(value)
            self._writer.produce(SEQUENCE, value, on_delivery=self._note_delivery)
            self._writer.poll(0)

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        value, offset = message.value(), message.offset()
        assert isinstance(value, bytes)
        assert offset is not None
        self.acknowledged[value] = offset

    def _write_coded(self) -> None:
        """Write all codecs; null and empty keys, values and headers; timestamps out of order."""
        for place, (codec, producer) in enumerate(self._coded.items()):
            for number in range(RECORDS_PER_CODEC):
                producer.produce(
                    CODED,
                    key=(None, b"", b"key-%d" % number)[number % 3],
                    value=(None, b"", *(b"%s-%d " % (codec.encode(), number) * 20,) * 3)[number % 5],
                    headers=[("codec", codec.encode()), ("empty", b""), ("nothing", None), ("codec", b"again")],
                    timestamp=FIRST_TIMESTAMP + place * 200 + number * 5 + (number * 7919) % 50,
                )
            assert producer.flush(TIMEOUT_S) == 0

    def _write_transactions(self) -> None:
        """Write a committed transaction with offsets, plain records, an aborted transaction and an open one."""
        producer = self._producer({"transactional.id": TRANSACTIONAL_ID})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        self._produce(producer, TRANSACTIONS, [(None, b"committed %d" % self.round, FIRST_TIMESTAMP)] * 5)
        group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": TRANSACTIONAL_GROUP})
        offsets = [TopicPartition(CODED, 0, 10 * self.round)]
        producer.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), TIMEOUT_S)
        group.close()
        producer.commit_transaction(TIMEOUT_S)
        self._write_plain(TRANSACTIONS, [(None, b"plain", FIRST_TIMESTAMP)])
        producer.begin_transaction()
        self._produce(producer, TRANSACTIONS, [(None, b"aborted %d" % self.round, FIRST_TIMESTAMP)] * 5)
        producer.abort_transaction(TIMEOUT_S)
        opener = self._producer({"transactional.id": OPEN_TRANSACTIONAL_ID, "transaction.timeout.ms": 600_000})
        opener.init_transactions(TIMEOUT_S)
        opener.begin_transaction()
        self._produce(opener, OPEN, [(None, b"open %d" % self.round, FIRST_TIMESTAMP)] * 3)

    def _write_plain(self, topic: str, records: Sequence[tuple[bytes | None, bytes | None, int]]) -> None:
        self._produce(self._plain, topic, records)

    def _produce(
        self, producer: Producer, topic: str, records: Sequence[tuple[bytes | None, bytes | None, int]]
    ) -> None:
        for key, value, timestamp_ms in records:
            producer.produce(topic, value, key, timestamp=timestamp_ms)
        assert producer.flush(TIMEOUT_S) == 0

    def _producer(self, settings: Mapping[str, str | int]) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                # A starting Kafka serves before it knows its topics. librdkafka would fail the records of those topics.
                # It counts in microseconds of 32 bits, so that more than 35 minutes would be none.
                "topic.metadata.propagation.max.ms": 2_000_000,
                **settings,
            }
        )

    def _read_in_group(self) -> None:
        """Read ten more records in a group, and commit."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
            consumer.subscribe([CODED])
            offsets = [message.offset() for message in consumer.consume(10, TIMEOUT_S)]
            assert len(offsets) == 10
            assert offsets[0] is not None
            self.resumed.append((self._group_position, offsets[0]))
            self._group_position = offsets[0] + 10
            consumer.commit(offsets=[TopicPartition(CODED, 0, self._group_position)], asynchronous=False)

    # Reading

    def snapshot(self) -> Snapshot:
        uncommitted, bounds = self._read_all("read_uncommitted")
        committed, _ = self._read_all("read_committed")
        return Snapshot(
            committed,
            uncommitted,
            bounds,
            {group: self._committed_offsets(group) for group in (GROUP, TRANSACTIONAL_GROUP)},
            self._find_by_time(),
        )

    def _read_all(self, isolation: str) -> tuple[dict[Partition, list[Record]], dict[Partition, tuple[int, int]]]:
        """Read every partition from its start to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,
            }
        )
        with closing(consumer):
            wanted = self._wait_for_leaders(consumer)
            bounds = {
                partition: consumer.get_watermark_offsets(TopicPartition(*partition), TIMEOUT_S) for partition in wanted
            }
            consumer.assign([TopicPartition(*partition, bounds[partition][0]) for partition in wanted])
            records: dict[Partition, list[Record]] = {partition: [] for partition in wanted}
            pending = set(wanted)
            deadline = time.monotonic() + TIMEOUT_S
            while pending:
                assert time.monotonic() < deadline, f"no end of {pending}"
                for message in consumer.consume(1000, 0.1):
                    partition = (str(message.topic()), int(message.partition() or 0))
                    error = message.error()
                    if error is None:
                        records[partition].append(_record(message))
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        pending.discard(partition)
        return records, bounds

    def _find_by_time(self) -> list[tuple[str, int, int]]:
        # Not the shortened topic: Kafka looks for a time in the first segment that reaches it, and says that there is
        # none when that segment lies wholly below the log's start.
        topics = (CODED, TIMED, TRIMMED, *OLD_FORMATS)
        with closing(Consumer({"bootstrap.servers": self.bootstrap, "group.id": "nobody"})) as consumer:
            return [
                (found.topic, time_ms, found.offset)
                for time_ms in TIMES_MS
                for found in consumer.offsets_for_times(
                    [TopicPartition(topic, 0, time_ms) for topic in topics], TIMEOUT_S
                )
            ]

    def _wait_for_leaders(self, consumer: Consumer) -> list[Partition]:
        """Wait for the leaders of all partitions; Kafka does not know all of them right after its start."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            topics = consumer.list_topics(timeout=TIMEOUT_S).topics
            found = {(name, number): one for name, topic in topics.items() for number, one in topic.partitions.items()}
            if self._partitions <= found.keys() and all(one.leader >= 0 for one in found.values()):
                self._partitions |= found.keys()
                return sorted(found)
            assert time.monotonic() < deadline, f"no leaders of {self._partitions - found.keys()}"
            time.sleep(0.05)

    def _committed_offsets(self, group: str) -> list[tuple[str, int, int]]:
        with closing(Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})) as consumer:
            found = consumer.committed([TopicPartition(CODED, 0)], TIMEOUT_S)
            return [(one.topic, one.partition, one.offset) for one in found]

    def wait_for_cleaning(self) -> None:
        self._wait_for_checkpoint("cleaner-offset-checkpoint", COMPACTED, 1)

    def _wait_for_checkpoint(self, name: str, topic: str, offset: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while read_offsets(OsFiles(), str(self.data / name)).get((topic, 0), 0) < offset:
            assert time.monotonic() < deadline, f"{name} does not reach {offset} of {topic}"
            time.sleep(0.02)

    def partitions(self) -> list[Path]:
        """The folder of each."""
        return sorted(path for path in self.data.iterdir() if path.is_dir() and not path.name.endswith("-delete"))

    def headers(self, topic: str) -> list[BatchHeader]:
        """Return the headers of every batch in partition 0, from the files."""
        return headers_in(self.data / f"{topic}-0")

    # Changes while no broker runs

    def expire_old_segments(self) -> None:
        """Do the work of the periodic retention check."""
        base = BrokerConfig.from_properties({**PROPERTIES, "log.dirs": str(self.data)}, {})
        manager = LogManager(
            [str(self.data)],
            LogManagerSettings(file_delete_delay_ms=0),
            OsFiles(),
            random=Random(),
            new_threads=ThreadPoolExecutor,
            on_directory_failed=lambda *_: None,
        )
        manager.startup.open()
        now_ms = int(time.time() * 1000)
        manager.startup.load(lambda topic: LogConfig.from_overrides(base, dict(TOPICS.get(topic, {}))), now_ms=now_ms)
        assert done(manager.run_retention(now_ms, pause, in_thread)) > 0
        manager.remove_deleted(now_ms + HOUR_MS)
        manager.close(now_ms)
        manager.directories.unlock()

    def add_old_formats(self, fixtures: Path) -> None:
        """Partitions of magic 0 and 1, and their topics as brokers of that time wrote them into the tree."""
        operations = []
        for topic in OLD_FORMATS:
            shutil.copytree(fixtures / f"{topic}-0", self.data / f"{topic}-0")
            node = json.loads(paths.encode_topic(Topic(None, {0: ReplicaAssignment((0,))})))
            node = {"version": 1, "partitions": node["partitions"]}
            operations.append(Create(paths.topic_path(topic), json.dumps(node).encode()))

        async def add() -> None:
            store = SqliteStore([self.data / METADATA_FILE], ManualClock())
            await store.open()
            await store.multi(operations)
            await store.close()

        asyncio.run(add())


def _record(message: Message) -> Record:
    headers = message.headers()
    return Record(
        int(message.offset() or 0),
        message.timestamp(),
        message.key(),
        message.value(),
        None if headers is None else list(headers),
    )


def headers_in(partition: Path) -> list[BatchHeader]:
    """Return the headers of every batch, from the files."""
    return [header for path in sorted(partition.glob("*.log")) for _, header in batches(path.read_bytes())]


def _line_count(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


def chain(house: House, fixtures: Path, *, cycles: int = 1) -> Iterator[Handover]:
    """Milena, Kafka, Milena, Kafka, Milena: each direction by a clean stop and by kill -9, with more data each time."""
    broker: Broker = house.milena()
    try:
        house.create_topics()
        house.write()
        house.wait_for_cleaning()
        broker.stop()
        house.expire_old_segments()
        shutil.copytree(house.data, house.folder / "milena-only")
        house.add_old_formats(fixtures)
        broker = house.milena()
        steps = ((house.kafka, True), (house.milena, False), (house.kafka, False), (house.milena, True))
        for start, kill in steps * cycles:
            house.write()
            house.delete_a_topic()
            if not (kill and isinstance(broker, ApacheKafkaProcess)):
                # Kafka writes the first checkpoint of where logs start after half a minute: kill -9 takes that back.
                house.delete_records()
            broker, handover = house.hand_over(broker, start, kill=kill)
            yield handover
        house.write()
    finally:
        broker.stop()
