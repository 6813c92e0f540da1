"""A herder without workers, brokers and threads of tasks: what it asks its worker for, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.states import TargetState, TaskId
from spark_jobs.connect.group.member import Round
from spark_jobs.connect.group.protocol import NO_WORK, Work
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.herders.offset_changes import Change, OffsetChanges
from spark_jobs.connect.stores.config_state import connector_record, fencing_record, task_records
from spark_jobs.connect.stores.configs import MemoryConfigs
from spark_jobs.connect.stores.states import MemoryStates
from spark_jobs.connect.worker.settings import WorkerSettings
from tests.spark_jobs.connect.worker.runs import STRINGS, load_scripted

URL = "http://127.0.0.1:1/"
FIRST, SECOND = TaskId("c", 0), TaskId("c", 1)
SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "states",
    "exactly.once.source.support": "enabled",
}


class Calls:
    """Worker, group and store of offsets: notes what it is asked for."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.tasks: frozenset[TaskId] = frozenset()
        self.connectors: frozenset[str] = frozenset()
        self.is_current: dict[TaskId, Callable[[], bool]] = {}

    # The worker

    def start_task(self, task: TaskId, _connector: Any, _config: Any, _target: Any, is_current: Any) -> None:
        self.done.append(f"start {task}")
        self.tasks |= {task}
        self.is_current[task] = is_current

    def stop_tasks(self, tasks: Iterable[TaskId]) -> None:
        self.tasks -= frozenset(tasks)

    def stop_connectors(self, _names: Iterable[str]) -> None: ...

    def task_configs(self, _connector: str) -> Future[Any] | None:
        self.done.append("ask")
        failed: Future[Any] = Future()
        failed.set_exception(ConnectError("the source is away"))
        return failed

    def change_target(self, _connector: str, _target: TargetState) -> Future[Any] | None: ...

    def fence(self, connector: str, _config: Mapping[str, str], count: int) -> None:
        self.done.append(f"fence {count} of {connector}")

    # The group

    def rejoin(self, _reason: str) -> None: ...

    def release(self, _work: Work) -> None: ...

    # The store of offsets

    def refresh(self) -> None: ...

    def all_of(self, _connector: str) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        yield {"file": "a"}, {"at": 7}

    def store(self, _connector: str, changes: Sequence[Change], _timeout_s: float) -> bool:
        self.done.append(f"store {[change.offset for change in changes]}")
        return True

    # Of several

    def start(self) -> None: ...

    def stop(self, *_timeout_s: float) -> None: ...


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def herder(calls: Calls) -> Iterator[Herder]:
    """The leader of a group that it is alone in, with a connector of two tasks, which were fenced."""
    plugins, _ = load_scripted()
    found = Herder(
        WorkerSettings(SETTINGS, is_distributed=True),
        plugins,
        worker_id="127.0.0.1:1",
        url=URL,
        configs=MemoryConfigs(),
        states=MemoryStates(),
        offsets=calls,  # type: ignore[arg-type]
        new_group=lambda _: calls,  # type: ignore[arg-type, return-value]
    )
    found.worker = calls  # type: ignore[assignment]
    found.start()
    found.configs.write(
        [
            connector_record("c", {"name": "c", "connector.class": "ScriptedSource"}),
            *task_records("c", [{"n": "0"}, {"n": "1"}]),
            fencing_record("c", 2),
        ]
    )
    work = Work(frozenset(), frozenset({FIRST, SECOND}))
    found.rebalanced(Round(1, URL, True, 0, work, NO_WORK, "compatible"))
    found.submit(lambda: None).result()
    yield found
    found.stop()


def test_a_task_is_current_until_its_connector_gets_others_or_another_worker_gets_it(
    herder: Herder, calls: Calls
) -> None:
    assert calls.done == ["start c-0", "start c-1"]
    assert calls.is_current[FIRST]()
    assert calls.is_current[SECOND]()
    herder.rebalanced(Round(2, URL, True, 0, NO_WORK, Work(frozenset(), frozenset({FIRST})), "compatible"))
    herder.submit(lambda: None).result()
    assert not calls.is_current[FIRST]()
    assert calls.is_current[SECOND]()
    herder.configs.write(task_records("c", [{"n": "0"}, {"n": "1"}]))
    assert not calls.is_current[SECOND](), "equal tasks that came later have fenced it, or will"


def test_tasks_of_exactly_once_that_go_on_unseen_are_fenced_before_offsets_are_changed(
    herder: Herder, calls: Calls
) -> None:
    herder.submit(lambda: herder.set_target("c", TargetState.STOPPED)).result()
    calls.done.clear()
    changes = OffsetChanges(herder)
    changes.alter("c", [Change({"file": "a"}, {"at": 3})])
    assert calls.done == ["fence 2 of c", "store [{'at': 3}]"]
    calls.done.clear()
    changes.reset("c")
    assert calls.done == ["store [None]"], "no task has started since"


def test_a_connector_that_cannot_name_its_tasks_is_asked_again_once_however_often_it_asks_for_that(
    herder: Herder, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], object]] = []
    monkeypatch.setattr("spark_jobs.connect.herders.herder.call_in_thread", lambda _, call: waiting.append(call))
    calls.done.clear()
    for _ in range(20):
        herder.wants_reconfiguration("c")
        herder.submit(lambda: None).result()
    assert (calls.done, len(waiting)) == (["ask"] * 20, 1)
    monkeypatch.setattr(herder._stopping, "wait", lambda _: False)
    waiting.pop()()
    for _ in range(3):
        herder.submit(lambda: None).result()
    assert (len(calls.done), len(waiting)) == (21, 1)
