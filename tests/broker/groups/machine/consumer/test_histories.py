"""Random histories of groups of the consumer protocol, with members of both protocols.

After each step the invariants hold, no partition is read by two members, and the log makes the same group. In the end,
when nothing happens any more, each partition is read by one member that subscribes to it, and the members of one
subscription have as many as each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from broker.groups.machine.consumer.membership import ConsumerGroupState
from broker.groups.machine.consumer.partitions import each
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.machine.consumer.classic_client import ClassicClient
from tests.broker.groups.machine.consumer.cluster import SESSION_MS, Client, Cluster, stored

STEPS = 120
ROUNDS = 12


class History:
    """One random run."""

    def __init__(self, seed: int, *, with_classic: bool) -> None:
        self._random = Random(seed)
        self._with_classic = with_classic
        self.cluster = Cluster(t=self._random.randint(1, 8), u=self._random.randint(0, 4) or 1)
        self.clients: list[Client | ClassicClient] = []
        self._names = 0

    def step(self) -> None:
        choices: list[tuple[int, Callable[[], object]]] = [
            (12, self._heartbeat), (3, self._join), (1, self._leave), (1, self._vanish), (1, self._grow),
            (1, self._fail_append), (1, self._reload), (1, self._resubscribe),
        ]  # fmt: skip
        weights, actions = zip(*choices, strict=True)
        self._random.choices(actions, weights)[0]()
        self.check()

    def check(self) -> None:
        self.cluster.group.check()
        read = Counter(place for client in self.clients for place in each(client.has))
        assert all(count == 1 for count in read.values()), "A partition is read by one member"
        assert stored(self.cluster.reloaded()) == stored(self.cluster.group), "The log makes the same group"

    def _heartbeat(self) -> None:
        if self.clients:
            self._random.choice(self.clients).heartbeat()

    def _join(self) -> None:
        if len(self.clients) >= 6:
            return
        self._names += 1
        topics = self._random.choice([("t",), ("t", "u"), ("u",)])
        if self._with_classic and self._random.random() < 0.5:
            self.clients.append(ClassicClient(self.cluster, f"m{self._names}", *topics))
        else:
            instance = f"i{self._names}" if self._random.random() < 0.3 else None
            self.clients.append(Client(self.cluster, f"m{self._names}", *topics, instance_id=instance))
        self.clients[-1].heartbeat()

    def _leave(self) -> None:
        if self.clients:
            self.clients.pop(self._random.randrange(len(self.clients))).leave()

    def _vanish(self) -> None:
        """A member is silent until its session is over; the others go on."""
        if self.clients:
            self.clients.pop(self._random.randrange(len(self.clients)))
            self._let_sessions_end()

    def _let_sessions_end(self) -> None:
        for _ in range(3):
            self.cluster.advance(SESSION_MS // 3)
            for client in self.clients:
                client.heartbeat()

    def _grow(self) -> None:
        name = self._random.choice(["t", "u"])
        topic = self.cluster.topics.find(name)
        assert topic is not None
        self.cluster.topics.put(name, min(topic.partition_count + 1, 9))

    def _fail_append(self) -> None:
        self.cluster.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _reload(self) -> None:
        """Another broker coordinates the group now."""
        self.cluster.append_error = ErrorCode.NONE
        group = self.cluster.reloaded()
        group.resume(self.cluster.moment)
        self.cluster.group = group

    def _resubscribe(self) -> None:
        consumers = [client for client in self.clients if isinstance(client, Client) and client.epoch > 0]
        if consumers:
            client = self._random.choice(consumers)
            client.topics = self._random.choice([("t",), ("t", "u")])
            client.heartbeat(topic_names=client.topics)

    def settle(self) -> None:
        self.cluster.append_error = ErrorCode.NONE
        self._let_sessions_end()  # of members whose leaving could not be stored
        for _ in range(ROUNDS):
            for client in self.clients:
                client.heartbeat()
            self.check()


@pytest.mark.parametrize("with_classic", [False, True])
@pytest.mark.parametrize("seed", [*range(25), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(25, 60))])
def test_no_partition_is_read_twice_and_all_are_read_in_the_end(seed: int, with_classic: bool) -> None:
    history = History(seed, with_classic=with_classic)
    for _ in range(STEPS):
        history.step()
    history.settle()
    group = history.cluster.group
    assert group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
    subscribed = {name for member in group.members.values() for name in group.subscribed_names(member.subscription)}
    expected = {
        (topic.topic_id, number)
        for name, topic in history.cluster.topics.by_name.items()
        if name in subscribed
        for number in range(topic.partition_count)
    }
    assert {place for client in history.clients for place in each(client.has)} == expected
    by_topics: dict[object, list[int]] = {}
    for client in history.clients:
        by_topics.setdefault(frozenset(client.topics or ()), []).append(len(client.numbers))
    if len(by_topics) == 1:
        (loads,) = by_topics.values()
        assert max(loads) - min(loads) <= 1
    assert not any(isinstance(client.heartbeat(), KafkaError) for client in history.clients)
