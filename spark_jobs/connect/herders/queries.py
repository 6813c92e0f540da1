"""What the REST interface shows of connectors and tasks, in the shapes of Kafka Connect's responses.

Owns these shapes. Reads the stores only: nothing here changes anything or waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.connect.base.connector_settings import CONNECTOR_CLASS, NAME
from spark_jobs.connect.base.errors import ConfigError, NotFoundError
from spark_jobs.connect.base.states import State, TaskId
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.stores.states import Status

UNKNOWN: Final = "unknown"


class Queries:
    """Shows the connectors of one herder."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def names(self) -> list[str]:
        return sorted(self._herder.configs.state.connectors)

    def config(self, name: str) -> dict[str, str]:
        """Raises NotFoundError."""
        found = self._herder.configs.state.connectors.get(name)
        if found is None:
            raise NotFoundError(f"Connector {name} not found")
        return {**found, NAME: name}

    def connector(self, name: str) -> dict[str, Any]:
        """Return name, configuration, tasks and type. Raises NotFoundError."""
        config = self.config(name)
        tasks = [task._asdict() for task in self._herder.configs.state.task_ids(name)]
        return {NAME: name, "config": config, "tasks": tasks, "type": self.kind(config)}

    def kind(self, config: Mapping[str, str]) -> str:
        """Return source, sink, or unknown if the class does not exist here."""
        try:
            is_source = self._herder.plugins.is_source(config.get(CONNECTOR_CLASS, ""))
        except ConfigError:
            return UNKNOWN
        return "source" if is_source else "sink"

    def status(self, name: str) -> dict[str, Any]:
        """Return the states of a connector and its tasks. Raises NotFoundError."""
        config = self.config(name)
        tasks = [{"id": task.task, **self._state(task)} for task in self._herder.configs.state.task_ids(name)]
        return {NAME: name, "connector": self._state(name), "tasks": tasks, "type": self.kind(config)}

    def restart_plan(self, name: str, *, only_failed: bool, include_tasks: bool) -> dict[str, Any]:
        """Return the states of a connector and its tasks, with RESTARTING for what a restart concerns (KIP-745).

        Raises NotFoundError.
        """
        found = self.status(name)
        for each in [found["connector"], *(found["tasks"] if include_tasks else ())]:
            if not only_failed or each["state"] == State.FAILED.value:
                each["state"] = State.RESTARTING.value
                each.pop("trace", None)
        return found

    def task_status(self, task: TaskId) -> dict[str, Any]:
        """Raises NotFoundError."""
        self.config(task.connector)
        if self._herder.configs.state.task_config(task) is None or self._herder.states.status(task) is None:
            raise NotFoundError(f"No status found for task {task}")
        return {"id": task.task, **self._state(task)}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """Return the tasks with their configurations. Raises NotFoundError."""
        self.config(name)
        state = self._herder.configs.state
        return [{"id": task._asdict(), "config": dict(state.task_config(task) or {})} for task in state.task_ids(name)]

    def topics(self, name: str) -> dict[str, Any]:
        """Return the topics that a connector has used. Raises NotFoundError."""
        self.config(name)
        return {name: {"topics": self._herder.states.topics(name)}}

    def plugins(self, *, connectors_only: bool) -> list[dict[str, Any]]:
        kinds = ("source", "sink") if connectors_only else ("source", "sink", "converter", "header_converter",
                                                            "transformation", "predicate")  # fmt: skip
        found = [
            {"class": plugin.name, "type": plugin.kind, "version": self._version(plugin.name)}
            for plugin in self._herder.plugins.all
            if plugin.kind in kinds
        ]
        return sorted(found, key=lambda each: (each["class"], each["type"]))

    def _version(self, name: str) -> str:
        plugin = self._herder.plugins.find(name)
        try:
            return str(getattr(plugin.load(), "version", "undefined")) if plugin is not None else UNKNOWN
        except ConfigError:
            return UNKNOWN

    def _state(self, owner: str | TaskId) -> dict[str, Any]:
        status = self._herder.states.status(owner) or Status(State.UNASSIGNED, "", 0)
        found = {"state": status.state.value, "worker_id": status.worker_id}
        return found if status.trace is None else {**found, "trace": status.trace}
