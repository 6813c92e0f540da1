"""States of connectors and tasks, and who is told of them.

Owns the names, which the topic of states and the REST interface share. Must not know where states are stored.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol


class TaskId(NamedTuple):
    """A task of a connector; they count from 0."""

    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class State(Enum):
    """The state of a connector or a task. UNASSIGNED: no worker runs it. A task is never STOPPED."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    UNASSIGNED = "UNASSIGNED"
    RESTARTING = "RESTARTING"
    DESTROYED = "DESTROYED"


class TargetState(Enum):
    """The state that a user wants a connector to be in. STOPPED: it has no tasks, and its offsets may be changed."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


Owner = str | TaskId
"""A connector by name, or a task."""


class StateListener(Protocol):
    """Is told of states from the threads of connectors and tasks."""

    def changed(self, owner: Owner, state: State, trace: str | None = None) -> None:
        """A connector or task is in a state; `trace` says why it has FAILED."""

    def uses_topic(self, task: TaskId, topic: str) -> None:
        """A task reads or writes a topic. Called once per topic of a started task."""
