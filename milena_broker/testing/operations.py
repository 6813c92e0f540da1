"""What tests do with the topics and groups of brokers: create, produce, read, and wait.

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
from milena_broker.testing.hosted_process import CALL_TIMEOUT_S, RESPONSE_DELAY_MAX_S, BrokerError, RefusedError
from milena_broker.testing.records import Group, Record, record_of
from milena_broker.testing.rows import batched, messages_of
from milena_broker.testing.steps import Steps, blocking

__tracebackhide__ = True

POLL_S = 0.01


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
        for batch in batched(messages_of(rows)):
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

    @blocking
    def wait_for_record(
        self, topic: str, matches: Callable[[Record], object], *, timeout_s: float = 10.0
    ) -> Steps[Record]:
        """Return the first committed record for which `matches` returns a true value, when there is one.

        Waits for the topic as well. Raises BrokerError if there is none after `timeout_s`.
        """
        arguments.text("topic", topic)
        if not callable(matches):
            raise TypeError(f"matches is {arguments.shown(matches)}: expected a function of a record")
        judged = 0
        matching: list[Record] = []

        def lacks(found: list[Record]) -> str | None:
            nonlocal judged
            new, judged = found[judged:], len(found)
            matching.extend(record for record in new if not matching and matches(record))
            if matching:
                return None
            last = f"; the last one is {found[-1]}" if found else ""
            return f"one that matches{last}"

        yield from self._read(topic, arguments.number("timeout_s", timeout_s, "seconds"), lacks, 1)
        return matching[0]

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
                if expected is None and response["is_complete"]:
                    return found
                if not response["is_complete"]:
                    continue
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

    # -- waits ---------------------------------------------------------------------------------------------------------

    @blocking
    def wait_for_topic(self, topic: str, partitions: int | None = None, *, timeout_s: float = 10.0) -> Steps[int]:
        """Return how many partitions a topic has when it exists, and each partition has a leader.

        With `partitions`, waits until it has that many. Raises BrokerError after `timeout_s`.
        """
        arguments.optional_integer("partitions", partitions, 1)

        def judged(state: Mapping[str, Any]) -> str | None:
            found = state["partitions"]
            if state["error"] is not None:
                return f"topic {topic!r} {state['error']}"
            if partitions is not None and len(found) != partitions:
                return f"topic {topic!r} has {len(found)} partitions"
            without = [str(each["index"]) for each in found if each["leader"] < 0]
            return f"topic {topic!r} has no leader for partition {', '.join(without)}" if without else None

        expected = "a topic with leaders" if partitions is None else f"{partitions} partitions with leaders"
        state = yield from self._wait("topic_state", {"topic": topic}, judged, expected, timeout_s)
        return len(state["partitions"])

    @blocking
    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None, timeout_s: float = 10.0
    ) -> Steps[int]:
        """Return the id of the broker that leads a partition, when there is one.

        With `other_than`, waits until it is not that broker. Raises BrokerError after `timeout_s`.
        """
        arguments.integer("partition", partition, 0)
        arguments.optional_integer("other_than", other_than, 0)

        def judged(state: Mapping[str, Any]) -> str | None:
            leader = _leader(state, partition)
            if state["error"] is not None:
                return f"topic {topic!r} {state['error']}"
            if leader is None:
                return f"topic {topic!r} has {len(state['partitions'])} partitions"
            return f"the leader of {topic}-{partition} is {leader}" if leader in (-1, other_than) else None

        expected = f"a leader of {topic}-{partition}" + ("" if other_than is None else f" other than {other_than}")
        state = yield from self._wait("topic_state", {"topic": topic}, judged, expected, timeout_s)
        leader = _leader(state, partition)
        assert leader is not None
        return leader

    @blocking
    def wait_for_isr(self, topic: str, *, timeout_s: float = 10.0) -> Steps[None]:
        """Return when all replicas of a topic are in sync. Raises BrokerError after `timeout_s`."""

        def judged(state: Mapping[str, Any]) -> str | None:
            if state["error"] is not None:
                return f"topic {topic!r} {state['error']}"
            lacking = [
                f"the ISR of {topic}-{each['index']} is {each['isr']} of {each['replicas']}"
                for each in state["partitions"]
                if set(each["isr"]) != set(each["replicas"])
            ]
            return ", ".join(lacking) or None

        expected = f"all replicas of {topic!r} in sync"
        yield from self._wait("topic_state", {"topic": topic}, judged, expected, timeout_s)

    @blocking
    def wait_for_group(
        self, group: str, *, members: int | None = None, is_caught_up: bool = True, timeout_s: float = 10.0
    ) -> Steps[Group]:
        """Return a group when it is stable and has committed all records of its topics.

        Its topics are those of which it has committed offsets. With `members` it has exactly that many; 0 for a group
        that all members have left, which is Dead, as in Kafka, if it has no offsets either. Without `is_caught_up`, its
        offsets do not matter. Raises BrokerError after `timeout_s`.
        """
        arguments.text("group", group)
        arguments.optional_integer("members", members, 0)
        arguments.flag("is_caught_up", is_caught_up)
        state_wanted = "Empty" if members == 0 else "Stable"

        def judged(found: Mapping[str, Any]) -> str | None:
            if found["state"] == "Dead" and (members != 0 or is_caught_up):
                return f"group {group!r} does not exist"
            has_members = found["members"] == members if members is not None else found["members"] > 0
            if found["state"] not in (state_wanted, "Dead") or not has_members:
                return f"group {group!r} is {found['state']} with {found['members']} members"
            if not is_caught_up:
                return None
            if not found["has_commits"]:
                return f"group {group!r} has committed no offset"
            lags = [f"{lag} records of {name}" for name, lag in found["lags"].items() if lag]
            return f"group {group!r} has not committed {', '.join(lags)}" if lags else None

        expected = f"a group that is {state_wanted}" + ("" if members is None else f" with {members} members")
        expected += " and has committed all records" if is_caught_up else ""
        found = yield from self._wait("group_state", {"group": group}, judged, expected, timeout_s)
        return Group(group, found["state"], found["members"], sum(found["lags"].values()))

    def _wait(
        self,
        command: str,
        options: Mapping[str, object],
        judged: Callable[[Any], str | None],
        expected: str,
        timeout_s: float,
    ) -> Steps[Any]:
        """Return the result of a command when `judged` returns None for it; else it says what was seen."""
        for name, value in options.items():
            arguments.text(name, value)
        deadline_s = time.monotonic() + arguments.number("timeout_s", timeout_s, "seconds")
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.0)
            try:
                state = yield partial(
                    self._call, command, response_timeout_s=left_s + RESPONSE_DELAY_MAX_S, **dict(options)
                )
                seen = judged(state)
            except RefusedError as error:
                seen = str(error)
            if seen is None:
                return state
            if time.monotonic() > deadline_s:
                raise BrokerError(f"{seen} after {timeout_s:g} s, expected {expected}")
            yield POLL_S


def _leader(state: Mapping[str, Any], partition: int) -> int | None:
    """Return the leader of a partition, -1 for none; None if there is no such partition."""
    return next((each["leader"] for each in state["partitions"] if each["index"] == partition), None)
