"""Sink tasks on a worker, with a real broker: what is delivered, and which offsets are committed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.connect.base.errors import ConnectError, RetriableError
from spark_jobs.connect.base.states import State, TargetState
from spark_jobs.connect.worker.topic_ids import topic_ids
from tests.spark_jobs.connect.worker.runs import (
    TOLERATED_AND_REPEATED,
    Run,
    headers,
    load_scripted,
    new_topic,
    read,
    send,
    unique,
    values,
)
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

SINK = "ScriptedSink"
QUICK = {
    "consumer.override.session.timeout.ms": "20000",
    "consumer.override.heartbeat.interval.ms": "100",
    "consumer.override.fetch.max.wait.ms": "20",
}
_, scripted = load_scripted()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with BrokerProcess(tmp_path_factory.mktemp("sink-tasks"), settings) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return new_topic(broker.bootstrap)


@pytest.fixture
def run(broker: BrokerProcess, tmp_path: Path) -> Iterator[Run]:
    with Run(broker.bootstrap, tmp_path) as found:
        yield found


@pytest.fixture
def lazy(broker: BrokerProcess, tmp_path: Path) -> Iterator[Run]:
    """A worker that commits only when a task asks for it, or ends."""
    with Run(broker.bootstrap, tmp_path, offset_flush_interval_ms="600000") as found:
        yield found


def put_values(script: Any) -> list[str]:
    return [value for found in script.arguments("put") for value in found]


def start(run: Run, script: Any, topic: str, **config: str) -> Any:
    quick = {key.replace(".", "_"): value for key, value in QUICK.items()}
    return run.start(script, SINK, topics=topic, **{**quick, **config})


def test_records_are_delivered_in_order_and_committed_after_the_flush(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a", "b", "c"], color=b"red")
    script = scripted.Script()
    task = start(run, script, topic)
    wait_until(lambda: put_values(script) == ["a", "b", "c"])
    record = script.calls[[call[0] for call in script.calls].index("put")][2][0]
    assert (record.key, record.original_topic, record.original_partition, record.offset) == ("key of a", topic, 0, 0)
    assert [(name, value) for name, _, value in record.headers] == [("color", "red")]
    wait_until(lambda: run.committed(task.connector, topic) == 3)
    assert {(topic, 0): 3} in script.arguments("flush")
    assert run.used_topics == [(task, topic)]


def test_a_put_that_fails_commits_nothing_and_fails_the_task(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a"])

    def put(*_: Any) -> None:
        raise ConnectError("the target is gone")

    script = scripted.Script(put=put)
    task = start(run, script, topic)
    run.wait_for(task, State.FAILED)
    assert "the target is gone" in run.trace(task)
    wait_until(lambda: script.count("stop") == 1)
    assert script.count("flush") == 0
    assert [call[0] for call in script.calls if call[0] in ("close", "stop")] == ["close", "stop"]
    assert run.committed(task.connector, topic) == -1


def test_a_retriable_error_of_put_delivers_the_same_records_again(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a", "b"])
    failures = iter([True, True])

    def put(task: Any, *_: Any) -> None:
        if next(failures, False):
            task.context.retry_after(1)
            raise RetriableError("not now")

    script = scripted.Script(put=put)
    task = start(run, script, topic)
    wait_until(lambda: script.count("put") == 3)
    assert script.arguments("put") == [["a", "b"]] * 3
    wait_until(lambda: run.committed(task.connector, topic) == 2)
    send(run.bootstrap, topic, ["c"])
    wait_until(lambda: put_values(script)[-1] == "c")


def test_a_stop_during_a_retry_commits_only_what_the_target_has(lazy: Run, topic: str) -> None:
    send(lazy.bootstrap, topic, ["a"])

    def put(task: Any, found: list[str], _records: Any) -> None:
        if "b" in found:
            task.context.retry_after(600_000)
            raise RetriableError("not now")

    script = scripted.Script(put=put)
    task = start(lazy, script, topic)
    wait_until(lambda: put_values(script) == ["a"])
    send(lazy.bootstrap, topic, ["b"])
    wait_until(lambda: put_values(script) == ["a", "b"])
    lazy.worker.stop_tasks([task])
    assert lazy.committed(task.connector, topic) == 1
    assert lazy.state(task) is State.UNASSIGNED


def test_a_stop_during_the_repetition_of_a_record_commits_what_is_before_it(lazy: Run, topic: str) -> None:
    send(lazy.bootstrap, topic, ["a"])
    script = scripted.Script()
    task = start(lazy, script, topic, **TOLERATED_AND_REPEATED)
    wait_until(lambda: put_values(script) == ["a"])
    send(lazy.bootstrap, topic, ["later", "b"])
    wait_until(lambda: "later" in scripted.Postpone.seen)
    lazy.worker.stop_tasks([task])
    assert put_values(script) == ["a"]
    assert lazy.committed(task.connector, topic) == 1
    assert lazy.state(task) is State.UNASSIGNED


def test_a_log_that_ends_before_the_committed_offset_is_read_from_where_its_group_begins(run: Run, topic: str) -> None:
    """As after an unclean election: the records that replace the lost ones are delivered too."""
    send(run.bootstrap, topic, ["a", "b", "c"])
    name = unique("short-log")
    committed = ConsumerGroupTopicPartitions(f"connect-{name}", [TopicPartition(topic, 0, 5)])
    admin = AdminClient({"bootstrap.servers": run.bootstrap})
    admin.alter_consumer_group_offsets([committed])[committed.group_id].result()
    script = scripted.Script()
    task = start(run, script, topic, name=name)
    wait_until(lambda: put_values(script) == ["a", "b", "c"])
    send(run.bootstrap, topic, ["d", "e", "f", "g"])
    wait_until(lambda: put_values(script) == ["a", "b", "c", "d", "e", "f", "g"])
    wait_until(lambda: run.committed(task.connector, topic) == 7)


def test_a_topic_that_is_created_again_has_another_id(broker: BrokerProcess, topic: str) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    before = topic_ids(client, [topic, "missing"])
    assert before.keys() == {topic}
    admin = AdminClient(client)
    admin.delete_topics([topic])[topic].result()
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    assert topic_ids(client, [topic]).keys() == {topic}
    assert topic_ids(client, [topic]) != before


def test_a_stop_commits_what_was_delivered(lazy: Run, topic: str) -> None:
    send(lazy.bootstrap, topic, ["a", "b"])
    script = scripted.Script()
    task = start(lazy, script, topic)
    wait_until(lambda: put_values(script) == ["a", "b"])
    lazy.worker.stop_tasks([task])
    assert lazy.committed(task.connector, topic) == 2
    assert [call[0] for call in script.calls][-3:] == ["flush", "close", "stop"]


def test_a_task_asks_for_a_commit(lazy: Run, topic: str) -> None:
    send(lazy.bootstrap, topic, ["a"])
    task = start(lazy, scripted.Script(put=lambda task, *_: task.context.request_commit()), topic)
    wait_until(lambda: lazy.committed(task.connector, topic) == 1)


def test_a_flush_that_fails_commits_nothing_and_the_records_are_delivered_again(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a", "b"])
    failures = iter([True])

    def flush(*_: Any) -> None:
        if next(failures, False):
            raise ConnectError("the target is full")

    script = scripted.Script(flush=flush)
    task = start(run, script, topic)
    wait_until(lambda: put_values(script) == ["a", "b", "a", "b"])
    wait_until(lambda: run.committed(task.connector, topic) == 2)
    assert run.state(task) is State.RUNNING


def test_a_task_whose_flush_fails_chooses_which_records_are_delivered_again(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a", "b"])
    failures = iter([True])

    def flush(task: Any, *_: Any) -> None:
        if next(failures, False):
            task.context.seek({(topic, 0): 1})
            raise ConnectError("the target is full")

    script = scripted.Script(flush=flush)
    task = start(run, script, topic)
    wait_until(lambda: run.committed(task.connector, topic) == 2)
    assert put_values(script) == ["a", "b", "b"]


def test_a_task_reads_again_from_where_it_seeks(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a", "b", "c"])
    wishes = iter([1])

    def put(task: Any, found: list[str], _records: Any) -> None:
        if "c" in found and (offset := next(wishes, None)) is not None:
            task.context.seek({(topic, 0): offset})

    script = scripted.Script(put=put)
    task = start(run, script, topic)
    wait_until(lambda: put_values(script) == ["a", "b", "c", "b", "c"])
    wait_until(lambda: run.committed(task.connector, topic) == 3)


def test_a_task_that_gets_a_partition_chooses_where_to_begin(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a", "b", "c"])
    script = scripted.Script(open=lambda task, partitions: task.context.seek(dict.fromkeys(partitions, 2)))
    start(run, script, topic)
    wait_until(lambda: put_values(script) == ["c"])


def test_a_paused_task_gets_nothing_until_it_is_resumed(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a"])
    script = scripted.Script()
    task = start(run, script, topic)
    wait_until(lambda: put_values(script) == ["a"])
    run.worker.change_target(task.connector, TargetState.PAUSED)
    run.wait_for(task, State.PAUSED)
    send(run.bootstrap, topic, ["b"])
    assert put_values(script) == ["a"]
    run.worker.change_target(task.connector, TargetState.STARTED)
    wait_until(lambda: put_values(script) == ["a", "b"])


def test_a_task_pauses_one_of_its_partitions(run: Run) -> None:
    topic = new_topic(run.bootstrap, partitions=2)
    script = scripted.Script(open=lambda task, partitions: task.context.pause((topic, 1)))
    send(run.bootstrap, topic, ["paused"], partition=1)
    start(run, script, topic)
    wait_until(lambda: script.count("open"))
    send(run.bootstrap, topic, ["a"], partition=0)
    wait_until(lambda: "a" in put_values(script))
    assert put_values(script) == ["a"]


def test_two_tasks_share_the_partitions_and_one_takes_over_when_the_other_ends(run: Run) -> None:
    topic = new_topic(run.bootstrap, partitions=2)
    script = scripted.Script()
    first = start(run, script, topic, name=unique("shared"))
    wait_until(lambda: script.arguments("open") == [[(topic, 0), (topic, 1)]])
    # A consumer that loses a partition before it knows where to begin may deliver what others have had.
    for partition in (0, 1):
        send(run.bootstrap, topic, [f"first {partition}"], partition=partition)
    wait_until(lambda: all(run.committed(first.connector, topic, each) == 1 for each in (0, 1)))
    other = scripted.Script()
    second = start(run, other, topic, name=first.connector, number="1")
    wait_until(lambda: [len(each) for each in other.arguments("open") + script.arguments("open")[1:]] == [1, 1])
    for partition in (0, 1):
        send(run.bootstrap, topic, [f"in {partition}"], partition=partition)
    wait_until(lambda: {"in 0", "in 1"} <= {*put_values(script), *put_values(other)})
    run.worker.stop_tasks([second])
    send(run.bootstrap, topic, ["later 0"], partition=0)
    send(run.bootstrap, topic, ["later 1"], partition=1)
    wait_until(lambda: {"later 0", "later 1"} <= set(put_values(script)))
    assert len(put_values(script) + put_values(other)) == 6, "a rebalance delivers nothing twice"


def test_topics_that_match_javas_expression_are_read_also_those_that_are_created_later(run: Run) -> None:
    name = unique("matching")
    first, other = new_topic(run.bootstrap, name=f"{name}-1"), new_topic(run.bootstrap, name=f"{name}-x")
    send(run.bootstrap, first, ["a"])
    send(run.bootstrap, other, ["not wanted"])
    script = scripted.Script()
    age = {"consumer_override_metadata_max_age_ms": "100"}
    start(run, script, "", topics_regex=rf"(?:{name})-\d+", **age)
    wait_until(lambda: put_values(script) == ["a"])
    later = new_topic(run.bootstrap, name=f"{name}-12")
    send(run.bootstrap, later, ["b"])
    wait_until(lambda: put_values(script) == ["a", "b"])


@pytest.mark.parametrize(
    "assignors",
    [
        "org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    ],
    ids=["default of Java", "cooperative"],
)
def test_a_cooperative_assignor_is_left_out(run: Run, topic: str, assignors: str) -> None:
    send(run.bootstrap, topic, ["a"])
    script = scripted.Script()
    start(run, script, topic, consumer_override_partition_assignment_strategy=assignors)
    wait_until(lambda: put_values(script) == ["a"])


REFUSE = {"transforms": "t", "transforms_t_type": "Refuse", "transforms_t_value": "bad"}


def test_a_transform_that_fails_fails_the_task_before_the_batch_is_delivered(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["bad"])
    script = scripted.Script()
    task = start(run, script, topic, **REFUSE)
    run.wait_for(task, State.FAILED)
    assert "bad is refused" in run.trace(task)
    run.worker.stop_tasks([task])
    assert put_values(script) == []
    assert run.committed(task.connector, topic) == -1


LETTERS = {
    "errors_tolerance": "all",
    "errors_deadletterqueue_topic_replication_factor": "1",
    "errors_deadletterqueue_context_headers_enable": "true",
}


def test_a_record_that_fails_is_a_dead_letter_with_its_place_and_reason_before_its_offset_is_committed(
    run: Run, topic: str
) -> None:
    letters = unique("letters")
    send(run.bootstrap, topic, ["a", "bad", "b"], color=b"red")
    script = scripted.Script()
    task = start(run, script, topic, errors_deadletterqueue_topic_name=letters, **REFUSE, **LETTERS)
    wait_until(lambda: put_values(script) == ["a", "b"])
    wait_until(lambda: run.committed(task.connector, topic) == 3)
    (letter,) = read(run.bootstrap, letters, 1)
    assert (letter.key(), letter.value()) == (b"key of bad", b"bad")
    found = headers(letter)
    prefix = "__connect.errors."
    assert found.pop(f"{prefix}exception.stacktrace").startswith("Traceback")
    assert found == {
        "color": "red",
        f"{prefix}topic": topic,
        f"{prefix}partition": "0",
        f"{prefix}offset": "1",
        f"{prefix}connector.name": task.connector,
        f"{prefix}task.id": "0",
        f"{prefix}stage": "TRANSFORMATION",
        f"{prefix}class.name": "Refuse",
        f"{prefix}exception.class.name": "spark_jobs.connect.base.errors.DataError",
        f"{prefix}exception.message": "bad is refused",
    }


def test_a_record_that_the_target_refuses_is_a_dead_letter(run: Run, topic: str) -> None:
    letters = unique("letters")
    send(run.bootstrap, topic, ["a"])

    def put(task: Any, _values: Any, records: Any) -> None:
        task.context.report_errant(records[0], ValueError("not for me"))

    start(run, scripted.Script(put=put), topic, errors_deadletterqueue_topic_name=letters, **LETTERS)
    (letter,) = read(run.bootstrap, letters, 1)
    assert values([letter]) == ["a"]
    assert headers(letter)["__connect.errors.stage"] == "TASK_PUT"
    assert headers(letter)["__connect.errors.exception.message"] == "not for me"


def test_a_record_that_the_target_refuses_after_later_commits_is_a_dead_letter(run: Run, topic: str) -> None:
    """A sink that writes in the background confirms offsets later than it is asked for them."""
    letters = unique("letters")
    confirmed = {"offset": 0}
    delivered: list[tuple[Any, Any]] = []

    def put(task: Any, _values: Any, records: Any) -> None:
        delivered.extend((task, record) for record in records)

    script = scripted.Script(put=put, pre_commit=lambda *_: {(topic, 0): confirmed["offset"]})
    send(run.bootstrap, topic, ["a", "b"])
    running = start(run, script, topic, errors_deadletterqueue_topic_name=letters, **LETTERS)
    wait_until(lambda: len(delivered) == 2)
    asked = script.count("pre_commit")
    wait_until(lambda: script.count("pre_commit") >= asked + 2)
    task, first = delivered[0]
    task.context.report_errant(first, ValueError("refused long after"))
    confirmed["offset"] = 2
    (letter,) = read(run.bootstrap, letters, 1)
    assert values([letter]) == ["a"]
    wait_until(lambda: run.committed(running.connector, topic) == 2)


def test_a_record_that_the_target_refuses_fails_the_task_if_that_is_not_tolerated(run: Run, topic: str) -> None:
    send(run.bootstrap, topic, ["a"])

    def put(task: Any, _values: Any, records: Any) -> None:
        task.context.report_errant(records[0], ValueError("not for me"))

    task = start(run, scripted.Script(put=put), topic)
    run.wait_for(task, State.FAILED)
    assert "not for me" in run.trace(task)


def test_a_start_that_fails_is_followed_by_stop(run: Run, topic: str) -> None:
    def fail(*_: Any) -> None:
        raise ConnectError("no such target")

    script = scripted.Script(start=fail)
    task = start(run, script, topic)
    run.wait_for(task, State.FAILED)
    wait_until(lambda: script.count("stop") == 1)
    assert "no such target" in run.trace(task)


def test_a_put_that_hangs_is_abandoned_and_disturbs_no_other_task(broker: BrokerProcess, tmp_path: Path) -> None:
    hanging, ended = threading.Event(), threading.Event()

    def put(*_: Any) -> None:
        hanging.set()
        ended.wait(30)

    with Run(broker.bootstrap, tmp_path, task_shutdown_graceful_timeout_ms="100") as run:
        topic, other = new_topic(run.bootstrap), new_topic(run.bootstrap)
        send(run.bootstrap, topic, ["a"])
        hung = start(run, scripted.Script(put=put), topic)
        script = scripted.Script()
        going_on = start(run, script, other)
        assert hanging.wait(20)
        run.worker.stop_tasks([hung])
        assert run.state(hung) is State.UNASSIGNED
        send(run.bootstrap, other, ["b"])
        wait_until(lambda: put_values(script) == ["b"])
        assert run.state(going_on) is State.RUNNING
        ended.set()
        wait_until(lambda: not any(each.name == f"task-{hung}" for each in threading.enumerate()))
