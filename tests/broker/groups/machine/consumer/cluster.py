"""A group of the consumer protocol with topics and members that a test controls, without a broker.

Owns: topics by name, a moment that the test moves, and members that do what their clients do: report what they have,
and give up what they are told to. Must not know: any test.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from base.pause import never, whole
from broker.groups.consumer_settings import matcher
from broker.groups.machine.consumer.assignors import RangeAssignor, UniformAssignor
from broker.groups.machine.consumer.events import Heartbeat, HeartbeatResult, Timeouts
from broker.groups.machine.consumer.group import ConsumerGroup
from broker.groups.machine.consumer.membership import ConsumerGroupSettings
from broker.groups.machine.consumer.partitions import NOTHING, Partitions
from broker.groups.machine.consumer.records import Change, encode_key
from broker.groups.machine.consumer.refreshing import Rules
from broker.groups.machine.consumer.topics import Topic
from broker.groups.machine.events import Moment, StoreChanges
from protocol.errors import ErrorCode, KafkaError

SESSION_MS = 45_000
REBALANCE_MS = 60_000
RULES = Rules({each.name: each for each in (UniformAssignor(), RangeAssignor())}, matcher)


def topic_id(number: int) -> UUID:
    return UUID(int=number)


class FakeTopics:
    """Topics by name, with ids in the order of their creation."""

    def __init__(self, **counts: int) -> None:
        self.by_name: dict[str, Topic] = {}
        self.stamp: object = object()
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int) -> None:
        known = self.by_name.get(name)
        identifier = topic_id(len(self.by_name) + 1) if known is None else known.topic_id
        self.by_name = {**self.by_name, name: Topic(identifier, count)}
        self.stamp = object()

    def remove(self, name: str) -> None:
        self.by_name = {other: topic for other, topic in self.by_name.items() if other != name}
        self.stamp = object()

    def find(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def name_of(self, identifier: UUID) -> str | None:
        return next((name for name, topic in self.by_name.items() if topic.topic_id == identifier), None)

    def names(self) -> Iterable[str]:
        return self.by_name


class Ticket:
    """A request that waits."""

    result: object = None


class Cluster:
    """One group, its topics and its log."""

    def __init__(self, *, max_size: int = 1000, **counts: int) -> None:
        self.topics = FakeTopics(**counts)
        self.settings = ConsumerGroupSettings(RULES, max_size, lambda _group_id: Timeouts(SESSION_MS))
        self.group = ConsumerGroup("g", self.settings)
        self.now_ms = 1_000_000
        self.log: dict[bytes, Change] = {}
        self.append_error = ErrorCode.NONE
        """With which the log refuses the next append."""

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.group.advance(self.moment)
        self.settle()

    def settle(self) -> None:
        """Do what the shell does after an event: store, respond, and compute targets."""
        while True:
            effect = self.group.take_effects()
            if effect is not None and self._store(effect):
                return
            self.group.check()
            if not self.group.is_refresh_due(self.topics):
                return
            whole(self.group.refresh(self.topics, never))
            self.group.refreshed(self.moment)

    def _store(self, effect: StoreChanges) -> ErrorCode:
        error, self.append_error = self.append_error if effect.changes else ErrorCode.NONE, ErrorCode.NONE
        if not error:
            for change in effect.changes:
                key = encode_key(change.key)
                if change.value is None:
                    self.log.pop(key, None)
                else:
                    self.log[key] = change
        self.group.stored(error, self.moment)
        rest = self.group.take_effects()
        for ticket, result in (*effect.responses, *(() if rest is None else rest.responses)):
            assert isinstance(ticket, Ticket)
            ticket.result = KafkaError(error) if error else result
        return error

    def reloaded(self) -> ConsumerGroup:
        """Return the group as another coordinator loads it."""
        return ConsumerGroup.restored("g", self.log.values(), self.settings)


def stored(group: ConsumerGroup) -> dict[bytes, object]:
    """Return the values of a group by key."""
    return {encode_key(change.key): change.value for change in group.records()}


class Client:
    """A member of the consumer protocol."""

    def __init__(
        self,
        cluster: Cluster,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.topics: tuple[str, ...] | None = topics
        self.regex = regex
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.has: Partitions = NOTHING
        self.last: HeartbeatResult | None = None

    def heartbeat(self, **changes: object) -> object:
        """Send a heartbeat, and do what the response says; return the result, or the error."""
        is_joining = self.epoch == 0
        request = Heartbeat(
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=REBALANCE_MS if is_joining else -1,
            topic_names=self.topics if is_joining else None,
            topic_regex=self.regex if is_joining else None,
            server_assignor=self.assignor,
            reported=NOTHING if is_joining else self.has,
            client_id="client",
            client_host="/127.0.0.1",
            may_see=lambda _: True,
        )._replace(**changes)
        ticket = Ticket()
        try:
            self.cluster.group.consumer_heartbeat(request, self.cluster.topics, ticket, self.cluster.moment)
        except KafkaError as error:
            self.cluster.settle()
            return self._failed(error)
        self.cluster.settle()
        result = ticket.result
        if isinstance(result, KafkaError):
            return self._failed(result)
        assert isinstance(result, HeartbeatResult), result
        self.last, self.epoch = result, result.epoch
        if result.assigned is not None:
            self.has = result.assigned
        return result

    def _failed(self, error: KafkaError) -> KafkaError:
        if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.has = 0, NOTHING
        return error

    def leave(self, epoch: int = -1) -> object:
        result = self.heartbeat(epoch=epoch)
        self.epoch, self.has = 0, NOTHING
        return result

    @property
    def numbers(self) -> list[int]:
        """The partitions that it has, of whatever topic."""
        return sorted(number for numbers in self.has.values() for number in numbers)


def heartbeats(*clients: Client, rounds: int = 4) -> None:
    """Let each member send some heartbeats in turn: enough for any change."""
    for _ in range(rounds):
        for client in clients:
            client.heartbeat()
