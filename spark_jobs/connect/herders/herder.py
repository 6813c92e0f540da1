"""Decides what runs: the part of a worker behind its REST interface.

All decisions are made by one thread, one after the other, so that none sees a state that is half changed: `submit`
hands it a call, and so do the group, the store of configurations and the worker. Reading needs no decision, and is done
in the caller's thread (`queries`, `offset_changes`).

What a user wants is written to the store of configurations first, by the leader; every worker then acts on what it
reads there. So a worker that was away does the same as one that was not.

Owns the reactions to changes. Must not know HTTP, formats of topics or threads of tasks.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from spark_jobs.connect.base.calls import call_in_thread, settle
from spark_jobs.connect.base.connector_settings import CONNECTOR_CLASS, NAME
from spark_jobs.connect.base.errors import AlreadyExistsError, ConfigError, ConnectError, NotFoundError
from spark_jobs.connect.base.states import Owner, State, TargetState, TaskId
from spark_jobs.connect.group.member import Round
from spark_jobs.connect.group.protocol import NO_WORK, Work
from spark_jobs.connect.herders.groups import Group
from spark_jobs.connect.herders.leader import Leader
from spark_jobs.connect.herders.loggers import set_level
from spark_jobs.connect.stores.config_state import (
    Changes,
    ConfigState,
    RestartRequest,
    connector_record,
    fencing_record,
    restart_record,
    target_record,
    task_records,
)
from spark_jobs.connect.stores.configs import ConfigStore
from spark_jobs.connect.stores.offsets import OffsetStore
from spark_jobs.connect.stores.states import StateStore, Status
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings
from spark_jobs.connect.worker.worker import Worker

logger = logging.getLogger("org.apache.kafka.connect.runtime.AbstractHerder")

T = TypeVar("T")
Config = Mapping[str, str]

STOP_S: Final = 5.0
TICK_S: Final = 30.0
"""How often the age of the session's key is checked."""
ASK_AGAIN_S: Final = 0.25
ASK_AGAIN_MAX_S: Final = 60.0
_SAFE: Final = frozenset({State.UNASSIGNED, State.FAILED})
"""States that a worker may report late, when another one has the work already."""


class NotOwnerError(ConnectError):
    """Another worker runs this connector or task: the request belongs to its address, "" if none does yet."""

    def __init__(self, owner_url: str) -> None:
        super().__init__("Cannot complete request because another worker runs this")
        self.owner_url = owner_url


