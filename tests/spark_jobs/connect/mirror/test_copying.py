"""The source connector and its tasks between two brokers."""

from __future__ import annotations

import logging
import threading
from itertools import pairwise

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_jobs.connect.base.api import SourceConnector, SourceTask
from spark_jobs.connect.base.errors import ConfigError, ConnectError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.mirror.checkpoint import MirrorCheckpointConnector
from spark_jobs.connect.mirror.connector_settings import SOURCE_DEFINITION, ConnectorSettings
from spark_jobs.connect.mirror.formats import OffsetSync
from spark_jobs.connect.mirror.heartbeat import MirrorHeartbeatConnector
from spark_jobs.connect.mirror.source import MirrorSourceConnector
from spark_jobs.connect.mirror.source_task import OUTSTANDING_SYNCS_MAX, SyncWriter
from tests.spark_jobs.connect.mirror.flows import (
    DEADLINE_S,
    Flow,
    create_topic,
    partition_counts,
    produce,
    stored,
    until,
)


def syncs(flow: Flow, bootstrap: str, alias: str) -> list[OffsetSync]:
    records = stored(bootstrap, f"mm2-offset-syncs.{alias}.internal")
    return [OffsetSync.from_record(record.key(), record.value()) for record in records]


def test_records_are_copied_whole_to_the_same_partition(flow: Flow) -> None:
    topic = flow.create_topic("orders", 2)
    fields = {"key": b"k", "headers": [("h", b"1"), ("h", None)], "timestamp": 1_700_000_000_123}
    produce(flow.source, topic, [b"value", None, b""], partition=1, **fields)
    with flow.copying() as task:
        task.copy(3)
    copies = stored(flow.target, flow.remote(topic), 1)
    assert [copy.value() for copy in copies] == [b"value", None, b""]
    assert {copy.key() for copy in copies} == {b"k"}
    assert copies[0].headers() == [("h", b"1"), ("h", None)]
    assert copies[0].timestamp()[1] == 1_700_000_000_123


