"""A worker without a herder: tests start single tasks on it, and see their states and offsets."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.connect.base.states import Owner, State, TargetState, TaskId
from spark_jobs.connect.stores.offsets import FileOffsets, OffsetStore, TopicOffsets
from spark_jobs.connect.stores.topic_log import TopicLog
from spark_jobs.connect.worker.clients import sink_group
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings, library_logger
from spark_jobs.connect.worker.worker import Worker
from tests.support.waiting import wait_until

PLUG_INS = Path(__file__).parents[1] / "plug_ins"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
OFFSETS_TOPIC = "run-offsets"
TOLERATED_AND_REPEATED = {
    "errors_tolerance": "all",
    "errors_retry_timeout": "-1",
    "transforms": "t",
    "transforms_t_type": "Postpone",
    "transforms_t_value": "later",
}
"""Settings of a connector that converts the value `later` again and again."""
_numbers = itertools.count()


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


def load_scripted() -> tuple[Plugins, Any]:
    """Return plug-ins with those of `scripted`, and that module as the worker has imported it."""
    plugins = Plugins([PLUG_INS])
    return plugins, sys.modules["scripted"]


class Run:
    """One worker, whose tasks end with the block."""

    def __init__(self, bootstrap: str, folder: Path, **settings: str) -> None:
        """Underscores in the names of settings stand for dots."""
        self.bootstrap = bootstrap
        self.states: list[tuple[Owner, State, str | None]] = []
        self.used_topics: list[tuple[TaskId, str]] = []
        self.reconfigurations: list[str] = []
        self.is_current = True
        """What exactly-once tasks are told when they ask whether they are still to run."""
        self.is_distributed = "exactly_once_source_support" in settings
        own = {
            "group.id": "runs",
            "config.storage.topic": "unused",
            "status.storage.topic": "unused",
            "offset.storage.topic": OFFSETS_TOPIC,
        }
        given = {
            "bootstrap.servers": bootstrap,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "offset.flush.interval.ms": "50",
            "offset.flush.timeout.ms": "10000",
            "producer.linger.ms": "0",
            **(own if self.is_distributed else {"offset.storage.file.filename": str(folder / "offsets")}),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.plugins, scripted = load_scripted()
        self.scripts = scripted.SCRIPTS
        self.offsets: OffsetStore = self._topic() if self.is_distributed else FileOffsets(folder / "offsets")
        self.offsets.start()
        self.worker = Worker(
            WorkerSettings(given, is_distributed=self.is_distributed), self.plugins, self.offsets, self, self
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        names = {f"task-{each}" for each in self.worker.tasks}
        self.worker.stop_tasks(self.worker.tasks)
        # Those that were abandoned still close their clients.
        wait_until(lambda: not names & {each.name for each in threading.enumerate()}, "the tasks end")
        self.worker.stop_connectors(self.worker.connectors)
        self.offsets.stop()
        self.scripts.clear()  # they keep what tests have given them

    def _topic(self) -> TopicOffsets:
        client = {"bootstrap.servers": self.bootstrap, "logger": library_logger}
        return TopicOffsets(
            lambda on_record: TopicLog(
                OFFSETS_TOPIC,
                client=client,
                consumer={**client, "isolation.level": "read_committed"},
                producer={**client, "linger.ms": 0},
                partitions=1,
                replication_factor=1,
                config={},
                on_record=on_record,
            )
        )

    # StateListener and ConnectorEvents

    def changed(self, owner: Owner, state: State, trace: str | None = None) -> None:
        self.states.append((owner, state, trace))

    def uses_topic(self, task: TaskId, topic: str) -> None:
        self.used_topics.append((task, topic))

    def wants_reconfiguration(self, connector: str) -> None:
        self.reconfigurations.append(connector)

    # What tests do

    def start(self, script: Any, connector_class: str, number: str = "0", **config: str) -> TaskId:
        """Start a task of a connector that has the script. Underscores in the names of settings stand for dots."""
        name = config.pop("name", None) or unique("run")
        self.scripts[name] = script
        settings = {
            "name": name,
            "connector.class": connector_class,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        task = TaskId(name, int(number))
        config = {**settings, "number": number}
        self.worker.start_task(task, settings, config, TargetState.STARTED, lambda: self.is_current)
        return task

    def state(self, owner: Owner) -> State | None:
        return next((state for each, state, _ in reversed(self.states) if each == owner), None)

    def trace(self, owner: Owner) -> str:
        return next(trace or "" for each, _, trace in reversed(self.states) if each == owner)

    def wait_for(self, owner: Owner, state: State) -> None:
        wait_until(lambda: self.state(owner) is state, f"{owner} is {state}, last {self.states[-3:]}", timeout_s=20)

    def committed(self, connector: str, topic: str, partition: int = 0) -> int:
        """Return the committed offset of a sink, -1 without one."""
        with_group = {"bootstrap.servers": self.bootstrap, "group.id": sink_group(connector)}
        consumer = Consumer(with_group)
        try:
            found = consumer.committed([TopicPartition(topic, partition)], 10)
        finally:
            consumer.close()
        return max(-1, int(found[0].offset))


def new_topic(bootstrap: str, partitions: int = 1, *, name: str | None = None) -> str:
    """Create a topic, with a name of its own if it has none, and return the name."""
    name = name or unique("topic")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
    return name


def send(bootstrap: str, topic: str, values: Sequence[str], partition: int = 0, **headers: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, f"key of {value}", partition, headers=list(headers.items()) or None)
    assert producer.flush(10) == 0


def read(bootstrap: str, topic: str, count: int, *, isolation: str = "read_committed") -> list[Message]:
    """Return the first records of a topic; with more than `count` also those, with fewer the test fails."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    found: list[Message] = []

    def has_read() -> bool:
        found.extend(consumer.consume(1000, 0.1))
        return len(found) >= count

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        wait_until(has_read, f"{count} records in {topic}", timeout_s=20)
        found.extend(consumer.consume(1000, 0.1))
    finally:
        consumer.close()
    return found


def values(messages: Sequence[Message]) -> list[str]:
    return [(message.value() or b"").decode() for message in messages]


def headers(message: Message) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in message.headers() or []}