class Herder:
    """The deciding part of one worker."""

    def __init__(
        self,
        settings: WorkerSettings,
        plugins: Plugins,
        *,
        worker_id: str,
        url: str,
        configs: ConfigStore,
        states: StateStore,
        offsets: OffsetStore,
        new_group: Callable[[Herder], Group],
        namespace: str = "",
        on_lead: Callable[[Herder], None] | None = None,
    ) -> None:
        """
        Args:
            worker_id: HOST:PORT of the REST interface, by which states name a worker.
            url: the address of the REST interface, NO_URL without one.
            namespace: the beginning of the paths that only workers of the same group use.
            on_lead: called in the deciding thread when this worker has become the leader. Raises nothing.
        """
        self.settings = settings
        self.plugins = plugins
        self.worker_id = worker_id
        self.url = url
        self.configs = configs
        self.states = states
        self.offsets = offsets
        self.worker = Worker(settings, plugins, offsets, self, self)
        self.leader = Leader(url, settings, configs, namespace)
        self._generation = -1
        self._work = NO_WORK
        """What this worker has to run."""
        self._group = new_group(self)
        self._on_lead = on_lead
        self._wanted_tasks: dict[str, list[dict[str, str]]] = {}
        """What the connectors that run here have asked for last, until the leader has stored it."""
        self._ask_pauses_s: dict[str, float] = {}
        """After how long the connectors are asked again that could not name their tasks."""
        self._asked_again: set[str] = set()
        """Those that will be."""
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="herder", daemon=True)
        self._stopping = threading.Event()
        self._fencing = threading.Lock()

    # Life

    def start(self) -> None:
        """Read the stores, and join the group. Raises ConnectError."""
        self.offsets.start()
        self.states.start()
        self.configs.start(self._changed)
        self._thread.start()
        self._group.start()

    def stop(self) -> None:
        """Leave the group when all work has stopped. Also after a `start` that has failed."""
        self._stopping.set()
        self.leader.stop()
        if self._thread.is_alive():
            patience_s = self.settings["task.shutdown.graceful.timeout.ms"] / 1000 * 2 + STOP_S
            try:
                self.submit(self._stop_all).result(patience_s)
            except TimeoutError:
                logger.error("the connectors and tasks have not stopped in time")
                self.worker.stop_tasks(self.worker.tasks)
            self._group.stop(STOP_S)
            self._calls.put(None)
            self._thread.join(STOP_S)
        for store in (self.states, self.offsets, self.configs):
            store.stop()

    @property
    def is_ready(self) -> bool:
        """Whether the worker has joined its group once."""
        return self._generation >= 0

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a call in the deciding thread; the result has what it returns or raises."""
        done: Future[T] = Future()
        self._calls.put(lambda: settle(done, call))
        return done

    def _post(self, call: Callable[[], object]) -> None:
        """Run a call in the deciding thread; an error is logged."""

        def run() -> None:
            try:
                call()
            except BaseException:  # a plug-in's code may raise anything
                logger.exception("a change could not be put into effect")

        self._calls.put(run)

    def _run(self) -> None:
        due_s = time.monotonic() + TICK_S
        while True:
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + TICK_S
                self._post(self.leader.renew_key)
            try:
                call = self._calls.get(timeout=TICK_S)
            except queue.Empty:
                continue
            if call is None:
                return
            call()

    # What users want: called in the deciding thread, on the leader

    def put_connector(self, name: str, config: Config, *, replaces: bool, target: TargetState | None = None) -> bool:
        """Create or replace a connector, whose configuration is valid; return whether it is new.

        Raises AlreadyExistsError unless it `replaces`.
        """
        self.leader.require_here()
        self.configs.refresh()
        is_new = name not in self.configs.state.connectors
        if not is_new and not replaces:
            raise AlreadyExistsError(f"Connector {name} already exists")
        records = [] if target is None else [target_record(name, target)]
        self.configs.write([*records, connector_record(name, {**config, NAME: name})])
        return is_new

    def delete_connector(self, name: str) -> None:
        """Raises NotFoundError."""
        self._require(name)
        self.configs.write([connector_record(name, None), target_record(name, None)])
        self.states.forget(name)

    def set_target(self, name: str, target: TargetState) -> None:
        """Pause, resume or stop a connector. Raises NotFoundError."""
        self._require(name)
        tasks = task_records(name, []) if target is TargetState.STOPPED else []
        self.configs.write([target_record(name, target), *tasks])

    def request_restart(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        """Restart a connector and its tasks wherever they run (KIP-745). Raises NotFoundError."""
        self._require(name)
        self.configs.write([restart_record(RestartRequest(name, only_failed, include_tasks))])

    def put_task_configs(self, name: str, configs: Sequence[Config]) -> None:
        """Store the tasks that the owner of a connector has asked for. Raises NotFoundError."""
        self._require(name)
        state = self.configs.state
        if state.target(name) is not TargetState.STOPPED and not state.has_tasks(name, configs):
            self.configs.write(task_records(name, configs))

    def write(self, records: Sequence[tuple[str, Any]]) -> None:
        """Store records that concern no connector."""
        self.configs.write(records)

    def restart_task(self, task: TaskId) -> None:
        """Restart a task that runs here. Raises NotFoundError, and NotOwnerError if it runs elsewhere."""
        if self.configs.state.task_config(task) is None:
            raise NotFoundError(f"Unknown task: {task}")
        self._require_owner(task)
        self.worker.stop_tasks([task])
        self._start_task(task)

    def restart_connector(self, name: str) -> None:
        """Restart a connector, without its tasks, that runs here. Raises NotFoundError and NotOwnerError."""
        if name not in self.configs.state.connectors:
            raise NotFoundError(f"Unknown connector: {name}")
        self._require_owner(name)
        self.worker.stop_connectors([name])
        self._start_connector(name)

    def fence(self, name: str) -> None:
        """As the leader, end the transactions of the tasks that a source connector had before.

        It waits for the broker: call it in any thread but the deciding one. Raises NotLeaderError, NotFoundError, and
        ConnectError if that fails, or if the tasks change meanwhile.
        """
        with self._fencing:  # a second request, begun before the first one was noted, would fence the new tasks
            state = self.submit(partial(self.state_with, name)).result()
            if name in state.needs_fencing:
                self.worker.fence(name, state.connectors[name], state.fenced_tasks.get(name, 0))
                self.submit(partial(self._note_fencing, name, state.tasks.get(name, ()))).result()

    def state_with(self, name: str) -> ConfigState:
        """Return the configurations, which have a connector. Raises NotLeaderError and NotFoundError."""
        self._require(name)
        return self.configs.state

    def _note_fencing(self, name: str, tasks: Sequence[Config]) -> None:
        if self.state_with(name).tasks.get(name, ()) != tasks:
            raise ConnectError(f"the tasks of {name} have changed while those before were fenced")
        self.configs.write([fencing_record(name, len(tasks))])

    def _require(self, name: str) -> None:
        """Raises NotLeaderError and NotFoundError."""
        self.leader.require_here()
        self.configs.refresh()
        if name not in self.configs.state.connectors:
            raise NotFoundError(f"Connector {name} not found")

    def _require_owner(self, owner: Owner) -> None:
        if owner in (self._work.tasks if isinstance(owner, TaskId) else self._work.connectors):
            return
        status = self.states.status(owner)
        if status is None or status.worker_id == self.worker_id:
            raise NotOwnerError("")
        raise NotOwnerError(f"{self.url.partition('//')[0]}//{status.worker_id}/")

    # What the group, the stores, connectors and tasks report: any thread

    def config_offset(self) -> int:
        return self.configs.state.offset

    def configured(self, config_offset: int) -> tuple[Work, int]:
        if self.configs.state.offset < config_offset:
            self.configs.refresh()
        state = self.configs.state
        tasks = frozenset(task for name in state.connectors for task in state.task_ids(name))
        return Work(frozenset(state.connectors), tasks), state.offset

    def rebalanced(self, found: Round) -> None:
        self._post(lambda: self._rebalanced(found))

    def lost(self) -> Future[None]:
        return self.submit(self._lost)

    def _changed(self, changes: Changes) -> None:
        self._post(lambda: self._apply(changes))

    def changed(self, owner: Owner, state: State, trace: str | None = None) -> None:
        """A connector or task reports its state."""
        connector = owner.connector if isinstance(owner, TaskId) else owner
        configs = self.configs.state
        is_gone = connector not in configs.connectors
        if isinstance(owner, TaskId):
            is_gone = is_gone or configs.task_config(owner) is None
        if state is State.UNASSIGNED and is_gone:
            state = State.DESTROYED
        status = Status(state, self.worker_id, self._generation, trace)
        self.states.put(owner, status, is_safe=state in _SAFE)

    def uses_topic(self, task: TaskId, topic: str) -> None:
        if self.settings["topic.tracking.enable"]:
            self.states.put_topic(task, topic, time.time_ns() // 1_000_000)

    def wants_reconfiguration(self, connector: str) -> None:
        self._post(lambda: self._reconfigure(connector))

    # Reactions: the deciding thread

    def _rebalanced(self, found: Round) -> None:
        if self._stopping.is_set():
            return
        led = self.leader.is_here
        self._generation = found.generation
        self.leader.found(found)
        logger.info(
            "generation %d: this worker %s; it gets %d connectors and %d tasks, and stops %d and %d",
            found.generation,
            "leads" if found.is_leader else f"follows {found.leader_url}",
            *map(len, found.assigned),
            *map(len, found.revoked),
        )
        if self.configs.state.offset < found.config_offset:
            self._refresh_configs()
            self._check_offset(found.config_offset)
        if found.revoked:
            self._stop(found.revoked)
            self._group.release(found.revoked)
        self._work = self._work | found.assigned
        self._start(found.assigned)
        if self.leader.is_here:
            self._post(self.leader.renew_key)
            if not led and self._on_lead is not None:
                self._on_lead(self)

    def _refresh_configs(self) -> None:
        """Read the configurations of new work. What cannot be read yet starts when it is."""
        try:
            self.configs.refresh()
        except ConnectError as error:
            logger.error("the configurations of new connectors and tasks are not read yet: %s", error)

    def _check_offset(self, wanted: int) -> None:
        """Report that this worker reads another topic than the leader, which has read up to the offset `wanted`."""
        offset = self.configs.state.offset
        if offset < wanted:
            logger.error(
                "the topic %s ends at the offset %d, but the leader %s has read configurations up to %d: "
                "config.storage.topic must name the same topic on all workers of the group %s",
                self.settings["config.storage.topic"], offset, self.leader.url, wanted, self.settings.group_id,
            )  # fmt: skip

    def _lost(self) -> None:
        self.leader.lost()
        self._stop(self._work)

    def _stop_all(self) -> None:
        self._stop(self._work)

    def _stop(self, work: Work) -> None:
        self._work = self._work - work
        self.worker.stop_connectors(work.connectors)
        self.worker.stop_tasks(work.tasks)

    def _start(self, work: Work) -> None:
        for name in sorted(work.connectors - self.worker.connectors):
            self._start_connector(name)
        for task in sorted(work.tasks - self.worker.tasks):
            self._start_task(task)

    def _start_connector(self, name: str) -> None:
        state = self.configs.state
        config = state.connectors.get(name)
        if config is None:
            self._report_unknown(name)
            return
        started = self.worker.start_connector(name, config, state.target(name))
        if state.target(name) is TargetState.STARTED:
            started.add_done_callback(lambda _: self.wants_reconfiguration(name))

    def _start_task(self, task: TaskId) -> None:
        state = self.configs.state
        config, connector_config = state.task_config(task), state.connectors.get(task.connector)
        if config is None or connector_config is None:
            self._report_unknown(task)
            return
        if self.settings.exactly_once and task.connector in state.needs_fencing and self._is_source(connector_config):
            self._fence_then_start(task)
            return
        is_current = partial(self._is_current, task, state.tasks[task.connector])
        self.worker.start_task(task, connector_config, config, state.target(task.connector), is_current)

    def _is_current(self, task: TaskId, tasks: Sequence[Config]) -> bool:
        """Return whether a task is to run here, and its connector still has `tasks`, none equal to them that came
        later. Any thread. Raises ConnectError."""
        self.configs.refresh()
        return task in self._work.tasks and self.configs.state.tasks.get(task.connector) is tasks

    def _report_unknown(self, owner: Owner) -> None:
        logger.warning(
            "%s has no configuration here: it was deleted since, or the workers of the group have different topics of "
            "configurations", owner,
        )  # fmt: skip

    def _is_source(self, config: Config) -> bool:
        """Whether a configuration is that of a source whose class exists here: without it the task has FAILED."""
        try:
            return self.plugins.is_source(config.get(CONNECTOR_CLASS, ""))
        except ConfigError:
            return False

    def _fence_then_start(self, task: TaskId) -> None:
        """Start a task when the leader has fenced those that had the connector's work before."""

        def fence() -> None:
            self.leader.ask("PUT", task.connector, "fence", None, lambda: self.fence(task.connector))
            self._post(lambda: self._start_fenced(task))

        failure = f"the tasks of {task.connector} are not fenced yet"
        # The herder does not wait for other workers.
        call_in_thread(f"fence-{task}", lambda: self.leader.repeat(fence, lambda: task in self._work.tasks, failure))

    def _start_fenced(self, task: TaskId) -> None:
        self._refresh_configs()
        if task in self._work.tasks - self.worker.tasks:
            self._start_task(task)

    def _apply(self, changes: Changes) -> None:
        """React to a record of the store of configurations."""
        if self._stopping.is_set():
            return
        if changes.connector is not None:
            self._connector_changed(changes.connector)
        elif changes.tasks_of is not None:
            self._tasks_changed(changes.tasks_of)
        elif changes.target_of is not None:
            self._target_changed(changes.target_of)
        elif changes.restart is not None:
            self._restart(changes.restart)
        elif changes.logger_level is not None:
            set_level(*changes.logger_level)

    def _connector_changed(self, name: str) -> None:
        config = self.configs.state.connectors.get(name)
        if config is not None and name in self._work.connectors:
            self.worker.stop_connectors([name])
            self._start_connector(name)
        elif self.leader.is_here:
            self._group.rejoin(f"the configuration of {name} has changed")

    def _tasks_changed(self, connector: str) -> None:
        state = self.configs.state
        mine = [task for task in self._work.tasks if task.connector == connector]
        going_on = [task for task in mine if state.task_config(task) is not None]
        self.worker.stop_tasks(going_on)
        for task in sorted(going_on):
            self._start_task(task)
        if self.leader.is_here:
            self._group.rejoin(f"the tasks of {connector} have changed")

    def _target_changed(self, connector: str) -> None:
        target = self.configs.state.target(connector)
        done = self.worker.change_target(connector, target)
        if done is not None and target is TargetState.STARTED:
            done.add_done_callback(lambda _: self.wants_reconfiguration(connector))

    def _restart(self, request: RestartRequest) -> None:
        name = request.connector
        if name in self._work.connectors and self._is_to_restart(name, request.only_failed):
            self.states.put(name, Status(State.RESTARTING, self.worker_id, self._generation))
            self.worker.stop_connectors([name])
            self._start_connector(name)
        if not request.include_tasks:
            return
        tasks = [
            task
            for task in sorted(self._work.tasks)
            if task.connector == name and self._is_to_restart(task, request.only_failed)
        ]
        for task in tasks:
            self.states.put(task, Status(State.RESTARTING, self.worker_id, self._generation))
        self.worker.stop_tasks(tasks)
        for task in tasks:
            self._start_task(task)

    def _is_to_restart(self, owner: Owner, only_failed: bool) -> bool:
        if not only_failed:
            return True
        status = self.states.status(owner)
        return status is not None and status.state is State.FAILED

    def _reconfigure(self, connector: str) -> None:
        """Ask a connector that runs here for its tasks, and have the leader store them."""
        is_stopped = self.configs.state.target(connector) is TargetState.STOPPED
        asked = None if is_stopped else self.worker.task_configs(connector)
        if asked is None:
            self._ask_pauses_s.pop(connector, None)
        else:
            asked.add_done_callback(lambda done: self._post(lambda: self._publish_tasks(connector, done)))

    def _ask_again(self, connector: str) -> None:
        """Ask a connector that has failed to name its tasks, after longer and longer pauses."""
        if connector in self._asked_again:
            return
        self._asked_again.add(connector)
        pause_s = self._ask_pauses_s.get(connector, ASK_AGAIN_S)
        self._ask_pauses_s[connector] = min(2 * pause_s, ASK_AGAIN_MAX_S)

        def ask_now() -> None:
            self._asked_again.discard(connector)
            self._reconfigure(connector)

        def ask() -> None:
            if not self._stopping.wait(pause_s):
                self._post(ask_now)

        call_in_thread(f"tasks-of-{connector}", ask)

    def _publish_tasks(self, connector: str, done: Future[list[dict[str, str]]]) -> None:
        if (error := done.exception()) is not None:
            logger.error("the tasks of %s stay as they are, and it is asked again: %s", connector, error)
            self._ask_again(connector)
            return
        self._ask_pauses_s.pop(connector, None)
        configs = done.result()
        if self.configs.state.has_tasks(connector, configs):
            self._wanted_tasks.pop(connector, None)
            return
        self._wanted_tasks[connector] = configs
        call_in_thread(f"tasks-of-{connector}", lambda: self._send_tasks(connector, configs))

    def _send_tasks(self, connector: str, configs: list[dict[str, str]]) -> None:
        def send() -> None:
            store = partial(self.put_task_configs, connector, configs)
            self.leader.ask("POST", connector, "tasks", configs, lambda: self.submit(store).result())

        def is_wanted() -> bool:
            return connector in self._work.connectors and self._wanted_tasks.get(connector) is configs

        self.leader.repeat(send, is_wanted, f"the leader does not take the tasks of {connector} yet")
