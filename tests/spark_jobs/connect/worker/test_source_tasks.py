"""Source tasks on a worker, with a real broker: what arrives in which order, and which offsets are stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.connect.base.errors import ConnectError, RetriableError
from spark_jobs.connect.base.records import SourceRecord
from spark_jobs.connect.base.states import State, TargetState
from spark_jobs.connect.worker.clients import PRODUCER_QUEUE
from tests.spark_jobs.connect.worker.runs import (
    TOLERATED_AND_REPEATED,
    Run,
    load_scripted,
    new_topic,
    read,
    send,
    unique,
    values,
)
from tests.support.broker import BrokerProcess
from tests.support.waiting import wait_until

SOURCE = "ScriptedSource"
PARTITION = {"part": "one"}
TOO_LARGE = "x" * 1_100_000
"""For the producer: its limit is a megabyte."""
ENABLED = {"exactly_once_source_support": "enabled"}
_, scripted = load_scripted()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"message.max.bytes": "20000", "offsets.topic.num.partitions": "1"}
    with BrokerProcess(tmp_path_factory.mktemp("source-tasks"), settings) as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return new_topic(broker.bootstrap)


@pytest.fixture
def run(broker: BrokerProcess, tmp_path: Path) -> Iterator[Run]:
    with Run(broker.bootstrap, tmp_path) as found:
        yield found


@pytest.fixture
def exactly_once(broker: BrokerProcess, tmp_path: Path) -> Iterator[Run]:
    with Run(broker.bootstrap, tmp_path, **ENABLED) as found:
        yield found


def record(topic: str, value: Any, offset: int) -> SourceRecord:
    return SourceRecord(dict(PARTITION), {"at": offset}, topic, value)


def batches(topic: str, *of_values: Sequence[str]) -> Callable[[Any], list[SourceRecord] | None]:
    """Return a `poll` that returns these batches, then nothing. The offset of a record counts from 1."""
    found = []
    offset = 0
    for each in of_values:
        found.append([record(topic, value, offset + number) for number, value in enumerate(each, 1)])
        offset += len(each)
    waiting = iter(found)
    return lambda task: next(waiting, None)


def offset_of(run: Run, connector: str) -> int | None:
    found = run.offsets.offset(connector, PARTITION)
    return None if found is None else int(found["at"])


def test_records_arrive_in_order_and_the_offset_of_the_last_one_is_stored(run: Run, topic: str) -> None:
    script = scripted.Script(poll=batches(topic, ["a", "b"], ["c"]))
    task = run.start(script, SOURCE)
    assert values(read(run.bootstrap, topic, 3)) == ["a", "b", "c"]
    wait_until(lambda: offset_of(run, task.connector) == 3)
    assert script.calls.index(("commit_record", "c", 0, 2)) < len(script.calls) - 1 - script.calls[::-1].index(
        ("commit",)
    )
    assert [call[1:] for call in script.calls if call[0] == "commit_record"] == [("a", 0, 0), ("b", 0, 1), ("c", 0, 2)]
    assert run.used_topics == [(task, topic)]


def test_a_second_run_starts_at_the_stored_offset(run: Run, topic: str) -> None:
    first = run.start(scripted.Script(poll=batches(topic, ["a"])), SOURCE)
    wait_until(lambda: offset_of(run, first.connector) == 1)
    run.worker.stop_tasks([first])
    positions: list[Any] = []
    script = scripted.Script(start=lambda task, _: positions.append(task.context.offset_reader.offset(PARTITION)))
    run.start(script, SOURCE, name=first.connector)
    wait_until(lambda: positions)
    assert positions == [{"at": 1}]


def test_equal_source_partitions_that_alternate_keep_the_last_offset(run: Run, topic: str) -> None:
    one, other = {"part": "one"}, {"part": "one"}
    records = [SourceRecord(each, {"at": number}, topic, "v") for number, each in enumerate([one, other, one, other])]
    waiting = iter([records[:3], records[3:], [records[2]._replace(source_offset={"at": 9})]])
    task = run.start(scripted.Script(poll=lambda task: next(waiting, None)), SOURCE)
    wait_until(lambda: offset_of(run, task.connector) == 9)


def test_a_record_that_the_broker_refuses_fails_the_task_and_its_offset_is_not_stored(run: Run, topic: str) -> None:
    task = run.start(scripted.Script(poll=batches(topic, ["x" * 100_000])), SOURCE)
    run.wait_for(task, State.FAILED)
    assert f"a record for topic {topic} was not acknowledged" in run.trace(task)
    run.worker.stop_tasks([task])
    assert offset_of(run, task.connector) is None


def test_a_record_that_is_too_large_fails_the_task_behind_the_stored_offset(run: Run, topic: str) -> None:
    script = scripted.Script(poll=batches(topic, ["a"], [TOO_LARGE, "b"]))
    task = run.start(script, SOURCE)
    run.wait_for(task, State.FAILED)
    assert "too large" in run.trace(task)
    wait_until(lambda: script.count("stop") == 1)
    assert offset_of(run, task.connector) == 1, "what was acknowledged before the failure need not be sent again"


def test_a_record_that_is_too_large_is_skipped_if_failures_are_tolerated(run: Run, topic: str) -> None:
    script = scripted.Script(poll=batches(topic, ["a"], [TOO_LARGE, "b"]))
    task = run.start(script, SOURCE, errors_tolerance="all")
    assert values(read(run.bootstrap, topic, 2)) == ["a", "b"]
    wait_until(lambda: offset_of(run, task.connector) == 3)
    assert ("commit_record", TOO_LARGE, None, None) in script.calls


REFUSE = {"transforms": "t", "transforms_t_type": "Refuse", "transforms_t_value": "bad"}


def test_a_transform_that_fails_fails_the_task(run: Run, topic: str) -> None:
    task = run.start(scripted.Script(poll=batches(topic, ["a", "bad", "b"])), SOURCE, **REFUSE)
    run.wait_for(task, State.FAILED)
    assert "bad is refused" in run.trace(task)
    assert "Tolerance exceeded" in run.trace(task)
    assert values(read(run.bootstrap, topic, 1)) == ["a"]


def test_a_transform_that_fails_skips_the_record_if_that_is_tolerated(run: Run, topic: str) -> None:
    script = scripted.Script(poll=batches(topic, ["a", "bad", "b"]))
    task = run.start(script, SOURCE, errors_tolerance="ALL", **REFUSE)
    assert values(read(run.bootstrap, topic, 2)) == ["a", "b"]
    wait_until(lambda: offset_of(run, task.connector) == 3)
    assert ("commit_record", "bad", None, None) in script.calls


def test_a_stop_during_the_repetition_of_a_record_skips_nothing(run: Run, topic: str) -> None:
    script = scripted.Script(poll=batches(topic, ["a", "later", "b"]))
    task = run.start(script, SOURCE, **TOLERATED_AND_REPEATED)
    assert values(read(run.bootstrap, topic, 1)) == ["a"]
    run.worker.stop_tasks([task])
    assert offset_of(run, task.connector) == 1
    assert run.state(task) is State.UNASSIGNED


def test_a_retriable_error_of_poll_is_followed_by_another_poll(
    run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.connect.worker.source_task.RETRY_S", 0.01)
    failures = iter([RetriableError("not now")])
    found = iter([[record(topic, "a", 1)]])

    def poll(_task: Any) -> list[SourceRecord] | None:
        for error in failures:
            raise error
        return next(found, None)

    run.start(scripted.Script(poll=poll), SOURCE)
    assert values(read(run.bootstrap, topic, 1)) == ["a"]


def test_a_paused_task_is_not_polled_until_it_is_resumed(run: Run) -> None:
    script = scripted.Script()
    task = run.start(script, SOURCE)
    run.wait_for(task, State.RUNNING)
    run.worker.change_target(task.connector, TargetState.PAUSED)
    run.wait_for(task, State.PAUSED)
    count = script.count("poll")
    run.worker.change_target(task.connector, TargetState.STARTED)
    run.wait_for(task, State.RUNNING)
    wait_until(lambda: script.count("poll") > count)
    assert script.count("stop") == 0


def test_a_task_is_stopped_once_and_an_error_meanwhile_is_no_failure(run: Run) -> None:
    polling = threading.Event()

    def poll(task: Any) -> None:
        polling.set()
        task.stopped.wait(10)
        raise ConnectError("the connection was closed")

    script = scripted.Script(poll=poll)
    task = run.start(script, SOURCE)
    assert polling.wait(10)
    run.worker.stop_tasks([task])
    assert run.state(task) is State.UNASSIGNED
    assert script.count("stop") == 1


def test_errors_of_commit_record_and_commit_do_not_stop_the_task(run: Run, topic: str) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("of the connector")

    task = run.start(scripted.Script(poll=batches(topic, ["a"], ["b"]), commit_record=fail, commit=fail), SOURCE)
    wait_until(lambda: offset_of(run, task.connector) == 2)
    assert run.state(task) is State.RUNNING


def test_a_task_that_does_not_end_is_abandoned_and_stores_nothing_later(
    broker: BrokerProcess, tmp_path: Path, topic: str
) -> None:
    hanging, ended = threading.Event(), threading.Event()

    def poll(_task: Any) -> list[SourceRecord]:
        hanging.set()
        ended.wait(20)
        return [record(topic, "late", 7)]

    with Run(broker.bootstrap, tmp_path, task_shutdown_graceful_timeout_ms="50") as run:
        script = scripted.Script(poll=poll)
        task = run.start(script, SOURCE)
        assert hanging.wait(10)
        run.worker.stop_tasks([task])
        assert run.state(task) is State.UNASSIGNED
        reported = len(run.states)
        ended.set()
        wait_until(lambda: not any(each.name == f"task-{task}" for each in threading.enumerate()))
        assert offset_of(run, task.connector) is None
        assert len(run.states) == reported
        send(run.bootstrap, topic, ["of a later run"])
        assert values(read(run.bootstrap, topic, 1)) == ["of a later run"]


# Exactly-once


def transactional(topic: str, *of_values: Sequence[str], **methods: Callable[..., Any]) -> Any:
    return scripted.Script(poll=batches(topic, *of_values), **methods)


def test_records_and_offsets_are_committed_together_before_the_task_is_told(exactly_once: Run, topic: str) -> None:
    seen: list[list[str]] = []

    def commit_record(_task: Any, value: str, *_place: Any) -> None:
        seen.append(values(read(exactly_once.bootstrap, topic, 2)))

    script = transactional(topic, ["a", "b"], commit_record=commit_record)
    task = exactly_once.start(script, SOURCE)
    wait_until(lambda: script.count("commit"))
    assert seen == [["a", "b"], ["a", "b"]], "readers of committed records see them when the task is told"
    assert [call[1:] for call in script.calls if call[0] == "commit_record"] == [("a", 0, 0), ("b", 0, 1)]
    exactly_once.offsets.refresh()
    assert offset_of(exactly_once, task.connector) == 2


def test_a_poll_that_fills_the_queue_of_the_producer_is_committed(exactly_once: Run, topic: str) -> None:
    script = transactional(topic, ["x"] * (PRODUCER_QUEUE["queue.buffering.max.messages"] + 1))
    # A full queue would make batches that are too large for this broker.
    task = exactly_once.start(script, SOURCE, producer_override_batch_size="10000")
    wait_until(lambda: script.count("commit"))
    exactly_once.offsets.refresh()
    assert offset_of(exactly_once, task.connector) == PRODUCER_QUEUE["queue.buffering.max.messages"] + 1


def test_a_failure_aborts_the_transaction_with_its_offsets(exactly_once: Run, topic: str) -> None:
    script = transactional(topic, ["a", "bad"])
    task = exactly_once.start(script, SOURCE, **REFUSE)
    exactly_once.wait_for(task, State.FAILED)
    assert script.count("commit_record") == 0
    again = transactional(topic, ["a", "b"])
    exactly_once.start(again, SOURCE, name=task.connector)
    assert values(read(exactly_once.bootstrap, topic, 2)) == ["a", "b"]


def test_a_connector_commits_and_aborts_its_own_transactions(exactly_once: Run, topic: str) -> None:
    found = iter([(["a"], ""), (["b"], "abort"), (["c"], ""), ([], "commit"), (["d"], "")])
    offsets = iter(range(1, 10))

    def poll(task: Any) -> list[SourceRecord] | None:
        batch, wish = next(found, (None, ""))
        if wish:
            getattr(task.context.transactions, wish)()
        return None if batch is None else [record(topic, value, next(offsets)) for value in batch]

    script = scripted.Script(poll=poll)
    task = exactly_once.start(script, SOURCE, transaction_boundary="connector")
    wait_until(lambda: script.count("commit_record"))
    assert script.arguments("commit_record") == ["c"]
    exactly_once.worker.stop_tasks([task])
    assert values(read(exactly_once.bootstrap, topic, 1)) == ["c"]
    exactly_once.offsets.refresh()
    assert offset_of(exactly_once, task.connector) == 3


def test_a_later_run_fences_an_earlier_one_and_reads_its_offsets(
    exactly_once: Run, broker: BrokerProcess, tmp_path: Path, topic: str
) -> None:
    name = unique("fenced")
    first = transactional(topic, ["a"])
    task = exactly_once.start(first, SOURCE, name=name)
    wait_until(lambda: first.count("commit"))
    with Run(broker.bootstrap, tmp_path, **ENABLED) as other:
        positions: list[Any] = []
        second = scripted.Script(start=lambda task, _: positions.append(task.context.offset_reader.offset(PARTITION)))
        other.start(second, SOURCE, name=name)
        wait_until(lambda: positions)
        assert positions == [{"at": 1}]
        # The script of the first run is another one now, but its task still polls the one that it began with.
        first.methods["poll"] = batches(topic, ["zombie"])
        exactly_once.wait_for(task, State.FAILED)
    assert values(read(broker.bootstrap, topic, 1)) == ["a"]


def test_a_task_that_is_not_to_run_any_more_when_it_has_fenced_others_does_not_start(exactly_once: Run) -> None:
    script = scripted.Script()
    exactly_once.is_current = False
    task = exactly_once.start(script, SOURCE)
    exactly_once.wait_for(task, State.FAILED)
    assert "has another configuration since, or belongs to another worker" in exactly_once.trace(task)
    assert script.count("start") == 0
