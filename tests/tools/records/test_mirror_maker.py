"""kafka-mirror-maker between two brokers: what is copied, committed, lost by no kill, and refused."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.forked_programs import STDOUT, start_program
from tests.support.waiting import wait_until
from tests.tools.conftest import ROOT, RunTool
from tools.records import mirror_maker
from tools.records.mirror_streams import Mirror, Stream, TopicFilter

DEADLINE_S = 60.0
_numbers = itertools.count()

until = partial(wait_until, timeout_s=DEADLINE_S)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("target"), {"offsets.topic.num.partitions": "1"}) as process:
        yield process


class Files:
    """The files of one mirror."""

    def __init__(self, folder: Path, source: BrokerProcess, target: BrokerProcess) -> None:
        self.group = f"mirror-{next(_numbers)}"
        self.commit_interval_ms = 200
        self.consumer, self.producer = folder / "consumer.properties", folder / "producer.properties"
        self.consumer.write_text(
            f"bootstrap.servers={source.bootstrap}\ngroup.id={self.group}\nauto.offset.reset=earliest\n"
            "metadata.max.age.ms=300\nsession.timeout.ms=1500\nheartbeat.interval.ms=300\n"
        )
        self.producer.write_text(f"bootstrap.servers={target.bootstrap}\nlinger.ms=0\n")

    @property
    def options(self) -> list[str]:
        return [
            *("--consumer.config", str(self.consumer), "--producer.config", str(self.producer)),
            *("--offset.commit.interval.ms", str(self.commit_interval_ms)),
        ]


@pytest.fixture
def files(tmp_path: Path, broker: BrokerProcess, target: BrokerProcess) -> Files:
    return Files(tmp_path, broker, target)


class Running:
    """A mirror maker as a process."""

    def __init__(self, *options: str, plug_ins: Path = ROOT) -> None:
        """A program with plug-ins, which are further modules, is not forked."""
        self._errors = TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        path = str(ROOT) if plug_ins == ROOT else f"{ROOT}:{plug_ins}"
        self.process = start_program(
            "tools.records.mirror_maker",
            options,
            stdout=STDOUT,
            stderr=self._errors.fileno(),
            environment={**os.environ, "PYTHONPATH": path},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        self._errors.close()

    def stop(self) -> tuple[int, str]:
        """Stop it as an operator does; return its status and what it said."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> tuple[int, str]:
        status = self.process.wait(DEADLINE_S)
        self._errors.seek(0)
        return status, self._errors.read().decode()


