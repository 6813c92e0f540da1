"""The metadata of the cluster: brokers, topics and leaders, as the controller last sent them.

Owns: the state that Metadata, FindCoordinator and DescribeCluster respond with. Must not know: how it was decided, or
requests of clients. Only UpdateMetadata writes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import field
from types import MappingProxyType
from typing import Final
from uuid import UUID

from base.dataclass import dataclass
from base.pause import Pause
from protocol.messages.update_metadata import UPDATE_OF_ALL, UpdateMetadataPartitionState, UpdateMetadataRequest
from protocol.schema import ZERO_UUID, Encoded

LEADER_OF_DELETED_TOPIC = -2
NO_LEADER = -1
NO_EPOCH = -1
NONE_DECLARED: Final[Mapping[str, int]] = MappingProxyType({})
ENCODED_MAX: Final = 8
"""How many encoded responses are kept per topic: one for each version and listener in use."""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker, with its address on each listener."""

    node_id: int
    rack: str | None
    endpoints: dict[str, tuple[str, int]]
    """(host, port) by listener name."""


@dataclass(slots=True)
class TopicState:
    """One topic and the states of its partitions by number."""

    name: str
    topic_id: UUID
    partitions: dict[int, UpdateMetadataPartitionState] = field(default_factory=dict)
    declared_count: int = 0
    """How many partitions the topic's node in the metadata store has; 0 if it was not read."""
    encoded: dict[Hashable, Encoded] = field(default_factory=dict)
    """Encoded responses by the request's key. A changed topic has a new state."""
    encoded_for: Mapping[int, BrokerNode] | None = None
    """The brokers of these responses, which depend on which leaders are alive."""

    def recall(self, asked: Hashable, brokers: Mapping[int, BrokerNode]) -> Encoded | None:
        """Return the response that was remembered for the same brokers."""
        return self.encoded.get(asked) if self.encoded_for is brokers else None

    def remember(self, asked: Hashable, brokers: Mapping[int, BrokerNode], encoded: Encoded) -> None:
        if self.encoded_for is not brokers or len(self.encoded) >= ENCODED_MAX:
            self.encoded.clear()
            self.encoded_for = brokers
        self.encoded[asked] = encoded


