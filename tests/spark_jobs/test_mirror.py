"""Topics of one broker reach another one as they are; positions of groups are translated."""

import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row

from spark_jobs.mirror import JOB, source_options
from spark_jobs.mirroring import offset_syncs, sending, target_topics
from spark_jobs.mirroring.naming import TopicNames
from spark_jobs.mirroring.offset_syncs import GroupCheckpoints, OffsetSyncs, OffsetTranslation
from spark_jobs.mirroring.target_topics import TargetTopics
from spark_jobs.skeleton.commits import GroupOffsets
from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.unreadable import explained
from tests.spark_jobs.conftest import JobRunner, Sent, Topics
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.spark

START_MS = 1_700_000_000_000
# The records are years old: without this the first check of the target's retention, 30 s after its start, deletes them.
KEEPS_OLD_RECORDS = {"log.retention.ms": "-1"}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with BrokerProcess(tmp_path_factory.mktemp("target"), KEEPS_OLD_RECORDS) as broker:
        yield Topics(broker.bootstrap)


def mirror(job_runner: JobRunner, source: Topics, target: Topics, pattern: str, *flags: str, name: str = "ab") -> None:
    """Run the mirror to the end of the source's topics that match `pattern`."""
    checkpoint = str(job_runner.folder / name)
    servers = ["--bootstrap-servers", source.bootstrap, "--target-servers", target.bootstrap]
    aliases = ["--source-alias", name[0], "--target-alias", name[1]]
    job_runner.run(JOB, *servers, *aliases, "--checkpoint", checkpoint, "--app-id", name, "--topics", pattern, *flags)


def content(message: Message) -> tuple[Any, ...]:
    headers = [header for header in message.headers() or () if not header[0].startswith("mirror.")]
    return message.partition(), message.key(), message.value(), message.timestamp(), headers


def contents(topics: Topics, topic: str) -> list[tuple[Any, ...]]:
    return [content(message) for message in topics.read(topic)]


def sample(count: int, partitions: int = 2) -> list[Sent]:
    return [
        Sent(
            b"%d" % number if number % 5 else None,
            b"k%d" % (number % 3),
            number % partitions,
            START_MS + number,
            [("h", b"1")],
        )
        for number in range(count)
    ]