def new_topic(*brokers: BrokerProcess, partitions: int = 2, **configs: str) -> str:
    name = f"mirrored-{next(_numbers)}"
    for each in brokers:
        settings = {key.replace("_", "."): value for key, value in configs.items()} if each is brokers[-1] else {}
        admin = AdminClient({"bootstrap.servers": each.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()
    return name


def produce(broker: BrokerProcess, topic: str, values: Sequence[bytes | None], **fields: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, **fields)
    assert producer.flush(DEADLINE_S) == 0


def stored(broker: BrokerProcess, topic: str) -> list[Message]:
    """Return all records of a topic, partition by partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        found = []
        description = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic]
        for partition in [] if description.error else sorted(description.partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
            consumer.assign([TopicPartition(topic, partition, 0)])
            for _ in range(end):
                record = consumer.poll(DEADLINE_S)
                assert record is not None
                assert record.error() is None
                found.append(record)
        return found
    finally:
        consumer.close()


def committed(broker: BrokerProcess, group: str, topic: str) -> int:
    """Return the sum of the committed offsets."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in (0, 1)]
        return sum(max(0, each.offset) for each in consumer.committed(wanted, timeout=DEADLINE_S))
    finally:
        consumer.close()


def test_records_are_copied_whole_and_their_positions_committed(
    files: Files, broker: BrokerProcess, target: BrokerProcess
) -> None:
    topic = new_topic(broker, target)
    produce(
        broker, topic, [b"value", None, b""], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123
    )
    produce(broker, topic, [b"unkeyed"])
    with Running(*files.options, "--include", topic, "--num.streams", "2") as mirror:
        until(lambda: committed(broker, files.group, topic) == 4, "all is committed")
        copies = stored(target, topic)
        keyed = [each for each in copies if each.key() == b"k"]
        assert [each.value() for each in keyed] == [b"value", None, b""]
        assert len({each.partition() for each in keyed}) == 1
        assert keyed[0].headers() == [("h", b"1"), ("h", None)]
        assert keyed[0].timestamp()[1] == 1_700_000_000_123
        assert [each.value() for each in copies if each.key() is None] == [b"unkeyed"]
        produce(broker, topic, [b"last"])
        until(lambda: len(stored(target, topic)) == 5, "it goes on")
        assert mirror.stop() == (0, "")
    assert committed(broker, files.group, topic) == 5


def test_topics_that_match_later_join_and_others_do_not(
    files: Files, broker: BrokerProcess, target: BrokerProcess
) -> None:
    first = new_topic(broker, target)
    produce(broker, first, [b"1"])
    later, other = f"{first}-later", f"{first}-other"
    with Running(*files.options, "--whitelist", f"{first}, {first}-.*", "--blacklist", ".*-other") as mirror:
        until(lambda: stored(target, first), "the first topic")
        for name in (other, later):
            produce(broker, name, [b"2"])
        until(lambda: stored(target, later), "the topic that was created later")
        assert other not in AdminClient({"bootstrap.servers": target.bootstrap}).list_topics(timeout=DEADLINE_S).topics
        status, said = mirror.stop()
        assert (status, said) == (0, "WARNING: --whitelist is deprecated; use --include\n")


def test_killed_mirror_loses_nothing(files: Files, broker: BrokerProcess, target: BrokerProcess) -> None:
    topic = new_topic(broker, target)
    numbers = [b"%d" % number for number in range(3_000)]
    produce(broker, topic, numbers)
    files.commit_interval_ms = 60_000  # what is killed has committed nothing
    for killed_after in (200, 1_500):
        with Running(*files.options, "--include", topic) as mirror:
            until(lambda limit=killed_after: len(stored(target, topic)) > limit, "some records are copied")
            mirror.process.kill()
    assert committed(broker, files.group, topic) == 0
    files.commit_interval_ms = 200
    with Running(*files.options, "--include", topic) as mirror:
        until(lambda: committed(broker, files.group, topic) == len(numbers), "all is committed")
        assert mirror.stop()[0] == 0
    assert {each.value() for each in stored(target, topic)} == set(numbers)


def test_position_of_a_revoked_partition_is_not_committed_later() -> None:
    """Another member has the partition then, and has committed more."""
    committed: list[list[TopicPartition]] = []

    def commit(*, offsets: list[TopicPartition], asynchronous: bool) -> None:
        committed.append(offsets)
        if len(committed) == 1:
            raise KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))

    record = SimpleNamespace(error=lambda: None, topic=lambda: "t", partition=lambda: 0, offset=lambda: 7)
    mirror = SimpleNamespace(
        handler=SimpleNamespace(handle=lambda record: [record]),
        send=lambda sent: True,
        flush=lambda: True,
        listener=None,
    )
    consumer: Any = SimpleNamespace(commit=commit)
    stream = Stream(cast(Mirror, mirror), consumer, 60.0)
    stream._copy([cast(Message, record)])
    stream._revoked(consumer, [TopicPartition("t", 0)])
    stream._commit()
    assert [[each.offset for each in offsets] for offsets in committed] == [[8]]


def test_the_first_failure_is_logged_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    topics = TopicFilter(re.compile("t"), None, with_internal=False)
    mirror = Mirror(
        {"bootstrap.servers": "127.0.0.1:1"},
        topics=topics, commit_interval_s=60.0, aborts_on_failure=True, handler=None, listener=None,
    )  # fmt: skip
    mirror.fail("the disk is full")
    mirror.fail("the consequence")
    assert (mirror.failure, mirror.is_over) == ("the disk is full", True)
    assert [record.message for record in caplog.records] == ["the disk is full"]


def test_record_that_cannot_be_sent_ends_the_mirror_without_a_commit(
    files: Files, broker: BrokerProcess, target: BrokerProcess
) -> None:
    topic = new_topic(broker, target, partitions=2, max_message_bytes="500")
    produce(broker, topic, [b"x" * 2_000], partition=0)
    with Running(*files.options, "--include", topic) as mirror:
        status, said = mirror.ended()
    assert status == 1
    assert f"a record of {topic} could not be sent: Broker: Message size too large" in said
    assert committed(broker, files.group, topic) == 0