class MetadataCache:
    """The cluster as seen from here. Its dictionaries are replaced and never changed."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, TopicState] = {}
        self._names_by_id: dict[UUID, str] = {}

    def id_of(self, topic: str) -> UUID:
        """Return the id of a topic; zeros for one that does not exist, or has none."""
        state = self.topics.get(topic)
        return ZERO_UUID if state is None else state.topic_id

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names_by_id.get(topic_id)

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has; None if it does not exist.

        This includes partitions that never had a leader, if the topic's node was read: `partitions` lacks them.
        """
        state = self.topics.get(topic)
        return None if state is None else max(len(state.partitions), state.declared_count)

    def contains(self, topic: str, partition: int) -> bool:
        state = self.topics.get(topic)
        return state is not None and partition in state.partitions

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of the leading broker, or NO_LEADER."""
        state = self.topics.get(topic)
        known = None if state is None else state.partitions.get(partition)
        return NO_LEADER if known is None else known.leader

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """Return the epoch of the leader that `leader_of` returns, NO_EPOCH for an unknown partition."""
        state = self.topics.get(topic)
        known = None if state is None else state.partitions.get(partition)
        return NO_EPOCH if known is None else known.leader_epoch

    def preferred_leader_of(self, topic: str, partition: int) -> int:
        """Return the first of the replicas, which should lead; NO_LEADER for an unknown partition."""
        state = self.topics.get(topic)
        known = None if state is None else state.partitions.get(partition)
        return NO_LEADER if known is None else known.replicas[0]

    def is_assigned(self, broker_id: int, topic: str, partition: int) -> bool:
        """Return whether the broker has a replica of the partition."""
        state = self.topics.get(topic)
        known = None if state is None else state.partitions.get(partition)
        return known is not None and broker_id in known.replicas

    def has_leaders(self, topic: str, partition_count: int) -> bool:
        """Return whether the first `partition_count` partitions of the topic all have a live leader."""
        state = self.topics.get(topic)
        if state is None:
            return False
        known = state.partitions
        return all(index in known and known[index].leader in self.brokers for index in range(partition_count))

    def snapshot(self) -> MetadataCache:
        """Return the cluster as it is known now, for readers that work in steps: no later request changes it."""
        return copy(self)

    async def update(
        self, request: UpdateMetadataRequest, pause: Pause, declared_counts: Mapping[str, int] = NONE_DECLARED
    ) -> set[str]:
        """Apply one UpdateMetadata request; return the names of the topics that changed.

        `declared_counts` has the partition counts of those topics of the request whose nodes were read.

        A request with all partitions removes the others, for example those that were deleted while this broker was not
        registered. The new state is prepared in steps and replaces the old one in a single step, so that readers never
        see a part of a request: with some partitions of a topic, a producer would hash its keys over too few. The next
        update must not begin before the last step.
        """
        brokers = {
            broker.id: BrokerNode(
                broker.id,
                broker.rack,
                {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in broker.endpoints},
            )
            for broker in request.live_brokers
        }
        next_state = _NextState(self.topics, self._names_by_id)
        changed = set()
        for topic in request.topic_states:
            changed.add(topic.topic_name)
            for partition in topic.partition_states:
                if partition.leader == LEADER_OF_DELETED_TOPIC:
                    next_state.forget(topic.topic_name, partition.partition_index)
                else:
                    next_state.learn(topic.topic_name, topic.topic_id, partition)
                await pause()
        for name, count in declared_counts.items():
            next_state.declare(name, count)
        if request.type == UPDATE_OF_ALL:
            changed |= await self._forget_others(request, next_state, pause)
        self.controller_id = request.controller_id
        self.topics, self._names_by_id = next_state.topics, next_state.names_by_id
        if brokers != self.brokers:
            self.brokers = brokers
        replaced = next_state.replaced
        while replaced:  # freeing the states of thousands of partitions in one step would stall the broker
            replaced.pop()
            await pause()
        return changed

    async def _forget_others(self, request: UpdateMetadataRequest, next_state: _NextState, pause: Pause) -> set[str]:
        """Remove the partitions that the request does not name; return the names of their topics."""
        named: dict[str, set[int]] = {}
        for topic in request.topic_states:
            named.setdefault(topic.topic_name, set()).update(it.partition_index for it in topic.partition_states)
            await pause()
        changed = set()
        for name, state in list(next_state.topics.items()):
            for index in state.partitions.keys() - named.get(name, set()):
                next_state.forget(name, index)
                changed.add(name)
            await pause()
        return changed


class _NextState:
    """The topics after an update, while it is prepared. The states that readers see are copied before a change."""

    def __init__(self, topics: dict[str, TopicState], names_by_id: dict[UUID, str]) -> None:
        self.topics = topics.copy()
        self.names_by_id = names_by_id
        """Copied before the first change: most updates change no id."""
        self._are_names_copied = False
        self.replaced: list[TopicState] = []
        """The states that the update replaces or removes."""
        self._own: set[str] = set()
        """Topics whose state in `topics` was created or copied here."""

    def learn(self, topic: str, topic_id: UUID, partition: UpdateMetadataPartitionState) -> None:
        state = self.topics.get(topic)
        if state is None or state.topic_id != topic_id:
            if state is not None:
                self._remove(state)
            state = self.topics[topic] = TopicState(topic, topic_id)
            self._changeable_names()[topic_id] = topic
            self._own.add(topic)
        self._changeable(state).partitions[partition.partition_index] = partition

    def declare(self, topic: str, partition_count: int) -> None:
        state = self.topics.get(topic)
        if state is not None:
            self._changeable(state).declared_count = partition_count

    def forget(self, topic: str, partition: int) -> None:
        state = self.topics.get(topic)
        if state is None:
            return
        state = self._changeable(state)
        state.partitions.pop(partition, None)
        if not state.partitions:
            self._remove(state)

    def _changeable(self, state: TopicState) -> TopicState:
        """Return the state that the update may change: the given one, or a copy that takes its place."""
        if state.name not in self._own:
            self._own.add(state.name)
            self.replaced.append(state)
            state = self.topics[state.name] = TopicState(
                state.name, state.topic_id, state.partitions.copy(), state.declared_count
            )
        return state

    def _changeable_names(self) -> dict[UUID, str]:
        if not self._are_names_copied:
            self.names_by_id, self._are_names_copied = self.names_by_id.copy(), True
        return self.names_by_id

    def _remove(self, state: TopicState) -> None:
        del self.topics[state.name]
        self._changeable_names().pop(state.topic_id, None)
        if state.name in self._own:
            self._own.discard(state.name)
        else:
            self.replaced.append(state)