def test_a_task_continues_behind_the_offsets_that_kafkas_mirror_has_stored(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    produce(flow.source, topic, [b"0", b"1", b"2", b"3"])
    flow.offsets.set({"topic": topic, "partition": 0, "cluster": flow.source_alias}, {"offset": 1})
    with flow.copying() as task:
        task.copy(2)
    assert [copy.value() for copy in stored(flow.target, flow.remote(topic))] == [b"2", b"3"]
    assert flow.offsets.offset({"topic": topic, "partition": 0, "cluster": flow.source_alias}) == {"offset": 3}


def test_a_task_that_starts_at_the_latest_copies_what_is_written_later(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    produce(flow.source, topic, [b"old"])
    with flow.copying(consumer_auto_offset_reset="latest") as task:
        copied: list[SourceRecord] = []

        def is_copied() -> object:
            produce(flow.source, topic, [b"new"])
            copied.extend(task.step())
            return copied

        until(is_copied, "a new record is copied")
    assert {record.value for record in copied} == {b"new"}


def test_a_task_without_a_place_to_begin_fails_with_the_partition(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    with pytest.raises(ConnectError, match=f"{topic}-0 has no stored offset, and auto.offset.reset is error"):
        flow.copying(consumer_auto_offset_reset="none")


def test_pairs_of_offsets_are_written_at_the_first_record_every_lag_and_at_the_end(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    produce(flow.source, topic, [b"x"] * 25)
    create_topic(flow.target, flow.remote(topic))
    produce(flow.target, flow.remote(topic), [b"y"] * 5)
    with flow.copying(offset_lag_max=10, consumer_max_poll_records=1) as task:
        task.copy(25)
        task.run(lambda: syncs(flow, flow.source, flow.target_alias)[-1].upstream_offset == 24, "the end is written")
    found = syncs(flow, flow.source, flow.target_alias)
    assert {sync.downstream_offset - sync.upstream_offset for sync in found} == {5}
    offsets = [sync.upstream_offset for sync in found]
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
    assert all(later - earlier <= 11 for earlier, later in pairwise(offsets))
    assert partition_counts(flow.source)[f"mm2-offset-syncs.{flow.target_alias}.internal"] == 1


def test_pairs_may_be_at_the_target_or_nowhere(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    produce(flow.source, topic, [b"x"])
    with flow.copying(**{"offset-syncs_topic_location": "target"}) as task:
        task.run(lambda: syncs(flow, flow.target, flow.source_alias), "a pair is written at the target")
    assert f"mm2-offset-syncs.{flow.target_alias}.internal" not in partition_counts(flow.source)
    with flow.copying(**{"emit_offset-syncs_enabled": "false"}) as task:
        produce(flow.source, topic, [b"y"])
        task.copy(1)
    assert len(syncs(flow, flow.target, flow.source_alias)) == 1


def test_aborted_transactions_are_copied_unless_the_consumer_reads_committed_ones(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    producer = Producer({"bootstrap.servers": flow.source, "transactional.id": flow.name("id")})
    producer.init_transactions(DEADLINE_S)
    for value, ends in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(DEADLINE_S)
        ends(DEADLINE_S)
    with flow.copying(consumer_isolation_level="read_committed") as task:
        task.copy(1)
    flow.offsets.stored.clear()
    with flow.copying() as task:
        task.copy(2)
    values = [copy.value() for copy in stored(flow.target, flow.remote(topic))]
    assert values == [b"committed", b"aborted", b"committed"]


def test_a_gap_at_the_source_makes_a_pair(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    producer = Producer({"bootstrap.servers": flow.source, "transactional.id": flow.name("id")})
    producer.init_transactions(DEADLINE_S)
    for value in (b"0", b"2"):  # offset 1 is the marker of the first transaction
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(DEADLINE_S)
    with flow.copying(consumer_max_poll_records=1) as task:
        task.run(lambda: len(syncs(flow, flow.source, flow.target_alias)) >= 2, "both pairs are written")
    assert [sync[2:] for sync in syncs(flow, flow.source, flow.target_alias)] == [(0, 0), (2, 1)]


def test_topics_of_others_and_of_mirrors_are_left_out(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    flow.create_topic("secret")
    create_topic(flow.source, f"{flow.target_alias}.{topic}")
    create_topic(flow.source, flow.name("x.internal"))
    create_topic(flow.source, f"{flow.source_alias}other")
    configs = flow.start(
        MirrorSourceConnector(),
        flow.config(topics=f".*{flow.source_alias}-.*", topics_exclude=".*secret"),
    )
    (config,) = configs
    assigned = [each for each in config["task.assigned.partitions"].split(",") if not each.startswith("heartbeats")]
    assert assigned == [f"{topic}-0"]
    assert flow.remote(topic) in partition_counts(flow.target)
    assert flow.remote(flow.name("secret")) not in partition_counts(flow.target)


def test_partitions_are_dealt_out_in_turn(flow: Flow) -> None:
    first, second = flow.create_topic("a", 3), flow.create_topic("b", 2)
    configs = flow.start(MirrorSourceConnector(), flow.config(topics_exclude="heartbeats"))
    parts = [config["task.assigned.partitions"].split(",") for config in configs]
    assert parts == [[f"{first}-0", f"{first}-2", f"{second}-1"], [f"{first}-1", f"{second}-0"]]
    assert [config["task.index"] for config in configs] == ["0", "1"]


def test_new_topics_and_partitions_are_found_and_reconfigure_the_tasks(flow: Flow) -> None:
    topic = flow.create_topic("orders", 1)
    connector = MirrorSourceConnector()
    flow.start(connector, flow.config(refresh_topics_interval_seconds=0))
    assert flow.worker.reconfigurations == 0
    admin = AdminClient({"bootstrap.servers": flow.source})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    later = flow.create_topic("later")
    until(lambda: len(connector.task_configs(10)) == 4, "all partitions are found")
    until(lambda: flow.worker.reconfigurations, "tasks are reconfigured")
    counts = partition_counts(flow.target)
    assert (counts[flow.remote(topic)], counts[flow.remote(later)]) == (3, 1)


def test_a_source_that_is_down_does_not_fail_the_connector(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    config = {**flow.config(admin_timeout_ms=200), "source.cluster.bootstrap.servers": "127.0.0.1:1"}
    with caplog.at_level(logging.ERROR):
        assert flow.start(MirrorSourceConnector(), config) == []
    assert "the search for topics failed, and is tried again" in caplog.text
    assert f"cluster {flow.source_alias} does not list its topics" in caplog.text


def test_a_flow_that_is_not_enabled_has_no_tasks_and_creates_nothing(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    assert flow.start(MirrorSourceConnector(), flow.config(enabled="false")) == []
    assert flow.remote(topic) not in partition_counts(flow.target)


def test_invalid_assignments_are_refused_by_name(flow: Flow) -> None:
    task = MirrorSourceConnector.task()
    with pytest.raises(ConfigError, match=r"Invalid value orders for configuration task\.assigned\.partitions"):
        task.start({**flow.config(), "task.assigned.partitions": "orders"})


def test_a_task_that_waits_for_records_ends_at_once(flow: Flow) -> None:
    flow.create_topic("orders")
    worker = flow.copying(consumer_poll_timeout_ms=3_600_000)
    polled: list[object] = []
    thread = threading.Thread(target=lambda: polled.append(worker.task.poll()))
    thread.start()
    worker.task.stop()
    thread.join(DEADLINE_S)
    assert polled == [[]]
    assert worker.task.poll() == []
    worker.task.stop()


@pytest.mark.parametrize("connector", [MirrorSourceConnector, MirrorCheckpointConnector, MirrorHeartbeatConnector])
def test_a_task_that_was_never_started_can_be_stopped(connector: type[SourceConnector]) -> None:
    task = connector.task()
    assert isinstance(task, SourceTask)
    task.stop()
    connector().stop()


def test_pairs_of_records_that_are_acknowledged_after_a_stop_are_written(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    produce(flow.source, topic, [b"x"] * 3)
    worker = flow.copying()
    records = worker.copy(3)
    worker.task.stop()
    worker.task.commit_record(records[-1], 0, 7)
    worker.task.commit()
    worker.task.stop()
    assert syncs(flow, flow.source, flow.target_alias)[-1] == OffsetSync(topic, 0, 2, 7)


def test_pairs_never_make_a_task_wait(flow: Flow) -> None:
    """The cluster of the pairs is down: at most ten are under way, and later ones replace those that wait."""
    settings = {"offset.lag.max": "0", "source.producer.bootstrap.servers": "127.0.0.1:1"}
    writer = SyncWriter(ConnectorSettings(SOURCE_DEFINITION, {**flow.config(), **settings}))
    for offset in range(100):
        for partition in range(20):
            writer.add("orders", partition, offset, offset)
    writer.write_delayed()
    assert writer.outstanding == OUTSTANDING_SYNCS_MAX
    assert writer.waiting == 20


def test_a_batch_size_that_is_no_number_is_refused(flow: Flow) -> None:
    flow.create_topic("orders")
    with pytest.raises(ConfigError, match=r"Invalid value many for configuration max\.poll\.records"):
        flow.copying(consumer_max_poll_records="many")
