"""A worker runs the job of a task: it starts, pauses, resumes and stops it, and reports why it has failed."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spark_jobs.connect.base.api import Connector, SinkConnector
from spark_jobs.connect.base.states import Owner, State, TargetState, TaskId
from spark_jobs.connect.connectors.spark_settings import Command
from spark_jobs.connect.connectors.spark_task import SparkTask
from spark_jobs.connect.stores.offsets import FileOffsets
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from spark_jobs.connect.worker.worker import Worker
from tests.support.waiting import wait_until


class SleepyTask(SparkTask):
    version = "1"
    module = "sleepy_program"

    def command(self, config: Mapping[str, str]) -> Command:
        flags = [config["file"], config["value.converter"], self.context.client["bootstrap.servers"]]
        return Command(config["does"], flags, {})


class SleepyConnector(SinkConnector):
    """Sleeps."""

    version = "1"
    task = SleepyTask


class SleepyPlugins(Plugins):
    def connector(self, name: str) -> type[Connector]:
        return SleepyConnector


PROGRAM = """
import os, sys, time

what, path, *rest = sys.argv[1:]
if what == "fail":
    sys.exit("spark-job: the table is missing")
with open(path + ".new", "w") as file:
    file.write(f"{os.getpid()} {' '.join(rest)}")
os.rename(path + ".new", path)
time.sleep(600)
"""
TASK = TaskId("sleepy", 0)


class States:
    """Remembers the states of the task."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.trace: str | None = None

    def changed(self, owner: Owner, state: State, trace: str | None = None) -> None:
        self.trace = trace
        self.states.append(state)

    def uses_topic(self, task: TaskId, topic: str) -> None: ...

    def wants_reconfiguration(self, connector: str) -> None: ...


@pytest.fixture
def states() -> States:
    return States()


@pytest.fixture
def worker(states: States, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    (tmp_path / "sleepy_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = {
        "bootstrap.servers": "127.0.0.1:1", "key.converter": "StringConverter", "value.converter": "OfTheWorker",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
    }  # fmt: skip
    offsets = FileOffsets(tmp_path / "offsets")
    found = Worker(WorkerSettings(settings, is_distributed=False), SleepyPlugins(), offsets, states, states)
    yield found
    found.stop_tasks([TASK])


def start(worker: Worker, path: Path, does: str, target: TargetState = TargetState.STARTED) -> None:
    config: Mapping[str, str] = {
        "name": "sleepy",
        "connector.class": "Sleepy",
        "topics": "t",
        "file": str(path),
        "does": does,
    }
    worker.start_task(TASK, config, config, target, lambda: True)


def job_in(path: Path) -> tuple[int, str]:
    """Return the number of the job's process and its further arguments, and forget the file."""
    wait_until(path.exists, "a running job")
    pid, _, rest = path.read_text().partition(" ")
    path.unlink()
    return int(pid), rest


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_job_runs_until_its_task_is_stopped(worker: Worker, states: States, tmp_path: Path) -> None:
    start(worker, tmp_path / "job", "sleep")
    pid, rest = job_in(tmp_path / "job")
    assert rest == "OfTheWorker 127.0.0.1:1"
    assert os.getsid(pid) == pid != os.getsid(0)
    wait_until(lambda: states.states == [State.RUNNING])
    worker.stop_tasks([TASK])
    assert not runs(pid)
    assert states.states == [State.RUNNING, State.UNASSIGNED]


def test_a_paused_job_has_no_process(worker: Worker, states: States, tmp_path: Path) -> None:
    start(worker, tmp_path / "job", "sleep", TargetState.PAUSED)
    wait_until(lambda: states.states == [State.PAUSED])
    assert not (tmp_path / "job").exists()
    worker.change_target("sleepy", TargetState.STARTED)
    first, _ = job_in(tmp_path / "job")
    worker.change_target("sleepy", TargetState.PAUSED)
    wait_until(lambda: states.states[-2:] == [State.RUNNING, State.PAUSED])
    assert not runs(first)
    worker.change_target("sleepy", TargetState.STARTED)
    second, _ = job_in(tmp_path / "job")
    assert runs(second)


def test_a_job_that_ends_with_an_error_fails_its_task_with_its_last_lines(
    worker: Worker, states: States, tmp_path: Path
) -> None:
    start(worker, tmp_path / "job", "fail")
    wait_until(lambda: State.FAILED in states.states)
    assert "the job fail of task sleepy-0 has ended with exit code 1" in (states.trace or "")
    assert "spark-job: the table is missing" in (states.trace or "")
