"""Signs of life of a mirror: heartbeats as MirrorMaker 2 writes them, and canaries that measure the delay.

A heartbeat is a record of the compacted topic `heartbeats` at the target, which MirrorMaker 2 and its clients read
(`spark_jobs.connect.mirror.formats` has its format). A canary is a record of a topic at the source, which is mirrored
like any other; its value is the time at which it was sent.
"""

import logging
import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from spark_jobs.connect.mirror.formats import Heartbeat
from spark_jobs.skeleton.repeating import Repeater

_LOG = logging.getLogger(__name__)
_FLUSH_TIMEOUT_S = 5

Record = tuple[bytes, bytes]


def heartbeat(source_alias: str, target_alias: str, now_ms: int) -> Record:
    """Return key and value of a heartbeat."""
    beat = Heartbeat(source_alias, target_alias, now_ms)
    return beat.key(), beat.value()


def canary(source_alias: str, target_alias: str, now_ms: int) -> Record:
    """Return key and value of a canary on its way from one cluster to the other."""
    return f"{source_alias}->{target_alias}".encode(), str(now_ms).encode()


class Emitter:
    """Sends a record to a topic at an interval, in a thread; a failure is logged once, until one is stored again."""

    def __init__(
        self, client: Mapping[str, str], topic: str, interval_s: float, record: Callable[[int], Record]
    ) -> None:
        """`record` returns key and value for the present time in milliseconds. Starts immediately."""
        self._topic = topic
        self._record = record
        self._producer = Producer({**client, "message.timeout.ms": max(int(interval_s * 1000), 5_000)})
        self._is_failing = False
        self._repeater = Repeater(f"emitter of {topic}", interval_s, self._send)

    def close(self) -> None:
        """Stop, after the records that were sent are stored or have failed."""
        self._repeater.close()
        self._producer.flush(_FLUSH_TIMEOUT_S)

    def _send(self) -> None:
        key, value = self._record(time.time_ns() // 1_000_000)
        try:
            self._producer.produce(self._topic, value, key, partition=0, on_delivery=self._on_delivery)
        except (BufferError, KafkaException) as error:
            self._report(str(error))
        self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._is_failing = False
        else:
            self._report(str(error.str()))

    def _report(self, reason: str) -> None:
        if not self._is_failing:
            _LOG.warning("%s gets no records: %s", self._topic, reason)
        self._is_failing = True
