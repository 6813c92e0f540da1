"""Runs connectors and tasks: each task in a thread of its own, the calls of each connector one after the other.

Owns what runs in this process. Must not know why something is started or stopped, or what other workers do. All methods
may be called from any thread. Starting does not wait for connectors' code; stopping does, for a limited time.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from spark_jobs.connect.base.api import (
    Connector,
    JobTask,
    JobTaskContext,
    SinkConnector,
    SinkTask,
    SourceTask,
)
from spark_jobs.connect.base.calls import CallThread
from spark_jobs.connect.base.connector_settings import (
    CONNECTOR_CLASS,
    DEAD_LETTERS,
    DEAD_LETTERS_REPLICATION,
    NAME,
    SINK_SETTINGS,
    SOURCE_SETTINGS,
    TASK_CLASS,
    TASKS_MAX,
    TOPICS,
    TOPICS_REGEX,
    TRANSACTION_BOUNDARY,
    with_current_names,
)
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.states import State, StateListener, TargetState, TaskId
from spark_jobs.connect.stores.offsets import ConnectorOffsets, OffsetStore
from spark_jobs.connect.worker.chain import build_converters, build_steps, with_converters
from spark_jobs.connect.worker.clients import Clients
from spark_jobs.connect.worker.dead_letters import DeadLetters
from spark_jobs.connect.worker.failures import Failures
from spark_jobs.connect.worker.job_task import RunningJobTask
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.providers import with_references
from spark_jobs.connect.worker.settings import WorkerSettings
from spark_jobs.connect.worker.sink_task import RunningSinkTask, SinkChain
from spark_jobs.connect.worker.source_task import (
    AtLeastOnceSourceTask,
    ExactlyOnceSourceTask,
    RunningSourceTask,
    SourceChain,
    TaskTransactions,
)
from spark_jobs.connect.worker.subscription import Subscription
from spark_jobs.connect.worker.task import RunningTask
from spark_jobs.connect.worker.topic_creation import TopicCreation, create_topic
from spark_jobs.connect.worker.topic_ids import topic_ids

logger = logging.getLogger("org.apache.kafka.connect.runtime.Worker")

Config = Mapping[str, str]
T = TypeVar("T")
KAFKA_PACKAGE: Final = "org.apache.kafka."
JOB_STOP_SHARE: Final = 0.8
"""Of the time that tasks have to end: after it, a job is killed."""


class ConnectorEvents(Protocol):
    """What a connector asks of those who decide about tasks. Called from any thread."""

    def wants_reconfiguration(self, connector: str) -> None:
        """The source has changed: the tasks need new configurations."""


class _ConnectorContext:
    def __init__(self, running: _RunningConnector, events: ConnectorEvents) -> None:
        self._running = running
        self._events = events

    def request_reconfiguration(self) -> None:
        self._events.wants_reconfiguration(self._running.name)

    def fail(self, error: Exception) -> None:
        self._running.report(State.FAILED, "".join(traceback.format_exception(error)))


class _RunningConnector:
    """A connector, whose methods are called one at a time by a thread of its own."""

    def __init__(
        self, name: str, connector: Connector, stored: Config, config: Config, listener: StateListener
    ) -> None:
        """`stored` has the references to config providers that are resolved in `config`."""
        self.name = name
        self.connector = connector
        self.stored = stored
        self.config = config
        self.is_started = False
        self.is_abandoned = False
        self.lacks_tasks = False
        """Whether it has FAILED because it could not configure its tasks."""
        self._listener = listener
        self._thread = CallThread(f"connector-{name}")

    def submit(self, call: Callable[[], T]) -> Future[T]:
        return self._thread.submit(call)

    def report(self, state: State, trace: str | None = None) -> None:
        if not self.is_abandoned:
            self._listener.changed(self.name, state, trace)

    def change_target(self, target: TargetState) -> None:
        """Start or stop the connector, in its thread, and report the state. Raises nothing."""
        try:
            if target is TargetState.STARTED and not self.is_started:
                self.connector.start(self.config)
                self.is_started = True
            elif target is not TargetState.STARTED and self.is_started:
                self.is_started = False
                self.connector.stop()
        except BaseException:  # a connector's code may raise anything
            trace = traceback.format_exc()
            logger.error("connector %s has failed\n%s", self.name, trace)
            self.report(State.FAILED, trace)
            return
        self.report(_CONNECTOR_STATES[target])

    def end(self) -> None:
        """Stop the connector, in its thread."""
        try:
            if self.is_started:
                self.is_started = False
                self.connector.stop()
        except BaseException:
            logger.exception("connector %s could not be stopped", self.name)
        self.report(State.UNASSIGNED)

    def close(self) -> None:
        self._thread.close()

    def abandon(self) -> None:
        logger.error("connector %s has not stopped in time, and is abandoned", self.name)
        self.is_abandoned = True


_CONNECTOR_STATES: Mapping[TargetState, State] = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


class _Start(NamedTuple):
    """What a task begins with. References to config providers are resolved; `is_current` is that of `start_task`."""

    task_id: TaskId
    connector_config: Config
    config: Config
    target: TargetState
    is_current: Callable[[], bool]


class Worker:
    """What runs in this process."""

    def __init__(
        self,
        settings: WorkerSettings,
        plugins: Plugins,
        offsets: OffsetStore,
        listener: StateListener,
        events: ConnectorEvents,
    ) -> None:
        self._settings = settings
        self._plugins = plugins
        self._offsets = offsets
        self._listener = listener
        self._events = events
        self._clients = Clients(settings)
        self._lock = threading.Lock()
        self._connectors: dict[str, _RunningConnector] = {}
        self._tasks: dict[TaskId, RunningTask] = {}

    @property
    def connectors(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._connectors)

    @property
    def tasks(self) -> frozenset[TaskId]:
        with self._lock:
            return frozenset(self._tasks)

    def start_connector(self, name: str, config: Config, target: TargetState) -> Future[Any]:
        """Start a connector; the result is set when it runs, or has FAILED."""
        try:
            stored = with_current_names(config)
            connector = self._plugins.connector(stored[CONNECTOR_CLASS])()
            config = self._settings.providers.resolved(stored)
        except BaseException as error:  # a connector's code may raise anything
            logger.error("connector %s cannot be created: %s", name, error)
            self._listener.changed(name, State.FAILED, traceback.format_exc())
            failed: Future[Any] = Future()
            failed.set_result(None)
            return failed
        running = _RunningConnector(name, connector, stored, config, self._listener)
        connector.context = _ConnectorContext(running, self._events)
        with self._lock:
            self._connectors[name] = running
        logger.info("starting connector %s of class %s", name, type(connector).__qualname__)
        return running.submit(lambda: running.change_target(target))

    def stop_connectors(self, names: Iterable[str]) -> None:
        """Stop connectors, and wait for them as long as `task.shutdown.graceful.timeout.ms`."""
        with self._lock:
            ending = [self._connectors.pop(name) for name in names if name in self._connectors]
        ended = [running.submit(running.end) for running in ending]
        deadline_s = time.monotonic() + self._graceful_s
        for running, done in zip(ending, ended, strict=True):
            try:
                done.result(max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                running.abandon()
                self._listener.changed(running.name, State.UNASSIGNED)
            running.close()

    def change_target(self, connector: str, target: TargetState) -> Future[Any] | None:
        """Pause, stop or start a connector and its tasks, as far as they run here; return when the connector is so."""
        with self._lock:
            running = self._connectors.get(connector)
            tasks = [task for each, task in self._tasks.items() if each.connector == connector]
        for task in tasks:
            task.change_target(target)
        return None if running is None else running.submit(lambda: running.change_target(target))

    def task_configs(self, connector: str) -> Future[list[dict[str, str]]] | None:
        """Ask a connector that runs here for the configurations of its tasks; None if it does not run here.

        The result is ConnectError if its code fails, or makes too many.
        """
        with self._lock:
            running = self._connectors.get(connector)
        if running is None or not running.is_started:
            return None
        return running.submit(lambda: self._task_configs(running))

    def _task_configs(self, running: _RunningConnector) -> list[dict[str, str]]:
        settings = SINK_SETTINGS if isinstance(running.connector, SinkConnector) else SOURCE_SETTINGS
        parsed = settings.parse(running.config)
        most = parsed[TASKS_MAX]
        try:
            found = [_texts(each) for each in running.connector.task_configs(most)]
        except BaseException as error:  # a connector's code may raise anything
            running.lacks_tasks = True
            running.report(State.FAILED, traceback.format_exc())
            raise ConnectError(f"connector {running.name} cannot configure its tasks: {error}") from error
        if len(found) > most:
            text = (
                f"The connector {running.name} has generated {len(found)} tasks, which is greater than {most}, "
                f"the maximum number of tasks it is configured to create."
            )
            if parsed["tasks.max.enforce"]:
                running.lacks_tasks = True
                running.report(State.FAILED, text)
                raise ConnectError(text)
            logger.warning("%s", text)
        if running.is_abandoned:
            raise ConnectError(f"connector {running.name} has configured its tasks too late: it was stopped")
        if running.lacks_tasks:
            running.lacks_tasks = False
            running.report(State.RUNNING)
        for each in found:
            each[TASK_CLASS] = self._task_class(running)
            for name in (TOPICS, TOPICS_REGEX):
                if isinstance(running.connector, SinkConnector) and running.config.get(name):
                    each[name] = running.config[name]
        return [with_references(running.stored, running.config, each) for each in found]

    def _task_class(self, running: _RunningConnector) -> str:
        """Return the name of a connector's task class: Java's, if it has one, so that Java's workers find it."""
        plugin = self._plugins.find(running.stored[CONNECTOR_CLASS])
        if plugin is not None and plugin.name.startswith(KAFKA_PACKAGE):
            return f"{plugin.name.removesuffix('Connector')}Task"
        task_class = running.connector.task
        return f"{task_class.__module__}.{task_class.__qualname__}"

    def start_task(
        self,
        task_id: TaskId,
        connector_config: Config,
        config: Config,
        target: TargetState,
        is_current: Callable[[], bool],
    ) -> None:
        """Start a task in its thread. One that cannot be created has FAILED.

        `is_current` is called by an exactly-once source once its producer has fenced all earlier ones, and raises
        ConnectError: the task fails unless it is still to run, here and with this configuration.
        """
        try:
            resolve = self._settings.providers.resolved
            own = {**resolve(config), NAME: task_id.connector}
            start = _Start(task_id, resolve(with_current_names(connector_config)), own, target, is_current)
            task = self._new_task(start)
        except BaseException as error:  # a plug-in's code may raise anything
            logger.error("task %s cannot be created: %s", task_id, error)
            self._listener.changed(task_id, State.FAILED, traceback.format_exc())
            return
        with self._lock:
            self._tasks[task_id] = task
        logger.info("starting task %s", task_id)
        task.start()

    def stop_tasks(self, task_ids: Iterable[TaskId]) -> None:
        """Stop tasks, and wait for all of them together as long as `task.shutdown.graceful.timeout.ms`."""
        with self._lock:
            ending = [self._tasks.pop(each) for each in task_ids if each in self._tasks]
        # `stop` of a task's code may block: each is called in a thread, and waited for with the tasks.
        for task in ending:
            threading.Thread(target=task.stop, name=f"stop-{task.id}", daemon=True).start()
        deadline_s = time.monotonic() + self._graceful_s
        for task in ending:
            if not task.has_ended(max(0.0, deadline_s - time.monotonic())):
                task.abandon()
                self._listener.changed(task.id, State.UNASSIGNED)

    def fence(self, connector: str, config: Config, count: int) -> None:
        """End the transactions of earlier runs of the tasks of a source connector. Raises ConnectError."""
        config = self._settings.providers.resolved(config)
        for number in range(count):
            producer = self._clients.transactional_producer(TaskId(connector, number), config)
            try:
                producer.init_transactions(self._graceful_s + 30.0)
            except Exception as error:
                raise ConnectError(f"the task {connector}-{number} cannot be fenced: {error}") from error

    @property
    def _graceful_s(self) -> float:
        return float(self._settings["task.shutdown.graceful.timeout.ms"]) / 1000

    def _new_task(self, start: _Start) -> RunningTask:
        task = self._plugins.connector(start.connector_config[CONNECTOR_CLASS]).task()
        if isinstance(task, JobTask):
            return self._new_job_task(start, task)
        if isinstance(task, SourceTask):
            return self._new_source_task(start, task)
        return self._new_sink_task(start, task)

    def _new_job_task(self, start: _Start, task: JobTask) -> RunningJobTask:
        connector_config = start.connector_config
        is_sink = issubclass(self._plugins.connector(connector_config[CONNECTOR_CLASS]), SinkConnector)
        parsed = SINK_SETTINGS.parse(connector_config) if is_sink else {}
        admin = self._clients.admin_settings(connector_config)

        def prepare() -> None:
            if letters := parsed.get(DEAD_LETTERS):
                create_topic(admin, letters, 1, parsed[DEAD_LETTERS_REPLICATION], {})

        task.context = JobTaskContext(
            start.task_id, self._clients.job_settings(connector_config, is_consumer=is_sink), self._settings.given
        )
        return RunningJobTask(
            start.task_id,
            self._listener,
            start.target,
            task=task,
            config=with_converters(start.config, self._settings.given),
            prepare=prepare,
            stop_timeout_s=self._graceful_s * JOB_STOP_SHARE,
        )

    def _failures(self, task_id: TaskId, parsed: Mapping[str, Any], stopping: threading.Event, **more: Any) -> Failures:
        return Failures(parsed, connector=task_id.connector, task=task_id.task, stopping=stopping, **more)

    def _new_source_task(self, start: _Start, task: SourceTask) -> RunningSourceTask:
        task_id, connector_config = start.task_id, start.connector_config
        parsed = SOURCE_SETTINGS.parse(connector_config)
        steps = build_steps(connector_config, self._plugins)
        converters = build_converters(connector_config, self._settings.given, self._plugins)
        creation = TopicCreation(self._clients.admin_settings(connector_config), connector_config)
        offsets = ConnectorOffsets(self._offsets, task_id.connector)
        is_exactly_once = self._settings.exactly_once
        kind: Callable[..., RunningSourceTask] = AtLeastOnceSourceTask
        more: dict[str, Any] = {}
        if is_exactly_once:
            kind = ExactlyOnceSourceTask
            more["settings"], more["is_current"] = parsed, start.is_current
            if parsed[TRANSACTION_BOUNDARY].lower() == "connector":
                more["transactions"] = TaskTransactions()
        new_producer = self._clients.transactional_producer if is_exactly_once else self._clients.producer
        return kind(
            task_id,
            self._listener,
            start.target,
            task=task,
            config=start.config,
            new_chain=lambda stopping: SourceChain(steps, converters, self._failures(task_id, parsed, stopping)),
            producer=new_producer(task_id, connector_config),
            reader=offsets,
            writer=offsets,
            prepare_topic=creation.prepare if self._settings["topic.creation.enable"] else lambda topic: None,
            flush_interval_s=self._settings["offset.flush.interval.ms"] / 1000,
            flush_timeout_s=self._settings["offset.flush.timeout.ms"] / 1000,
            **more,
        )

    def _new_sink_task(self, start: _Start, task: SinkTask) -> RunningSinkTask:
        task_id, connector_config = start.task_id, start.connector_config
        parsed = SINK_SETTINGS.parse(connector_config)
        steps = build_steps(connector_config, self._plugins)
        converters = build_converters(connector_config, self._settings.given, self._plugins)
        letters: DeadLetters | None = None
        if parsed[DEAD_LETTERS]:
            letters = DeadLetters(
                self._clients.producer(task_id, connector_config),
                self._clients.admin_settings(connector_config),
                parsed,
                task_id,
            )

        def new_chain(stopping: threading.Event) -> SinkChain:
            more = {} if letters is None else {"report": letters.send}
            return SinkChain(steps, converters, self._failures(task_id, parsed, stopping, **more), letters)

        return RunningSinkTask(
            task_id,
            self._listener,
            start.target,
            task=task,
            config=start.config,
            new_chain=new_chain,
            new_consumer=lambda: self._clients.consumer(task_id, connector_config),
            reset_offset=self._clients.reset_offset(connector_config),
            topic_ids=lambda topics: topic_ids(self._clients.admin_settings(connector_config), topics),
            subscription=Subscription(
                parsed[TOPICS], parsed[TOPICS_REGEX], self._clients.metadata_age_s(connector_config)
            ),
            flush_interval_s=self._settings["offset.flush.interval.ms"] / 1000,
        )


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration of a task as it is stored: a connector may have put numbers into it."""
    return {str(key): str(value) for key, value in config.items() if value is not None}
