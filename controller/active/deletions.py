"""Delete topics. A deletion spans as many events as the brokers need to respond.

Owns the steps and their order (docs/controller.md). A later controller completes a deletion that was started: the
request stays in the store until all nodes of the topic are gone.
"""

import logging
from collections.abc import Collection, Iterable, Sequence

from base.pause import through
from controller.active.term import Term
from controller.machine.events import DeleteTopics, DeletionsChanged, StopReplicaResponseReceived
from controller.machine.model import PartitionReplica
from controller.machine.partition_states import PartitionState
from controller.machine.replica_states import ReplicaState
from controller.machine.topic_creation import TopicResult, repeated
from controller.machine.topic_deletion import next_step, replicas_to_delete, topics_not_deletable_now
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.controller.TopicDeletionManager")

TOPICS_PER_REMOVAL = 50
"""Topics whose nodes are removed together. It bounds the work between two events."""


class Deletions:
    def __init__(self, term: Term) -> None:
        self._term = term
        self._context = term.context

    # -- events ----------------------------------------------------------------------------------------------------

    async def delete_topics(self, event: DeleteTopics) -> list[TopicResult]:
        """Start the valid deletions; return one result per name."""
        results = [TopicResult(name) for name in event.names]
        twice = await repeated(event.names, self._term.pause)
        wanted: list[str] = []
        for result in results:
            try:
                self._check(result.name, twice)
                wanted.append(result.name)
            except KafkaError as error:
                result.error_code, result.message = error.code, error.message
        fresh = [name for name in wanted if not self._context.is_to_be_deleted(name)]
        if fresh:
            await self._term.store.request_deletion(fresh)
            await self._schedule(fresh)
        return results

    async def deletions_changed(self, event: DeletionsChanged) -> None:
        """Start deletions requested through the store, and delete requests that are void."""
        requested = await self._term.store.children(paths.DELETE_TOPICS, self._term.on_change(event))
        enabled = self._term.settings.delete_topic_enable
        known = [topic for topic in requested if enabled and topic in self._context.topic_ids]
        if void := sorted(set(requested).difference(known)):
            logger.warning(
                "ignoring requests to delete %s: the topic is unknown, or delete.topic.enable is false", ", ".join(void)
            )
            await self._term.store.remove([paths.delete_topic_path(topic) for topic in void])
        fresh = [topic for topic in known if not self._context.is_to_be_deleted(topic)]
        if fresh:
            await self._schedule(fresh)

    async def stop_replica_response_received(self, event: StopReplicaResponseReceived) -> None:
        """A broker has deleted replicas, or failed to.

        A response to an earlier registration says nothing: the request has been repeated since, or will be once the
        present registration is processed.
        """
        request = event.request
        if not self._context.is_current(event.broker_id, request.broker_epoch, request.controller_epoch):
            return
        errors = {(it.topic_name, it.partition_index): it.error_code for it in event.response.partition_errors}
        done: list[PartitionReplica] = []
        failed: list[PartitionReplica] = []
        async for partition in through(sorted(event.deleted), self._term.pause):
            replica = PartitionReplica(partition, event.broker_id)
            if self._context.replica_state(replica) is ReplicaState.DELETION_STARTED:
                code = event.response.error_code or errors.get(partition, ErrorCode.NONE)
                (failed if code else done).append(replica)
        # Replicas removed by a reassignment are in another state: the move deletes them and does not wait.
        await self._term.transitions.move_replicas(done, ReplicaState.DELETION_SUCCESSFUL)
        if failed:
            await self.fail(failed)
        elif done:
            await self.resume()

    # -- calls of other handlers -----------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the requested deletions at the start of a term, before any request is sent to brokers."""
        requested = await self._term.store.children(paths.DELETE_TOPICS, self._term.on_change(DeletionsChanged()))
        if self._term.settings.delete_topic_enable:
            self._context.topics_to_delete |= self._context.topic_ids.keys() & set(requested)
        ineligible = await topics_not_deletable_now(self._context, self._term.pause)
        self._context.topics_ineligible_for_deletion |= ineligible
        if void := sorted(set(requested) - self._context.topics_to_delete):
            await self._term.store.remove([paths.delete_topic_path(topic) for topic in void])

    def mark_ineligible(self, topics: Iterable[str]) -> None:
        """Suspend the deletion of those of `topics` that are to be deleted."""
        self._context.topics_ineligible_for_deletion |= self._context.topics_to_delete & set(topics)

    async def resume(self, topics: Collection[str] = ()) -> None:
        """Continue all deletions; those of `topics` are eligible again."""
        self._context.topics_ineligible_for_deletion -= set(topics)
        step = await next_step(self._context, self._term.pause)
        for first in range(0, len(step.finished), TOPICS_PER_REMOVAL):
            await self._finish(step.finished[first : first + TOPICS_PER_REMOVAL])
        if step.startable:
            await self._start(step.startable)

    async def fail(self, replicas: Sequence[PartitionReplica]) -> None:
        """Suspend the deletion of the topics of these replicas, which cannot be deleted now."""
        started = [it for it in replicas if self._context.can_move_replica(it, ReplicaState.DELETION_INELIGIBLE)]
        await self._term.transitions.move_replicas(started, ReplicaState.DELETION_INELIGIBLE)
        self.mark_ineligible({replica.topic for replica in replicas})
        await self.resume()

    # -- steps -----------------------------------------------------------------------------------------------------

    def _check(self, name: str, twice: set[str]) -> None:
        if name in twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        if not self._term.settings.delete_topic_enable:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
        if name not in self._context.topic_ids:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _schedule(self, topics: Sequence[str]) -> None:
        self._context.topics_to_delete |= set(topics)
        reassigning = {topic for topic, _ in self._context.reassigning}
        self.mark_ineligible(reassigning & set(topics))
        await self.resume()

    async def _start(self, topics: Sequence[str]) -> None:
        """Remove the topics from the brokers' metadata, stop their replicas, and delete those that are online."""
        partitions = [partition for topic in topics for partition in self._context.partitions_of(topic)]
        unseen = [it for it in partitions if it[0] not in self._context.topics_with_deletion_started]
        transitions, pause = self._term.transitions, self._term.pause
        for target in (PartitionState.OFFLINE, PartitionState.NON_EXISTENT):
            movable = [it async for it in through(unseen, pause) if self._context.can_move_partition(it, target)]
            await transitions.move_partitions(movable, target)
        self._context.topics_with_deletion_started |= set(topics)
        await transitions.send_metadata(self._context.live_brokers, partitions)
        possible: list[PartitionReplica] = []
        impossible: list[PartitionReplica] = []
        async for topic in through(topics, pause):
            there, gone = replicas_to_delete(self._context, topic)
            possible += there
            impossible += gone
        target_state = ReplicaState.DELETION_INELIGIBLE
        held_back = [it async for it in through(impossible, pause) if self._context.can_move_replica(it, target_state)]
        await transitions.move_replicas(held_back, target_state)
        self.mark_ineligible({replica.topic for replica in impossible})
        await transitions.move_replicas(possible, ReplicaState.OFFLINE)
        await transitions.move_replicas(possible, ReplicaState.DELETION_STARTED)

    async def _finish(self, topics: Sequence[str]) -> None:
        kept = await self._term.store.remove_topics(topics)
        for topic, error in kept.items():
            logger.error("cannot delete topic %s: %s has unexpected children; delete them by hand", topic, error.path)
        self.mark_ineligible(kept)
        for topic in topics:
            if topic not in kept:
                replicas = self._context.replicas_of(self._context.partitions_of(topic))
                await self._term.transitions.move_replicas(replicas, ReplicaState.NON_EXISTENT)
                self._context.remove_topic(topic)
                logger.info("deleted topic %s", topic)