def test_lost_records_are_counted_if_that_is_wanted(files: Files, broker: BrokerProcess, target: BrokerProcess) -> None:
    topic = new_topic(broker, target, partitions=2, max_message_bytes="500")
    produce(broker, topic, [b"x" * 2_000], partition=0)
    with Running(*files.options, "--include", topic, "--abort.on.send.failure", "false") as mirror:
        until(lambda: committed(broker, files.group, topic) == 1, "the record is given up")
        produce(broker, topic, [b"small"], partition=0)
        until(lambda: committed(broker, files.group, topic) == 2, "all is committed")
        status, said = mirror.stop()
    assert status == 0
    assert said.endswith("1 records could not be sent and are lost\n")
    assert [each.value() for each in stored(target, topic)] == [b"small"]


HANDLER = """
from tools.records.mirror_streams import Outgoing

class Upper:
    def __init__(self, suffix):
        self._suffix = suffix

    def handle(self, record):
        if record.value() == b"raise":
            raise ValueError("no such value")
        if record.value() != b"none":
            yield Outgoing(record.topic() + self._suffix, record.value().upper(), partition=0)

class Listener:
    def on_partitions_assigned(self, partitions):
        print("assigned", len(partitions), flush=True)

    def on_partitions_revoked(self, partitions):
        print("revoked", len(partitions), flush=True)
"""


def test_records_pass_through_a_handler(
    files: Files, broker: BrokerProcess, target: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_handler.py").write_text(HANDLER)
    topic = new_topic(broker)
    produce(broker, topic, [b"some", b"none"], partition=0)
    plug_ins = ["--message.handler", "my_handler:Upper", "--message.handler.args=-copy"]
    plug_ins += ["--consumer.rebalance.listener", "my_handler:Listener"]
    with Running(*files.options, "--include", topic, *plug_ins, plug_ins=tmp_path) as mirror:
        until(lambda: committed(broker, files.group, topic) == 2, "all is committed")
        assert [each.value() for each in stored(target, f"{topic}-copy")] == [b"SOME"]
        produce(broker, topic, [b"raise"], partition=0)
        status, said = mirror.ended()
    assert status == 1
    assert said.splitlines()[-1] == "Mirror maker has stopped: a stream has failed: no such value"
    assert committed(broker, files.group, topic) == 2
    assert capfd.readouterr().out.split("\n")[0] == "assigned 2"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--include", "t"], 'Missing required argument "[consumer.config]"'),
        (["CONFIGS"], "include list must be specified"),
        (["CONFIGS", "--include", "("], "( is an invalid regex"),
        (["CONFIGS", "--include", "t", "--num.streams", "0"], "Cannot parse argument '0' of option num.streams"),
        (["CONFIGS", "--include", "t", "--abort.on.send.failure", "maybe"], "Cannot parse argument 'maybe'"),
        (["CONFIGS", "--include", "t", "--message.handler", "nowhere:X"], "Cannot load the message handler nowhere:X"),
        (["CONFIGS", "--include", "t", "--message.handler", "json:loads"], "Cannot create the message handler json"),
        (["--consumer.config", "/no/such", "--producer.config", "/no/such", "--include", "t"], "Cannot read /no/such"),
    ],
)
def test_invalid_command_lines_are_refused_by_name(
    run: RunTool, files: Files, options: list[str], problem: str
) -> None:
    given = [*files.options, *options[1:]] if options[0] == "CONFIGS" else options
    outcome = run(mirror_maker.main, *given)
    assert outcome.status == 1
    assert problem in outcome.stderr


@pytest.mark.parametrize(("name", "key"), [("consumer", "group.id"), ("producer", "bootstrap.servers")])
def test_file_without_a_needed_setting_is_named(run: RunTool, files: Files, name: str, key: str) -> None:
    path: Path = getattr(files, name)
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith(key)))
    outcome = run(mirror_maker.main, *files.options, "--include", "t")
    assert outcome.status == 1
    assert f"{path} has no {key}" in outcome.stderr
