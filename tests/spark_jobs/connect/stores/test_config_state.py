"""What the records of the topic of configurations add up to."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from spark_jobs.connect.base.states import TargetState, TaskId
from spark_jobs.connect.stores.config_state import (
    NOTHING,
    Changes,
    ConfigState,
    Record,
    RestartRequest,
    SessionKey,
    connector_record,
    encoded,
    fencing_record,
    logger_record,
    restart_record,
    session_key_record,
    target_record,
    task_records,
)


def after(*records: Record, state: ConfigState | None = None) -> tuple[ConfigState, Changes]:
    """Return the state behind records as they are stored, and what the last one has changed."""
    found, changes = state or ConfigState(), NOTHING
    for key, value in records:
        stored = encoded(value)
        found, changes = found.after(key, None if stored is None else json.loads(stored), found.offset)
    return found, changes


CONNECTOR = connector_record("a-1", {"name": "a-1"})


def test_a_connector_is_configured_and_started() -> None:
    state, changes = after(CONNECTOR)
    assert changes == Changes(connector="a-1")
    assert state.connectors == {"a-1": {"name": "a-1"}}
    assert state.target("a-1") is TargetState.STARTED
    assert state.offset == 1


def test_values_that_are_no_texts_become_texts() -> None:
    state, _ = ConfigState().after("connector-c", {"properties": {"a": None, "b": 5}}, 0)
    assert state.connectors["c"] == {"a": "", "b": "5"}


def test_tasks_are_valid_when_their_set_is_complete() -> None:
    *tasks, commit = task_records("a-1", [{"n": "0"}, {"n": "1"}])
    state, changes = after(CONNECTOR, *tasks)
    assert (state.tasks, changes) == ({}, NOTHING)
    state, changes = after(commit, state=state)
    assert changes == Changes(tasks_of="a-1")
    assert state.task_ids("a-1") == [TaskId("a-1", 0), TaskId("a-1", 1)]
    assert state.task_config(TaskId("a-1", 1)) == {"n": "1"}
    assert state.task_config(TaskId("a-1", 2)) is None
    assert state.announced_tasks == {}


def test_an_incomplete_set_leaves_the_old_tasks_and_is_to_be_written_again() -> None:
    state, _ = after(CONNECTOR, *task_records("a-1", [{"n": "0"}]))
    first, _second, commit = task_records("a-1", [{"n": "new"}, {"n": "1"}])
    state, changes = after(first, commit, state=state)
    assert changes is NOTHING
    assert state.tasks["a-1"] == ({"n": "0"},)
    assert state.inconsistent == {"a-1"}
    assert not state.has_tasks("a-1", [{"n": "0"}])
    state, _ = after(*task_records("a-1", [{"n": "new"}]), state=state)
    assert state.inconsistent == frozenset()
    assert state.has_tasks("a-1", [{"n": "new"}])


def test_a_worker_may_write_again_only_the_tasks_that_have_changed() -> None:
    state, _ = after(CONNECTOR, *task_records("a-1", [{"n": "0"}, {"n": "1"}]))
    _, second, commit = task_records("a-1", [{"n": "0"}, {"n": "new"}])
    state, _ = after(second, commit, state=state)
    assert state.tasks["a-1"] == ({"n": "0"}, {"n": "new"})


def test_fewer_tasks_remove_the_others() -> None:
    state, _ = after(CONNECTOR, *task_records("a-1", [{"n": "0"}, {"n": "1"}]), *task_records("a-1", []))
    assert state.task_ids("a-1") == []


def test_a_changed_connector_needs_its_tasks_again_even_if_they_are_equal() -> None:
    state, _ = after(CONNECTOR, *task_records("a-1", [{"n": "0"}]))
    assert state.has_tasks("a-1", [{"n": "0"}])
    state, _ = after(connector_record("a-1", {"transforms": "t"}), state=state)
    assert not state.has_tasks("a-1", [{"n": "0"}])
    state, _ = after(*task_records("a-1", [{"n": "0"}]), state=state)
    assert state.has_tasks("a-1", [{"n": "0"}])


def test_a_deleted_connector_leaves_what_is_to_be_fenced_only() -> None:
    """Tasks that go on unseen are fenced if a connector gets this name again."""
    full = [CONNECTOR, *task_records("a-1", [{}]), target_record("a-1", TargetState.PAUSED), fencing_record("a-1", 1)]
    started, *_ = task_records("a-1", [{}])
    state, changes = after(*full, started, connector_record("a-1", None))
    assert changes == Changes(connector="a-1")
    assert state == ConfigState(offset=state.offset, fenced_tasks={"a-1": 1})
    state, changes = after(target_record("a-1", None), state=state)
    assert (state.targets, changes) == ({}, NOTHING)


def test_tasks_without_a_connector_are_those_of_a_deleted_one() -> None:
    """Compaction removes the record that deletes a connector, but those of its tasks stay."""
    deleted = task_records("a-1", [{"n": "0"}, {"n": "1"}])
    state, changes = after(*deleted)
    assert (state, changes) == (ConfigState(offset=len(deleted)), NOTHING)
    state, _ = after(CONNECTOR, state=state)
    assert state.task_ids("a-1") == []
    assert not state.has_tasks("a-1", [])


@pytest.mark.parametrize("target", TargetState)
def test_a_target_state_is_read_by_old_and_new_workers(target: TargetState) -> None:
    key, value = target_record("c", target)
    assert value["state"] == ("PAUSED" if target is TargetState.STOPPED else target.value)
    state, changes = after((key, value))
    assert state.target("c") is target
    assert changes == Changes(target_of="c")


def test_a_target_state_of_an_old_worker_is_understood() -> None:
    state, _ = after(("target-state-c", {"state": "PAUSED"}))
    assert state.target("c") is TargetState.PAUSED


def test_new_tasks_need_fencing_until_it_was_done() -> None:
    state, _ = after(CONNECTOR, *task_records("a-1", [{}, {}]))
    assert state.needs_fencing == {"a-1"}
    key, value = fencing_record("a-1", 2)
    assert (key, value) == ("tasks-fencing-a-1", {"task-count": 2}), "as Kafka's workers write it"
    state, _ = after((key, value), state=state)
    assert (state.needs_fencing, state.fenced_tasks) == (frozenset(), {"a-1": 2})
    state, _ = after(*task_records("a-1", [{}]), state=state)
    assert state.needs_fencing == {"a-1"}
    assert state.fenced_tasks == {"a-1": 2}


def test_a_session_key_is_kept_as_bytes() -> None:
    key = SessionKey(b"\x00\xff secret", "HmacSHA256", 1_700_000_000_000)
    record = session_key_record(key)
    assert record == (
        "session-key",
        {
            "key": base64.b64encode(key.key).decode(),
            "algorithm": "HmacSHA256",
            "creation-timestamp": 1_700_000_000_000,
        },
    )
    state, changes = after(record)
    assert state.session_key == changes.session_key == key


def test_a_restart_and_a_level_change_no_state() -> None:
    request = RestartRequest("restart-connector-c", only_failed=True, include_tasks=False)
    state, changes = after(restart_record(request))
    assert changes == Changes(restart=request)
    state, changes = after(logger_record("org.apache", "DEBUG"), state=state)
    assert changes == Changes(logger_level=("org.apache", "DEBUG"))
    assert state == ConfigState(offset=2)


def test_an_unknown_key_moves_the_offset_only() -> None:
    state, changes = ConfigState().after("of-the-future", {"a": "b"}, 41)
    assert (state, changes) == (ConfigState(offset=42), NOTHING)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connector-c", {}),
        ("connector-c", {"properties": 5}),
        ("task-c-0", None),
        ("task-c", {"properties": {}}),
        ("task-c-x", {"properties": {}}),
        ("commit-c", None),
        ("commit-c", {"tasks": None}),
        ("target-state-c", {"state": "ASLEEP"}),
        ("target-state-c", {}),
        ("tasks-fencing-c", None),
        ("tasks-fencing-c", {"tasks": 2}),
        ("session-key", None),
        ("session-key", {"key": "not base64!", "algorithm": "x"}),
        ("restart-connector-c", None),
        ("logger-cluster-l", {}),
    ],
)
def test_an_invalid_record_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"is no value of {key}"):
        ConfigState().after(key, value, 0)


def test_a_value_is_json_without_spaces() -> None:
    assert encoded({"a": "ü", "b": 1}) == '{"a":"ü","b":1}'.encode()
    assert encoded(None) is None
