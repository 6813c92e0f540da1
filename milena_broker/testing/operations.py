"""What tests do with the topics and groups of brokers: create, produce and read.

Owns these operations and their time limits. Must not know processes: `_call` sends a command to the one that hosts the
brokers, or their coordination server.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from milena_broker.testing import arguments
from milena_broker.testing.hosted_process import CALL_TIMEOUT_S, RESPONSE_DELAY_MAX_S, BrokerError
from milena_broker.testing.records import Record, record_of
from milena_broker.testing.rows import batched, messages_of
from milena_broker.testing.steps import Steps, blocking

__tracebackhide__ = True

POLL_S = 0.01
ROWS_AT_ONCE = 10_000


class Operations(ABC):
    """Operations on topics and groups. Methods raise BrokerError, and TypeError and ValueError for wrong arguments."""

    @abstractmethod
    def _call(self, command: str, *, response_timeout_s: float = CALL_TIMEOUT_S, **arguments: object) -> Any:
        """Run a command and return its result. Raises BrokerError."""

    # -- topics and records --------------------------------------------------------------------------------------------

    @blocking
    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> Steps[None]:
        """Create a topic; it has a leader for each partition when this returns."""
        factor = arguments.optional_integer("replication_factor", replication_factor, 1, 32767)
        yield partial(
            self._call,
            "create_topic",
            name=arguments.text("topic", topic),
            partitions=arguments.integer("partitions", partitions, 1),
            replication_factor=-1 if factor is None else factor,
            configs=arguments.settings("configs", configs),
        )

    @blocking
    def produce(self, topic: str, rows: Iterable[object]) -> Steps[int]:
        """Append rows to a topic, which is created if it does not exist; return how many.

        A row is a value, a tuple of key and value, or a mapping with `value` and any of `key`, `headers`, `partition`
        and `timestamp_ms`. Keys and values are bytes, text, or what JSON can express. Without a partition, rows with
        equal keys go to the same one.
        """
        arguments.text("topic", topic)
        count = 0
        for batch in batched(messages_of(rows), ROWS_AT_ONCE):
            yield partial(self._call, "produce", topic=topic, records=batch)
            count += len(batch)
        return count

    @blocking
    def consume(self, topic: str, count: int | None = None, *, timeout_s: float = 10.0) -> Steps[list[Record]]:
        """Return the committed records of a topic from the earliest on, partition by partition.

        With `count`, waits until the topic exists and has that many; raises BrokerError if it has fewer after
        `timeout_s`. Without a response of the broker, raises BrokerError at most 1 second later.
        """
        arguments.text("topic", topic)
        arguments.optional_integer("count", count, 0)

        def lacks(found: list[Record]) -> str | None:
            return None if count is None or len(found) >= count else str(count)

        found = yield from self._read(topic, arguments.number("timeout_s", timeout_s, "seconds"), lacks, count)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def _read(
        self, topic: str, timeout_s: float, lacks: Callable[[list[Record]], str | None], count: int | None
    ) -> Steps[list[Record]]:
        """Read until `lacks` returns None; else it says what is expected. Without a `count`, do not wait for a topic
        that is not about to appear.
        """
        deadline_s = time.monotonic() + timeout_s
        positions: Mapping[str, int] = {}
        found: list[Record] = []
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.0)
            response = yield partial(
                self._call,
                "consume",
                response_timeout_s=left_s + RESPONSE_DELAY_MAX_S,
                topic=topic,
                positions=positions,
                timeout_s=left_s if count is None else 0,
            )
            if "missing" not in response:
                positions = response["positions"]
                found += [record_of(topic, fields) for fields in response["records"]]
                seen, expected = f"topic {topic!r} has {len(found)} records", lacks(found)
                if expected is None:
                    return found
            else:
                seen, expected = response["missing"], f"{count} records"
                if count is None:
                    raise BrokerError(seen)
            if time.monotonic() > deadline_s:
                raise BrokerError(f"{seen} after {timeout_s:g} s, expected {expected}")
            yield POLL_S

    @blocking
    def reset(self) -> Steps[None]:
        """Delete all topics and groups. ACLs, quotas, users and changed settings stay."""
        yield partial(self._call, "reset")
