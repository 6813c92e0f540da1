"""Create topics and add partitions, requested by clients or written into the store by hand.

Owns both ways, which end in the same steps: add the topic to the context, watch it, elect its first leaders.
"""

import logging
from collections.abc import Iterable, Mapping
from uuid import UUID

from base.pause import through
from base.topic_partition import TopicPartition
from controller.active.term import Term
from controller.machine.events import CreatePartitions, CreateTopics, TopicModified, TopicsChanged
from controller.machine.leadership import ElectionReason
from controller.machine.model import ReplicaAssignment, Topic
from controller.machine.partition_states import PartitionState
from controller.machine.replica_states import ReplicaState
from controller.machine.topic_creation import NewTopic, TopicNames, TopicResult, plan_partitions, plan_topic, repeated
from controller.store.state_store import DataTooLarge
from controller.tree import paths
from controller.tree.topic_nodes import new_topic_id, too_large
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic

logger = logging.getLogger("kafka.controller.KafkaController")


class Topics:
    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context

    # -- creation --------------------------------------------------------------------------------------------------

    async def create_topics(self, event: CreateTopics) -> list[TopicResult]:
        """Create the valid topics; return one result per entry. On return the store holds their leaders."""
        twice = await repeated((topic.name for topic in event.topics), self._term.pause)
        results: list[TopicResult] = []
        created: list[str] = []
        existing = TopicNames(over=self._context.taken_names)
        async for request in through(event.topics, self._term.pause):
            try:
                if request.name in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
                planned = self._plan(request, existing)
                topic = Topic(self._new_topic_id(), planned.partitions)
                if not event.validate_only:
                    # It may have been created by hand at the same time: the watch reports it.
                    await self._term.store.create_topic(request.name, topic, planned.overrides)
                    created.append(request.name)
                existing.add(request.name)
                results.append(_created(request.name, planned, None if event.validate_only else self._told(topic)))
            except KafkaError as error:
                results.append(TopicResult.failed(request.name, error))
        if created:
            await self._begin(await self.load(created))
        return results

    def _plan(self, request: CreatableTopic, existing: TopicNames) -> NewTopic:
        if self._context.is_to_be_deleted(request.name):
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' is marked for deletion.")
        broker_count = max(len(self._context.live_brokers), 1)
        return plan_topic(
            request,
            existing,
            self._racks(),
            self._term.settings,
            start=self._term.random.randrange(broker_count),
            shift=self._term.random.randrange(broker_count),
        )

    def _racks(self) -> dict[int, str | None]:
        return {broker_id: broker.rack for broker_id, broker in self._context.live_brokers.items()}

    def _told(self, topic: Topic) -> UUID | None:
        """Return the id of a topic unless brokers do not learn it: no broker could serve a request that names it."""
        return topic.topic_id if self._term.settings.protocol.has_topic_ids else None

    def _new_topic_id(self) -> UUID:
        return new_topic_id(self._term.random, self._context.topic_names)

    async def topics_changed(self, event: TopicsChanged) -> None:
        """Add topics that another writer created, and remove those that another writer removed."""
        names = set(await self._term.store.children(paths.TOPICS, self._term.on_change(event)))
        for name in sorted(self._context.topic_ids.keys() - names):
            logger.warning("topic %s was removed from the store by another writer", name)
            self._context.remove_topic(name)
        await self._begin(await self.load(names - self._context.topic_ids.keys()))

    async def load(self, names: Iterable[str]) -> dict[str, Topic]:
        """Read and watch topics; a topic without an id gets one."""
        topics = await self._term.store.read_topics(sorted(names), self._term.on_topic_change())
        for name, topic in topics.items():
            if topic.topic_id is None:
                topics[name] = Topic(self._new_topic_id(), topic.partitions)
                await self._term.store.write_topic(name, topics[name])
        return topics

    async def _begin(self, topics: Mapping[str, Topic]) -> None:
        async for name, topic in through(topics.items(), self._term.pause):
            self._context.put_topic(name, topic)
        await self._start([partition for name in topics for partition in self._context.partitions_of(name)])

    async def _start(self, partitions: list[TopicPartition]) -> None:
        """Create new partitions and elect their first leaders."""
        transitions, replicas = self._term.transitions, self._context.replicas_of(partitions)
        await transitions.move_partitions(partitions, PartitionState.NEW)
        await transitions.move_replicas(replicas, ReplicaState.NEW)
        await transitions.elect(partitions, ElectionReason.OFFLINE)
        await transitions.move_replicas(replicas, ReplicaState.ONLINE)

    # -- more partitions -------------------------------------------------------------------------------------------

    async def create_partitions(self, event: CreatePartitions) -> list[TopicResult]:
        """Add partitions to topics; return one result per name."""
        twice = await repeated((topic.name for topic in event.topics), self._term.pause)
        results: list[TopicResult] = []
        async for request in through({topic.name: topic for topic in event.topics}.values(), self._term.pause):
            try:
                if request.name in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
                added = self._plan_partitions(request)
                if not event.validate_only:
                    await self._add(request.name, added)
                results.append(TopicResult(request.name, partition_count=request.count))
            except KafkaError as error:
                results.append(TopicResult.failed(request.name, error))
        return results

    def _plan_partitions(self, request: CreatePartitionsTopic) -> dict[int, ReplicaAssignment]:
        name = request.name
        if name not in self._context.topic_ids:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if self._context.is_to_be_deleted(name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        if any(topic == name for topic, _ in self._context.reassigning):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{name}'.",
            )
        return plan_partitions(request, self._context.assignments[name], self._racks())

    async def _add(self, name: str, added: Mapping[int, ReplicaAssignment]) -> None:
        grown = Topic(self._context.topic_ids[name], self._context.assignments[name] | dict(added))
        try:
            await self._term.store.write_topic(name, grown)
        except DataTooLarge as error:
            raise too_large(name, error, ErrorCode.INVALID_PARTITIONS) from error
        self._context.put_topic(name, grown)
        await self._start([(name, partition) for partition in added])

    async def topic_modified(self, event: TopicModified) -> None:
        """Start partitions that were added to the topic's node by hand, or a topic whose node can be read now."""
        name = event.topic
        known = self._context.assignments.get(name)
        if known is None:
            await self._begin(await self.load([name]))
            return
        topic = (await self._term.store.read_topics([name], self._term.on_topic_change())).get(name)
        if topic is None:
            return
        added = {partition: it for partition, it in topic.partitions.items() if partition not in known}
        if not added:
            return
        if self._context.is_to_be_deleted(name):
            logger.warning("topic %s is being deleted: removing the partitions that were added to its node", name)
            await self._term.store.write_topic(name, self._context.topic(name))
            return
        self._context.assignments[name] |= added
        await self._start([(name, partition) for partition in added])


def _created(name: str, planned: NewTopic, topic_id: UUID | None) -> TopicResult:
    return TopicResult(
        name,
        topic_id=topic_id,
        partition_count=len(planned.partitions),
        replication_factor=planned.replication_factor,
        configs=planned.overrides,
    )
