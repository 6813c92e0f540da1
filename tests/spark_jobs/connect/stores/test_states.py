"""States of connectors and tasks, and the topics that they use."""

from __future__ import annotations

import json

import pytest

from spark_jobs.connect.base.states import State, TaskId
from spark_jobs.connect.stores.states import MemoryStates, StateTable, Status

TASK = TaskId("c-d", 3)
RUNNING = Status(State.RUNNING, "here:1", 5)


def test_states_are_read_as_they_are_stored() -> None:
    table = StateTable()
    value = {"state": "FAILED", "trace": "why", "worker_id": "w:1", "generation": 7}
    table.read(b"status-task-c-d-3", json.dumps(value).encode())
    table.read(b"status-connector-c-d", json.dumps({**value, "trace": None}).encode())
    assert table.status(TASK) == Status(State.FAILED, "w:1", 7, "why")
    assert table.status("c-d") == Status(State.FAILED, "w:1", 7)
    assert table.tasks("c-d") == {TASK: Status(State.FAILED, "w:1", 7, "why")}
    table.read(b"status-task-c-d-3", None)
    assert table.status(TASK) is None


def test_a_topic_belongs_to_the_connector_behind_the_last_separator() -> None:
    table = StateTable()
    table.read(b"status-topic-t:connector-c", b'{"topic":{}}')
    table.read(b"status-topic-t:connector-x:connector-c", b'{"topic":{}}')
    assert table.topics("c") == ["t", "t:connector-x"]
    table.read(b"status-topic-t:connector-c", None)
    assert table.topics("c") == ["t:connector-x"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"status-connector-c", b"{}"),
        (b"status-connector-c", b'{"state":"ASLEEP","worker_id":"","generation":0}'),
        (b"status-connector-c", b"[]"),
        (b"status-connector-c", b"{"),
        (b"status-connector-c", b"[" * 100_000),
        (b"status-task-c", b'{"state":"RUNNING","worker_id":"","generation":0}'),
        (b"\xff", b"{}"),
    ],
)
def test_an_invalid_record_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match="is no state of"):
        StateTable().read(key, value)


def test_an_unknown_key_is_ignored() -> None:
    StateTable().read(b"of-the-future", b"{}")
    StateTable().read(None, b"{}")


def test_a_late_report_does_not_replace_the_state_of_the_present_owner() -> None:
    states = MemoryStates()
    states.put(TASK, RUNNING)
    states.put(TASK, Status(State.UNASSIGNED, "there:2", 4), is_safe=True)
    assert states.status(TASK) == RUNNING
    for later in (Status(State.UNASSIGNED, "there:2", 5), Status(State.UNASSIGNED, "here:1", 4)):
        states.put(TASK, RUNNING)
        states.put(TASK, later, is_safe=True)
        assert states.status(TASK) == later


def test_a_destroyed_task_has_no_state() -> None:
    states = MemoryStates()
    states.put(TASK, RUNNING)
    states.put(TASK, Status(State.DESTROYED, "here:1", 5))
    assert states.status(TASK) is None


def test_a_forgotten_connector_leaves_no_states_and_topics() -> None:
    states = MemoryStates()
    states.put(TASK, RUNNING)
    states.put("c-d", RUNNING)
    states.put("other", RUNNING)
    states.put_topic(TASK, "t", 1)
    states.put_topic(TASK, "t", 2)
    assert states.topics("c-d") == ["t"]
    states.forget("c-d")
    assert (states.status("c-d"), states.tasks("c-d"), states.topics("c-d")) == (None, {}, [])
    assert states.status("other") == RUNNING