def test_records_keep_everything_and_new_partitions_and_settings_follow(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    stem = topics.new_name("copied")
    first = topics.create(stem, 2, {"max.message.bytes": "500000"})
    topics.send(first, sample(40))
    mirror(job_runner, topics, target, f"{stem}.*", "--sync-configs")
    assert contents(target, first) == contents(topics, first)
    origin = dict(target.read(first)[0].headers())
    assert (origin["mirror.origin"], origin["mirror.place"]) == (b"a", f"{first}/0/0".encode())
    topics.grow(first, 3)
    resource = ConfigResource(
        ResourceType.TOPIC,
        first,
        incremental_configs=[
            ConfigEntry("max.message.bytes", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("segment.ms", "900000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result()
    second = topics.create(stem, 1)
    topics.send(first, sample(9, partitions=3))
    topics.send(second, sample(3, partitions=1))
    mirror(job_runner, topics, target, f"{stem}.*", "--sync-configs")
    for topic in (first, second):
        assert contents(target, topic) == contents(topics, topic)
    resource = ConfigResource(ResourceType.TOPIC, first)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    configs = admin.describe_configs([resource])[resource].result()
    assert (configs["max.message.bytes"].value, configs["segment.ms"].value) == ("1048588", "900000")


def test_settings_that_would_change_or_reject_records_are_not_copied(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create(
        "appended",
        1,
        {
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "1",
            "min.insync.replicas": "2",
            "segment.ms": "900000",
        },
    )
    topics.send(topic, sample(5, partitions=1), {"acks": "1"})
    mirror(job_runner, topics, target, topic, "--sync-configs")
    times = [[message.timestamp()[1] for message in each.read(topic)] for each in (topics, target)]
    assert times[0] == times[1]
    assert len(times[0]) == 5
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    configs = admin.describe_configs([resource])[resource].result()
    assert (configs["min.insync.replicas"].value, configs["segment.ms"].value) == ("1", "900000")


def test_a_running_mirror_follows_a_partition_that_is_added(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("growing", 1)
    servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap]
    flags = [*servers, "--topics", topic, "--heartbeats", "", "--trigger", "100 milliseconds"]
    (query,) = job_runner.start(JOB, *flags)
    try:
        for partitions in (1, 2):
            if partitions == 2:
                topics.grow(topic, 2)
            topics.send(topic, sample(10, partitions))
            query.processAllAvailable()
    finally:
        query.stop()
    assert contents(target, topic) == contents(topics, topic)
    assert {message.partition() for message in target.read(topic)} == {0, 1}


def test_a_target_that_deletes_records_earlier_is_reported_once_in_one_line(
    topics: Topics, target: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    stem = topics.new_name("retained")
    compacted = {"cleanup.policy": "compact", "retention.ms": "5000"}
    configs = {"longer": {"retention.ms": "7000"}, "shorter": {"retention.ms": "5000"}, "compacted": compacted}
    topics.create_named(f"{stem}-for-ever", 1)
    target.create_named(f"{stem}-for-ever", 1, {"retention.ms": "8000"})
    for kind, config in configs.items():
        topics.create_named(f"{stem}-{kind}", 1, {"retention.ms": "6000"})
        target.create_named(f"{stem}-{kind}", 1, config)
    mirrored = TargetTopics(
        topics.client, target.client, TopicNames(f"{stem}.*"), replication_factor=1, sync_configs=False
    )
    mirrored.sync()
    topics.create_named(f"{stem}-new", 1, {"retention.ms": "6000"})  # the target's is for ever
    mirrored.sync()
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    shorter = f"{stem}-for-ever (8000, -1 at the source), {stem}-shorter (5000, 6000 at the source)"
    assert f"retention.ms is shorter for {shorter}. " in line


def test_a_topic_that_the_target_does_not_know_yet_is_compared_later(
    topics: Topics, target: Topics, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.new_name("just-made")
    topics.create_named(topic, 1, {"retention.ms": "6000"})
    target.create_named(topic, 1, {"retention.ms": "5000"})
    mirrored = TargetTopics(topics.client, target.client, TopicNames(topic), replication_factor=1, sync_configs=False)
    of_both = [{topic: 6000.0}, dict[str, float]()]
    with monkeypatch.context() as patch:
        patch.setattr(target_topics, "_retention_ms", lambda *_: of_both.pop(0))
        mirrored.sync()
    assert of_both == []
    assert "retention.ms is shorter" not in caplog.text
    mirrored.sync()
    mirrored.sync()
    assert caplog.text.count(f"retention.ms is shorter for {topic} (5000, 6000 at the source)") == 1


def test_offset_pairs_that_the_target_rejects_are_reported(target: Topics) -> None:
    topic = target.create("rejected-syncs", 1, {"max.message.bytes": "1"})
    syncs = OffsetSyncs(target.client, topic, "a")
    with pytest.raises(JobError, match=f"{topic}: offset pairs were not stored: .*[Mm]essage size too large"):
        syncs.add([sending.Run("t", 0, 0, "t", 0, 5)])


def test_offset_pairs_of_transactions_need_one_record_a_batch_and_survive_a_restart(target: Topics) -> None:
    topic = target.create("syncs", 1, dict(offset_syncs.OFFSET_SYNCS_CONFIG))
    syncs = OffsetSyncs(target.client, topic, "a")
    for batch in range(5):
        first = 1_000 * batch
        syncs.add(sending.Run("t", 0, 2 * each, "t", 0, each) for each in range(first, first + 1_000))
    syncs.add([sending.Run("t", 0, 9_998, "t", 0, 4_999)])  # says nothing new
    stored = target.read(topic)
    assert [message.key() for message in stored] == [b"a/t/0"] * 5
    assert max(len(message.value()) for message in stored) < 4_000
    restarted, other = (OffsetSyncs(target.client, topic, alias) for alias in "ab")
    positions = range(0, 10_000, 7)
    assert [restarted.translation.translate("t", 0, each) for each in positions] == [
        syncs.translation.translate("t", 0, each) for each in positions
    ]
    assert other.translation.translate("t", 0, 0) is None


def test_a_topic_of_pairs_that_is_not_compacted_is_reported(target: Topics, caplog: pytest.LogCaptureFixture) -> None:
    topics = [target.create("syncs", 1, {"cleanup.policy": policy}) for policy in ("delete", "compact,delete")]
    for topic in topics:
        target_topics.warn_unless_compacted(target.client, topic)
    assert caplog.messages == [f"{topics[0]} grows without end: it has cleanup.policy=delete, expected compact"]


def test_a_batch_that_is_repeated_has_the_same_ids_under_the_new_name(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    topic, renamed = topics.create("old-name", 1), topics.new_name("new-name")
    topics.send(topic, sample(5, partitions=1))
    for _ in range(2):
        mirror(job_runner, topics, target, topic, "--rename", f"{topic}={renamed}")
        (job_runner.folder / "ab" / "commits" / "0").unlink()  # as if the driver was killed before the commit
    places = [dict(message.headers())["mirror.place"].decode() for message in target.read(renamed)]
    assert places == [f"{topic}/0/{offset}" for offset in range(5)] * 2
    assert [message.value() for message in target.read(renamed)][:5] == [
        message.value() for message in topics.read(topic)
    ]


def test_a_mirror_whose_checkpoint_is_lost_continues_at_the_offsets_of_its_group(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("lost", 2)
    servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap]
    flags = [*servers, "--topics", topic, "--commit-group", f"{topic}-mirror", "--heartbeats", ""]
    topics.send(topic, sample(10))
    assert job_runner.supervise(JOB, *flags) == 0
    shutil.rmtree(job_runner.folder / "checkpoint")
    with pytest.raises(JobError, match=f"is new, but group {topic}-mirror has offsets in {topic}"):
        job_runner.supervise(JOB, *flags)
    topics.send(topic, sample(10))
    assert job_runner.supervise(JOB, *flags, "--from-group") == 0
    assert contents(target, topic) == contents(topics, topic)


def test_two_mirrors_in_opposite_directions_do_not_loop(topics: Topics, target: Topics, job_runner: JobRunner) -> None:
    topic = topics.create("both", 1)
    target.create_named(topic, 1)
    topics.send(topic, [Sent(b"from a")])
    target.send(topic, [Sent(b"from b")])
    for _ in range(2):
        mirror(job_runner, topics, target, topic)
        mirror(job_runner, target, topics, topic, name="ba")
    for each in (topics, target):
        assert sorted(message.value() for message in each.read(topic)) == [b"from a", b"from b"]


def test_groups_continue_at_the_target_without_loss(topics: Topics, target: Topics, job_runner: JobRunner) -> None:
    topic = topics.create("moved", 1)
    renamed = f"A.{topic}"
    target.create_named(renamed, 1)
    target.send(renamed, [Sent(b"older")] * 5)
    topics.send(topic, [Sent(b"%d" % number) for number in range(20)])
    flags = ["--prefix", "A.", "--groups", "readers-.*"]
    done, ahead = GroupOffsets(topics.client, "readers-1"), GroupOffsets(topics.client, "readers-2")
    done.commit({topic: {0: 12}})
    ahead.commit({topic: {0: 20}})
    mirror(job_runner, topics, target, topic, *flags)
    done.close()
    ahead.close()
    assert committed(target, "readers-1", renamed) == 17
    assert committed(target, "readers-2", renamed) == 25
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "readers-1"})
    consumer.subscribe([renamed])
    message = consumer.poll(30)
    consumer.close()
    assert message.value() == b"12"
    topics.send(topic, [Sent(b"20")])
    mirror(job_runner, topics, target, topic, *flags)
    assert committed(target, "readers-2", renamed) == 25


def test_positions_in_topics_with_other_partitions_are_not_translated(
    topics: Topics, target: Topics, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create("spread", 1)
    target.create_named(topic, 3)
    topics.send(topic, [Sent(b"%d" % number, b"k%d" % number) for number in range(20)])
    group = GroupOffsets(topics.client, f"{topic}-readers")
    group.commit({topic: {0: 12}})
    group.close()
    mirror(job_runner, topics, target, topic, "--groups", f"{topic}-readers")
    assert len({message.partition() for message in target.read(topic)}) > 1
    assert [committed(target, f"{topic}-readers", topic, partition) for partition in range(3)] == [-1001] * 3
    assert caplog.text.count(f"the positions of groups are not translated for {topic}: ") == 1


def test_positions_of_groups_follow_while_the_source_has_no_new_records(
    topics: Topics, target: Topics, job_runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("idle", 1)
    topics.send(topic, sample(20, partitions=1))
    group = GroupOffsets(topics.client, f"{topic}-readers")
    group.commit({topic: {0: 5}})
    flags = ["--groups", f"{topic}-readers", "--heartbeats", ""]
    mirror(job_runner, topics, target, topic, *flags)
    group.commit({topic: {0: 7}})
    mirror(job_runner, topics, target, topic, *flags)
    assert committed(target, f"{topic}-readers", topic) == 7
    monkeypatch.setattr("spark_jobs.mirror._SYNC_INTERVAL_S", 0.1)
    servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap]
    names = ["--checkpoint", str(job_runner.folder / "ab"), "--app-id", "ab", "--source-alias", "a"]
    (query,) = job_runner.start(JOB, *servers, *names, "--topics", topic, *flags, "--trigger", "100 milliseconds")
    try:
        group.commit({topic: {0: 20}})
        deadline = time.monotonic() + 30
        while committed(target, f"{topic}-readers", topic) != 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        query.stop()
        group.close()


def test_positions_at_the_target_that_are_unknown_are_not_set_back(
    topics: Topics, target: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create("unknown", 1)
    target.create_named(topic, 1)
    for each, offset in ((topics, 5), (target, 9)):
        each.send(topic, sample(10, partitions=1))
        group = GroupOffsets(each.client, f"{topic}-readers")
        group.commit({topic: {0: offset}})
        group.close()

    class Loading(AdminClient):
        def __init__(self, settings: dict[str, str]) -> None:
            super().__init__(settings)
            self._is_target = settings["bootstrap.servers"] == target.bootstrap

        def list_consumer_group_offsets(self, requests: list[Any], **settings: Any) -> dict[str, Future[Any]]:
            if not self._is_target:
                return super().list_consumer_group_offsets(requests, **settings)
            future: Future[Any] = Future()
            future.set_exception(KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)))
            return {requests[0].group_id: future}

    translation = OffsetTranslation()
    translation.add(sending.Run(topic, 0, 0, topic, 0, 0))
    checkpoints = GroupCheckpoints(topics.client, target.client, f"{topic}-readers")
    with monkeypatch.context() as patch:
        patch.setattr(offset_syncs, "AdminClient", Loading)
        assert checkpoints.sync(translation, lambda _: True) == {}
    assert committed(target, f"{topic}-readers", topic) == 9


def committed(topics: Topics, group: str, topic: str, partition: int = 0) -> int:
    admin = AdminClient({"bootstrap.servers": topics.bootstrap})
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])]
    return int(admin.list_consumer_group_offsets(request)[group].result().topic_partitions[0].offset)


def test_exact_offsets_are_equal_and_a_lost_checkpoint_repeats_nothing(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("exact", 2)
    topics.send(topic, sample(30))
    mirror(job_runner, topics, target, topic, "--exact-offsets", "--no-origin")
    topics.send(topic, sample(10))
    mirror(job_runner, topics, target, topic, "--exact-offsets", "--no-origin", name="cd")
    assert [message.offset() for message in target.read(topic)] == [message.offset() for message in topics.read(topic)]
    assert contents(target, topic) == contents(topics, topic)


@pytest.mark.parametrize("case", ["the target has a record", "the source has a gap", "the target has more partitions"])
def test_exact_offsets_are_refused_where_they_cannot_hold(
    case: str, topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    topic = topics.create("inexact", 1)
    topics.send(topic, sample(4, partitions=1))
    if case == "the source has a gap":
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result()
        message = f"{topic}-0 offset 2 would get offset 0 at the target: the source has a gap"
    elif case == "the target has more partitions":
        target.create_named(topic, 2)
        message = f"{topic} has 1 partitions, {topic} at the target 2: expected the same number"
    else:
        target.create_named(topic, 1)
        target.send(topic, [Sent(b"other")] * 2)
        message = f"{topic}-0 offset 1 is another record at the target: something else writes there"
    with pytest.raises(StreamingQueryException, match=message):
        mirror(job_runner, topics, target, topic, "--exact-offsets")


def test_exactly_once_sends_each_batch_in_a_transaction(topics: Topics, target: Topics, job_runner: JobRunner) -> None:
    topic = topics.create("once", 2)
    topics.send(topic, sample(30))
    for _ in range(2):
        mirror(job_runner, topics, target, topic, "--exactly-once")
    assert contents(target, topic) == contents(topics, topic)
    with pytest.raises(JobError, match=r"ab-batches has batch 0 of ab, but checkpoint .* is new"):
        mirror(job_runner, topics, target, topic, "--exactly-once", "--checkpoint", str(job_runner.folder / "new"))


def test_batches_in_transactions_are_limited_unless_a_number_is_given(job_runner: JobRunner) -> None:
    def limit(*flags: str) -> str | None:
        return source_options(job_runner.parse(JOB, "--target-servers", "t:1", *flags)).get("maxOffsetsPerTrigger")

    assert limit() is None
    assert limit("--exactly-once") == "1000000"
    assert limit("--exactly-once", "--max-offsets-per-trigger", "7") == "7"


def test_tasks_of_a_process_share_a_producer_until_one_fails_or_partitions_are_added(
    topics: Topics, target: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Producer] = []

    def make(settings: dict[str, Any]) -> Producer:
        made.append(Producer(settings))
        return made[-1]

    monkeypatch.setattr(sending, "Producer", make)
    topic = target.create("shared", 1, {"max.message.bytes": "1000"})

    def send(value: bytes, partition: int = 0, partitions: int = 1) -> int:
        """Send a record as a task does; return how many producers there have been."""
        counts = {topic: partitions}
        mirroring = sending.Mirroring(target.client, TopicNames(".*"), counts, counts, "a", "b", mark_origin=False)
        row = Row(topic=topic, partition=partition, offset=0, key=None, value=value, headers=None, timestamp_ms=0)
        list(sending.send([row], mirroring))
        return len(made)

    assert [send(b"1"), send(b"2")] == [1, 1]
    target.grow(topic, 2)
    assert send(b"3", 1, 2) == 2
    with pytest.raises(JobError, match="1 records were refused by the target"):
        send(b"x" * 2000, 1, 2)
    assert send(b"4", 1, 2) == 3
    assert sorted(message.value() for message in target.read(topic)) == [b"1", b"2", b"3", b"4"]
    sending._idle_producers.clear()  # it would outlive the broker


def test_settings_of_producers_reach_the_transactional_one(
    topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    longer_than_brokers_permit = ["--target-option", "transaction.timeout.ms=1000000"]
    with pytest.raises(JobError, match=r"transaction.timeout.ms=1000000 exceeds transaction.max.timeout.ms"):
        mirror(job_runner, topics, target, "none", "--exactly-once", *longer_than_brokers_permit)


class TerminateAtCanary(logging.Handler):
    """Sends SIGTERM to this process when the mirror has reported the delay of a canary."""

    def emit(self, record: logging.LogRecord) -> None:
        if "ms from source to target" in record.getMessage():
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_canary_reaches_the_target_and_its_delay_is_logged(
    topics: Topics, target: Topics, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "spark_jobs")
    canary, handler = topics.new_name("canary"), TerminateAtCanary()
    servers = ["--bootstrap-servers", topics.bootstrap, "--target-servers", target.bootstrap]
    aliases = ["--source-alias", "a", "--target-alias", "b", "--prefix", "A."]
    logging.getLogger("spark_jobs").addHandler(handler)
    try:
        flags = [*servers, *aliases, "--topics", "none", "--canary", canary, "--trigger", "100 milliseconds"]
        assert job_runner.supervise(JOB, *flags) == 0
    finally:
        logging.getLogger("spark_jobs").removeHandler(handler)
    (sent,) = topics.read(canary)
    (stored,) = target.read(f"A.{canary}")
    assert (stored.key(), stored.value()) == (b"a->b", sent.value())
    (line,) = [text for text in caplog.messages if "ms from source to target" in text]
    assert 0 <= int(line.removeprefix(f"{canary}: ").split()[0]) < 60_000
    assert b"\x00\x01a\x00\x01b" in {message.key() for message in target.read("heartbeats")}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--exactly-once", "--groups", ".*"], "--exactly-once: not allowed with"),
        (["--target-alias", "a"], "are both 'a': expected two names"),
        (["--blacklist", "(?P<of_python>x)"], r"--topics and --blacklist: .*\(\?P<of_python>x\)"),
    ],
)
def test_contradictions_are_refused(
    flags: list[str], message: str, topics: Topics, target: Topics, job_runner: JobRunner
) -> None:
    with pytest.raises(JobError, match=message):
        mirror(job_runner, topics, target, "none", *flags)


def test_a_record_whose_timestamp_spark_cannot_hold_is_named(
    job_runner: JobRunner, topics: Topics, target: Topics
) -> None:
    topic = topics.create("nanoseconds", 2)
    producer = Producer(topics.client)
    for timestamp in (START_MS, START_MS * 10**6):
        producer.produce(topic, b"v", partition=1, timestamp=timestamp)
        assert producer.flush(30) == 0
    with pytest.raises(StreamingQueryException) as failure:
        mirror(job_runner, topics, target, topic, name="ns")
    line = explained(failure.value, topics.client, lambda: [topic])
    assert line.startswith("long overflow: Spark holds timestamps up to 9223372036854775 ms")
    assert f": topic {topic}, partition 1, offset 1. Start after" in line
