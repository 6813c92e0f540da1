"""Records of an earlier assignment, which the library may return after a rebalance: sinks get each record once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from spark_jobs.connect.base.api import SinkTask
from spark_jobs.connect.base.connector_settings import SINK_SETTINGS
from spark_jobs.connect.base.records import SinkRecord
from spark_jobs.connect.base.states import Owner, State, TargetState, TaskId
from spark_jobs.connect.converters.header_values import SimpleHeaderConverter
from spark_jobs.connect.converters.simple import StringConverter
from spark_jobs.connect.worker.chain import Converters
from spark_jobs.connect.worker.failures import Failures
from spark_jobs.connect.worker.sink_task import RunningSinkTask, SinkChain
from spark_jobs.connect.worker.subscription import Subscription
from tests.support.waiting import wait_until

TOPIC, COMMITTED = "lines", 100


class Message:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None: ...

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> None: ...

    def value(self) -> bytes:
        return b"line"

    def headers(self) -> None: ...

    def timestamp(self) -> tuple[int, int]:
        return (1, 1)


class LibraryConsumer:
    """A consumer with one partition that returns some offsets, and others after a seek."""

    def __init__(self, first: Sequence[int], after_seek: Sequence[int]) -> None:
        self._waiting = deque(map(Message, first))
        self._after_seek = after_seek
        self._on_assign: Callable[..., None] | None = None
        self.seeks: list[int] = []

    def subscribe(self, _topics: object, *, on_assign: Callable[..., None], **_callbacks: object) -> None:
        self._on_assign = on_assign

    def poll(self, timeout_s: float) -> Message | None:
        if self._on_assign is not None:
            on_assign, self._on_assign = self._on_assign, None
            on_assign(self, [TopicPartition(TOPIC, 0)])
            return None
        if not self._waiting:
            threading.Event().wait(timeout_s / 20)
            return None
        return self._waiting.popleft()

    def consume(self, _count: int, _timeout_s: float) -> list[Message]:
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def committed(self, partitions: Sequence[TopicPartition], _timeout_s: float) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, COMMITTED) for each in partitions]

    def seek(self, partition: TopicPartition) -> None:
        self.seeks.append(partition.offset)
        self._waiting = deque(map(Message, self._after_seek))

    def assign(self, _partitions: object) -> None: ...

    def commit(self, **_options: object) -> None: ...

    def close(self) -> None: ...


class Target(SinkTask):
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def start(self, config: Mapping[str, str]) -> None: ...

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.offsets += [each.offset for each in records]


class Listener:
    def changed(self, owner: Owner, state: State, trace: str | None = None) -> None:
        assert state is not State.FAILED, trace

    def uses_topic(self, task: TaskId, topic: str) -> None: ...


def chain(stopping: threading.Event) -> SinkChain:
    settings = SINK_SETTINGS.parse({"name": "n", "connector.class": "C", "topics": TOPIC})
    failures = Failures(settings, connector="n", task=0, stopping=stopping)
    strings = StringConverter()
    strings.configure({}, is_key=False)
    return SinkChain([], Converters(strings, strings, SimpleHeaderConverter()), failures, None)


@pytest.mark.parametrize(
    ("first", "after_seek", "delivered", "seeks"),
    [
        ([100, 101], [], [100, 101], []),
        ([98, 99, 100], [], [100], []),
        ([150, 151], [100, 101, 150], [100, 101, 150], [100]),
        ([105, 106], [105, 106], [105, 106], [100]),  # compaction has made the gap
        ([100, 105, 104, 106], [], [100, 105, 106], []),
    ],
    ids=["in-order", "earlier", "later", "gap", "backwards"],
)
def test_each_record_behind_the_committed_offset_is_delivered_once(
    first: list[int], after_seek: list[int], delivered: list[int], seeks: list[int]
) -> None:
    consumer: Any = LibraryConsumer(first, after_seek)
    target = Target()
    task = RunningSinkTask(
        TaskId("n", 0),
        Listener(),
        TargetState.STARTED,
        task=target,
        config={},
        new_chain=chain,
        new_consumer=lambda: consumer,
        reset_offset=OFFSET_BEGINNING,
        topic_ids=lambda _topics: {},
        subscription=Subscription([TOPIC], "", refresh_s=1.0),
        flush_interval_s=60,
    )
    task.start()
    wait_until(lambda: target.offsets[-1:] == delivered[-1:])
    task.stop()
    assert task.has_ended(30)
    assert target.offsets == delivered
    assert consumer.seeks == seeks
