"""Runs a task whose work another process does.

Owns when the work is started and stopped: a task that is paused has no process. Must not know what the work is, or how
a process is run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from spark_jobs.connect.base.api import JobTask
from spark_jobs.connect.base.states import State, StateListener, TargetState, TaskId
from spark_jobs.connect.worker.task import PAUSED_WAIT_S, RunningTask

logger = logging.getLogger("org.apache.kafka.connect.runtime.WorkerJobTask")

CHECK_INTERVAL_S: Final = 0.5


class RunningJobTask(RunningTask):
    """A job in the care of a thread."""

    def __init__(
        self,
        task_id: TaskId,
        listener: StateListener,
        target: TargetState,
        *,
        task: JobTask,
        config: Mapping[str, str],
        prepare: Callable[[], None],
        stop_timeout_s: float,
    ) -> None:
        """`prepare` is called once, before the first start, and may wait for the broker.

        `stop_timeout_s` has to be shorter than the worker's patience with its tasks: another worker may start the
        same job after that."""
        super().__init__(task_id, listener, target)
        self._task = task
        self._config = config
        self._prepare = prepare
        self._stop_timeout_s = stop_timeout_s

    def execute(self) -> None:
        self._prepare()
        while not self.stopping.is_set():
            if self.is_paused:
                self._pause()
            else:
                self._work()

    def release(self) -> None:
        """There is nothing to release: `_work` stops what it has started."""

    def _pause(self) -> None:
        logger.info("task %s is paused", self.id)
        self.report(State.PAUSED)
        while self.is_paused and not self.stopping.is_set():
            self.wait(PAUSED_WAIT_S)

    def _work(self) -> None:
        """Have the work done until the task is paused or stopped. Raises ConnectError when it ends before."""
        try:
            self._task.start(self._config)
            self.report(State.RUNNING)
            while not self.is_paused and not self.stopping.is_set():
                self._task.check()
                self.wait(CHECK_INTERVAL_S)
        finally:
            self._task.stop(self._stop_timeout_s)
