"""Commits are read from `__consumer_offsets` within a limited time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from broker.groups.machine.records import OffsetAndMetadata, offset_key, offset_value
from tools.monitoring.lag_commits import POLL_S, CommitFollower


class Message(NamedTuple):
    """A record of `__consumer_offsets`."""

    key_bytes: bytes | None
    value_bytes: bytes | None

    def error(self) -> None: ...

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes


def commit(group: str, offset: int, time_ms: int) -> Message:
    return Message(
        offset_key(group, "t", 0),
        offset_value(OffsetAndMetadata(offset=offset, metadata="", commit_timestamp_ms=time_ms)),
    )


class FakeConsumer:
    """Returns one scripted batch for each call; each call takes `POLL_S` on its clock."""

    def __init__(self, batches: Iterator[list[Message]]) -> None:
        self.now_s = 0.0
        self.calls = 0
        self.assigned: list[int] = []
        self._batches = batches

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [each.partition for each in partitions]

    def consume(self, number: int, timeout: float) -> list[Message]:
        assert number > 0
        self.now_s += timeout
        self.calls += 1
        return next(self._batches, [])


def follower(
    consumer: FakeConsumer, *, time_s: float = 5.0, kept: int = 10, is_stopped: Callable[[], bool] = lambda: False
) -> CommitFollower:
    return CommitFollower(
        consumer,  # type: ignore[arg-type]
        re.compile("^g"),
        kept,
        time_s=time_s,
        is_stopped=is_stopped,
        clock=lambda: consumer.now_s,
    )


def test_commits_of_the_wanted_groups_are_returned_in_order() -> None:
    other = [commit("other", 1, 10), Message(b"\x00\x63", b""), Message(offset_key("g", "t", 0), None)]
    consumer = FakeConsumer(iter([[commit("g", 1, 10), *other], [commit("g", 2, 20)], [], [commit("g", 3, 30)]]))
    following = follower(consumer)
    assert following.read(4) == {("g", ("t", 0)): [(1, 10), (2, 20)]}
    assert consumer.assigned == [0, 1, 2, 3]
    consumer.assigned = []
    assert following.read(4) == {("g", ("t", 0)): [(3, 30)]}
    assert consumer.assigned == []


def test_a_read_ends_although_commits_never_pause() -> None:
    consumer = FakeConsumer([commit("g", number, number)] for number in count(1))
    found = follower(consumer, time_s=1.0, kept=3).read(1)
    assert consumer.now_s <= 1.0 + POLL_S
    assert found[("g", ("t", 0))][-1][0] == consumer.calls
    assert len(found[("g", ("t", 0))]) == 3


def test_a_read_ends_when_the_tool_is_stopped() -> None:
    consumer = FakeConsumer([commit("g", number, number)] for number in count(1))
    follower(consumer, time_s=1e9, is_stopped=lambda: consumer.calls >= 2).read(1)
    assert consumer.calls == 2
