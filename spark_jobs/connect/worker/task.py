"""The thread of a task: what both directions have in common.

Owns the life of a task: it is started once, runs until it is stopped or fails, and reports its states. A task that does
not end in time is abandoned: its thread goes on, but what it reports is ignored. Must not know records.
"""

from __future__ import annotations

import logging
import threading
import traceback
from abc import ABC, abstractmethod
from typing import Final

from spark_jobs.connect.base.states import State, StateListener, TargetState, TaskId

logger = logging.getLogger("org.apache.kafka.connect.runtime.WorkerTask")

PAUSED_WAIT_S: Final = 0.2
"""How often a paused task looks whether it is to go on."""


class StoppedError(Exception):
    """The task is to end before a record was converted or sent. Never tolerated: the next run has the record again."""


class RunningTask(ABC):
    """A task in its thread."""

    def __init__(self, task_id: TaskId, listener: StateListener, target: TargetState) -> None:
        self.id = task_id
        self.stopping = threading.Event()
        self._listener = listener
        self._target = target
        self._is_abandoned = False
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"task-{task_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the task to end. Callable from any thread; returns immediately."""
        if not self.stopping.is_set():
            self.stopping.set()
            self._woken.set()
            self._interrupt()

    def has_ended(self, timeout_s: float) -> bool:
        """Wait for the end of the thread."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Ignore what the task reports from now on: it has not ended in time."""
        logger.error("task %s has not ended in time, and is abandoned", self.id)
        self._is_abandoned = True

    def change_target(self, target: TargetState) -> None:
        """Pause the task or let it go on. Callable from any thread."""
        self._target = target
        self._woken.set()

    @property
    def is_abandoned(self) -> bool:
        return self._is_abandoned

    @property
    def is_paused(self) -> bool:
        return self._target is not TargetState.STARTED

    def report(self, state: State, trace: str | None = None) -> None:
        if not self._is_abandoned:
            self._listener.changed(self.id, state, trace)

    def wait(self, timeout_s: float) -> None:
        """Wait, at most until the task is to end or its target state changes."""
        self._woken.wait(timeout_s)
        if not self.stopping.is_set():
            self._woken.clear()

    @abstractmethod
    def execute(self) -> None:
        """Do the task's work until `stopping` is set. Calls `report(State.RUNNING)` when it has started."""

    @abstractmethod
    def release(self) -> None:
        """Close what the task has opened, whatever has happened before."""

    def _interrupt(self) -> None:  # noqa: B027 - most tasks wait for nothing
        """End what `execute` waits for. Called by another thread."""

    def _run(self) -> None:
        failure: str | None = None
        try:
            if not self.stopping.is_set():
                self.execute()
        except BaseException:  # a connector's code may raise anything
            # What happens while a task is stopped is no failure: its code may have closed what it waited for.
            text = traceback.format_exc()
            if self.stopping.is_set():
                logger.warning("task %s has raised an error while it was stopped\n%s", self.id, text)
            else:
                failure = text
                logger.error("task %s has failed, and will not recover until it is restarted\n%s", self.id, text)
        try:
            self.release()
        except BaseException:
            logger.exception("task %s could not be closed", self.id)
        if failure is not None:
            self.report(State.FAILED, failure)
        else:
            self.report(State.UNASSIGNED)
