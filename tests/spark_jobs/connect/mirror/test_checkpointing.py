"""The checkpoint connector and its task between two brokers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.mirror.checkpoint import MirrorCheckpointConnector
from spark_jobs.connect.mirror.checkpoints import Checkpoints
from spark_jobs.connect.mirror.client import MirrorClient
from spark_jobs.connect.mirror.cluster import Position
from spark_jobs.connect.mirror.formats import Checkpoint, OffsetSync
from tests.spark_jobs.connect.mirror.flows import (
    DEADLINE_S,
    Flow,
    TaskWorker,
    commit,
    committed,
    create_topic,
    partition_counts,
    produce,
    until,
)


def write_pairs(flow: Flow, topic: str, *pairs: tuple[int, int], location: str = "source") -> None:
    """Write pairs of a partition, as the source task does."""
    bootstrap, alias = {
        "source": (flow.source, flow.target_alias),
        "target": (flow.target, flow.source_alias),
    }[location]
    name = f"mm2-offset-syncs.{alias}.internal"
    if name not in partition_counts(bootstrap):
        create_topic(bootstrap, name, cleanup_policy="compact")
    for pair in pairs:
        sync = OffsetSync(topic, 0, *pair)
        produce(bootstrap, name, [sync.value()], key=sync.key())


def checkpoints(worker: TaskWorker, count: int) -> Sequence[Checkpoint]:
    return [Checkpoint.from_record(record.key, record.value) for record in worker.copy(count)]


def test_a_position_becomes_a_checkpoint_and_then_only_if_it_moves(flow: Flow) -> None:
    topic, group = flow.create_topic("orders"), flow.name("group")
    produce(flow.source, topic, [b"x"] * 700)
    commit(flow.source, group, {(topic, 0): 596})
    write_pairs(flow, topic, (495, 500), (596, 600))
    with flow.checkpointing() as task:
        assert checkpoints(task, 1) == [Checkpoint(group, flow.remote(topic), 0, 596, 600)]
        assert not task.step()
        commit(flow.source, group, {(topic, 0): 650})
        assert checkpoints(task, 1) == [Checkpoint(group, flow.remote(topic), 0, 650, 601)]
        write_pairs(flow, topic, (650, 660))
        assert checkpoints(task, 1) == [Checkpoint(group, flow.remote(topic), 0, 650, 660)]
        commit(flow.source, group, {(topic, 0): 600})
        assert checkpoints(task, 1) == [Checkpoint(group, flow.remote(topic), 0, 600, 601)]


def test_a_task_that_restarts_goes_on_from_its_checkpoints(flow: Flow) -> None:
    topic, group = flow.create_topic("orders"), flow.name("group")
    produce(flow.source, topic, [b"x"] * 700)
    write_pairs(flow, topic, (100, 100), (400, 400), (500, 500))
    commit(flow.source, group, {(topic, 0): 500})
    with flow.checkpointing() as task:
        assert [each.downstream_offset for each in checkpoints(task, 1)] == [500]
    with flow.checkpointing() as task:
        task.step()
        assert not task.step()
        commit(flow.source, group, {(topic, 0): 450})  # between pairs that were there before
        assert [each.downstream_offset for each in checkpoints(task, 1)] == [401]


def test_positions_of_idle_groups_are_committed_at_the_target(flow: Flow) -> None:
    topic, group, busy = flow.create_topic("orders"), flow.name("idle"), flow.name("busy")
    produce(flow.source, topic, [b"x"] * 50)
    create_topic(flow.target, flow.remote(topic))
    for name in (group, busy):
        commit(flow.source, name, {(topic, 0): 20})
    write_pairs(flow, topic, (20, 30))
    member = Consumer({"bootstrap.servers": flow.target, "group.id": busy, "enable.auto.commit": False})
    member.subscribe([flow.remote(topic)])
    until(lambda: member.poll(0.05) or member.assignment(), "the group has a member")
    with flow.checkpointing(sync_group_offsets_enabled="true", sync_group_offsets_interval_seconds=0) as task:
        task.run(lambda: committed(flow.target, group, flow.remote(topic)) == 30, "the position is committed")
        commit(flow.target, group, {(flow.remote(topic), 0): 45})
        commit(flow.source, group, {(topic, 0): 25})
        checkpoints(task, 1)
        task.step()
    assert committed(flow.target, group, flow.remote(topic)) == 45, "the target was ahead"
    member.close()
    assert committed(flow.target, busy, flow.remote(topic)) < 0, "the group has a member there"


def test_pairs_are_read_at_the_target_if_they_are_there(flow: Flow) -> None:
    topic, group = flow.create_topic("orders"), flow.name("group")
    produce(flow.source, topic, [b"x"] * 9)
    commit(flow.source, group, {(topic, 0): 5})
    write_pairs(flow, topic, (5, 7), location="target")
    with flow.checkpointing(**{"offset-syncs_topic_location": "target"}) as task:
        assert [each.downstream_offset for each in checkpoints(task, 1)] == [7]


def test_records_that_are_no_pairs_are_ignored(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    topic, group = flow.create_topic("orders"), flow.name("group")
    produce(flow.source, topic, [b"x"] * 9)
    commit(flow.source, group, {(topic, 0): 5})
    write_pairs(flow, topic, (5, 7))
    produce(flow.source, f"mm2-offset-syncs.{flow.target_alias}.internal", [b"junk"], key=b"junk")
    with flow.checkpointing() as task:
        assert [each.downstream_offset for each in checkpoints(task, 1)] == [7]
    assert "the key of an offset sync has 4 bytes" in caplog.text


def test_pairs_that_are_written_first_after_the_start_are_used(flow: Flow) -> None:
    topic, group = flow.create_topic("orders"), flow.name("group")
    produce(flow.source, topic, [b"x"] * 9)
    commit(flow.source, group, {(topic, 0): 5})
    with flow.checkpointing() as task:
        assert not task.step()
        write_pairs(flow, topic, (5, 7))
        assert [each.downstream_offset for each in checkpoints(task, 1)] == [7]


def test_groups_are_shared_among_tasks_and_others_are_left_out(flow: Flow) -> None:
    topic, other = flow.create_topic("orders"), flow.create_topic("secret")
    for suffix in ("a", "b", "c", "console"):
        commit(flow.source, flow.name(suffix), {(topic, 0): 0})
    commit(flow.source, flow.name("d"), {(other, 0): 0})
    connector = MirrorCheckpointConnector()
    configs = flow.start(connector, flow.config(topics=topic, groups_exclude=".*console"))
    assert [config["task.assigned.groups"] for config in configs] == [
        flow.name("a"),
        ",".join(map(flow.name, "bc")),
    ]
    assert [config["task.index"] for config in configs] == ["0", "1"]


def test_a_new_group_reconfigures_the_tasks(flow: Flow) -> None:
    topic = flow.create_topic("orders")
    connector = MirrorCheckpointConnector()
    assert flow.start(connector, flow.config(refresh_groups_interval_seconds=0)) == []
    commit(flow.source, flow.name("group"), {(topic, 0): 0})
    until(lambda: flow.worker.reconfigurations, "the group is found")
    assert len(connector.task_configs(2)) == 1


def test_a_connector_that_cannot_translate_is_refused_by_the_setting() -> None:
    connector = MirrorCheckpointConnector()
    assert list(connector.validate({"emit.offset-syncs.enabled": "false"})) == ["emit.offset-syncs.enabled"]
    assert list(connector.validate({"emit.checkpoints.enabled": "false"})) == ["emit.checkpoints.enabled"]
    assert connector.validate({"emit.checkpoints.enabled": "false", "enabled": "false"}) == {}


def test_a_client_reads_where_a_group_continues(flow: Flow) -> None:
    topic = f"{flow.source_alias}.checkpoints.internal"
    create_topic(flow.target, topic)
    create_topic(flow.target, f"{flow.source_alias}.heartbeats")
    create_topic(flow.target, f"{flow.source_alias}.far{flow.source_alias}.heartbeats")
    create_topic(flow.target, f"{flow.source_alias}.orders")
    for offset in (5, 6):
        for group in ("g", "other"):
            checkpoint = Checkpoint(group, f"{flow.source_alias}.orders", 1, 1, offset, "m")
            produce(flow.target, topic, [checkpoint.value()], key=checkpoint.key())
    with MirrorClient({"bootstrap.servers": flow.target}) as client:
        found = client.translated_positions("g", flow.source_alias, DEADLINE_S)
        assert found == {(f"{flow.source_alias}.orders", 1): Position(6, "m")}
        assert client.translated_positions("g", "unknown", DEADLINE_S) == {}
        assert topic in client.checkpoint_topics()
        assert f"{flow.source_alias}.orders" in client.remote_topics()
        assert topic not in client.remote_topics()
        assert {flow.source_alias, f"far{flow.source_alias}"} <= client.upstream_clusters()
        hops = [client.replication_hops(each) for each in (flow.source_alias, f"far{flow.source_alias}", "unknown")]
        assert hops == [1, 2, -1]


@pytest.mark.parametrize(
    ("upstream", "downstream", "is_new"),
    [(100, 200, False), (100, 201, True), (101, 200, False), (101, 199, False), (99, 150, True), (100, 199, False)],
)
def test_only_a_checkpoint_that_advances_or_follows_a_group_that_went_back_is_new(
    upstream: int, downstream: int, is_new: bool
) -> None:
    known = Checkpoints()
    assert known.is_new(Checkpoint("g", "t", 0, 100, 200))
    known.add(Checkpoint("g", "t", 0, 100, 200))
    assert known.is_new(Checkpoint("g", "t", 0, upstream, downstream)) is is_new


@pytest.mark.parametrize(
    ("partition", "offset", "text"),
    [
        ({"topic": "t", "partition": 0}, {"offset": 0}, "missing the 'group' key"),
        ({"group": 1, "topic": "t", "partition": 0}, {"offset": 0}, "invalid value 1 for the 'group' key"),
        ({"group": "g", "topic": "t", "partition": -1}, {"offset": 0}, "invalid value -1 for the 'partition' key"),
        ({"group": "g", "topic": "t", "partition": True}, {"offset": 0}, "invalid value True for the 'partition' key"),
        ({"group": "g", "topic": "t", "partition": 0}, {"offset": 1}, "invalid value 1 for the 'offset' key"),
        ({"group": "g", "topic": "t", "partition": 0}, {}, "invalid value None for the 'offset' key"),
    ],
)
def test_offsets_that_no_task_stores_are_refused(
    partition: dict[str, object], offset: dict[str, object], text: str
) -> None:
    connector = MirrorCheckpointConnector()
    with pytest.raises(ConnectError, match=text):
        connector.alter_offsets({}, [(partition, offset)])
    assert connector.alter_offsets({}, [(partition, None)])
