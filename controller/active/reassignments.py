"""Move partitions to other brokers. A move spans as many events as the new replicas need to catch up.

Owns the phases and their order (docs/controller.md). The topic's node always records the progress of a move, so that a
later controller continues from there. Moves do not wait for each other.
"""

import logging
from collections.abc import Iterable

from base.pause import through
from base.topic_partition import TopicPartition, partition_name
from controller.active.deletions import Deletions
from controller.active.term import Term
from controller.machine.events import AlterReassignments, ListReassignments, ReassignmentNodeChanged
from controller.machine.leadership import ElectionReason
from controller.machine.model import NO_LEADER, ApiError, PartitionReplica, ReplicaAssignment
from controller.machine.reassignment import is_complete, plan_reassignment
from controller.machine.replica_states import ReplicaState
from controller.store.state_store import DataTooLarge
from controller.tree import paths
from controller.tree.topic_nodes import too_large
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.controller.KafkaController")


class Reassignments:
    def __init__(self, term: Term, deletions: Deletions) -> None:
        self._term = term
        self._context = term.context
        self._deletions = deletions

    # -- events ----------------------------------------------------------------------------------------------------

    async def alter_reassignments(self, event: AlterReassignments) -> dict[TopicPartition, ApiError]:
        """Start, replace or cancel moves; return one result per partition."""
        results: dict[TopicPartition, ApiError] = {}
        async for partition, target in through(event.targets.items(), self._term.pause):
            try:
                await self._begin(partition, plan_reassignment(self._context, partition, target))
                results[partition] = ApiError()
            except KafkaError as error:
                results[partition] = ApiError(error.code, error.message)
        return results

    async def list_reassignments(self, event: ListReassignments) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the moves in progress, of the requested partitions or of all."""
        wanted = self._context.reassigning
        if event.partitions is not None:
            wanted = wanted & event.partitions
        return {partition: self._context.assignment(partition) for partition in sorted(wanted)}

    async def node_changed(self, event: ReassignmentNodeChanged) -> None:
        """Start the moves that an old tool requests; delete its node once all of them are recorded in the topics."""
        store, path, watch = self._term.store, paths.REASSIGN_PARTITIONS, self._term.on_change(event)
        targets = await store.read_request(path, paths.decode_reassignments, watch)
        if targets is None:
            return
        for partition, target in targets.items():
            try:
                await self._begin(partition, plan_reassignment(self._context, partition, target))
            except KafkaError as error:
                logger.error("cannot reassign %s to %s: %s", partition_name(partition), list(target), error)
        await store.remove_request(path)

    # -- calls of other handlers -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the unfinished moves at the start of a term."""
        for partition in self._context.all_partitions():
            if self._context.assignment(partition).is_being_reassigned:
                self._context.reassigning.add(partition)

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue the moves of those of `partitions` that are being moved, because their state has changed."""
        for partition in sorted(self._context.reassigning & set(partitions)):
            await self._advance(partition)

    async def resume_on(self, broker_ids: Iterable[int]) -> None:
        """Continue the moves to brokers that have just registered."""
        came = set(broker_ids)
        await self.resume([it for it in self._context.reassigning if came & set(self._context.assignment(it).target)])

    async def complete(self, partitions: Iterable[TopicPartition]) -> None:
        """Complete the moves of `partitions` whose target replicas are all in sync."""
        ready = [it for it in partitions if it in self._context.reassigning and self._is_complete(it)]
        await self.resume(ready)

    # -- phases ----------------------------------------------------------------------------------------------------

    async def _begin(self, partition: TopicPartition, wanted: ReplicaAssignment) -> None:
        """Record a new assignment, and drop the replicas that only a replaced or cancelled move wanted.

        These leave the ISR first. So a crash at any point leaves either the earlier move or the wanted one.

        Raises:
            KafkaError: INVALID_REPLICA_ASSIGNMENT; the assignment is unchanged.
        """
        current = self._context.assignment(partition)
        if wanted != current:
            dropped = [it for it in current.replicas if it not in wanted.replicas]
            if dropped:
                await self._release(partition, [it for it in wanted.replicas if it in current.replicas])
            await self._record(partition, wanted)
            if dropped and partition in self._context.leaderships:
                # So far the leader knows the dropped replicas as assigned. A leader that writes states itself may have
                # added one to the ISR again. It adds none in this epoch, and the drop removes the one that it added.
                await self._term.transitions.renew_epochs([partition])
            await self._drop(partition, dropped)
        elif partition not in self._context.reassigning:
            return
        self._context.reassigning.add(partition)
        await self._advance(partition)

    async def _release(self, partition: TopicPartition, staying: list[int]) -> None:
        """Take leadership and the ISR away from all replicas but those in `staying`."""
        if partition not in self._context.leaderships:
            return
        problem = await self._term.transitions.keep_only(partition, staying)
        if problem is not None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Cannot drop replicas of {partition_name(partition)}: {problem}. Repeat the request once one of them "
                "has caught up.",
            )

    async def _advance(self, partition: TopicPartition) -> None:
        self._deletions.mark_ineligible([partition[0]])
        if self._is_complete(partition):
            await self._complete(partition)
        else:
            await self._start_new_replicas(partition)

    def _is_complete(self, partition: TopicPartition) -> bool:
        leadership = self._context.leaderships.get(partition)
        return is_complete(self._context.assignment(partition), () if leadership is None else leadership.state.isr)

    async def _start_new_replicas(self, partition: TopicPartition) -> None:
        """Send the move to all replicas, old and new; the leader reports when the new ones are in sync."""
        await self._term.transitions.renew_epochs([partition])
        adding = [PartitionReplica(partition, it) for it in self._context.assignment(partition).adding]
        absent = [it for it in adding if self._context.replica_state(it) is ReplicaState.NON_EXISTENT]
        await self._term.transitions.move_replicas(absent, ReplicaState.NEW)

    async def _complete(self, partition: TopicPartition) -> None:
        """Hand over leadership, drop the removed replicas, and record the result last, so that a crash repeats this."""
        assignment = self._context.assignment(partition)
        transitions = self._term.transitions
        await transitions.move_replicas(
            [PartitionReplica(partition, it) for it in assignment.adding], ReplicaState.ONLINE
        )
        completed = ReplicaAssignment(assignment.target)
        self._context.put_assignment(partition, completed)
        await self._hand_over(partition, completed)
        await self._drop(partition, assignment.removing)
        await self._record(partition, completed)
        self._context.reassigning.discard(partition)
        await transitions.send_metadata(self._context.live_brokers, [partition])
        logger.info("reassigned %s to %s", partition_name(partition), list(completed.replicas))
        await self._deletions.resume([partition[0]])

    async def _hand_over(self, partition: TopicPartition, completed: ReplicaAssignment) -> None:
        """Elect a leader among the target replicas if the current one is not a target, else renew the epoch."""
        leadership = self._context.leaderships.get(partition)
        leader = NO_LEADER if leadership is None else leadership.state.leader
        if leader in completed.replicas and self._context.is_replica_online(leader, partition):
            await self._term.transitions.renew_epochs([partition])
        else:
            await self._term.transitions.elect([partition], ElectionReason.REASSIGNED)

    async def _record(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        name, index = partition
        topic = self._context.topic(name)
        topic.partitions[index] = assignment
        try:
            await self._term.store.write_topic(name, topic)
        except DataTooLarge as error:
            raise too_large(name, error, ErrorCode.INVALID_REPLICA_ASSIGNMENT) from error
        self._context.put_assignment(partition, assignment)

    async def _drop(self, partition: TopicPartition, broker_ids: Iterable[int]) -> None:
        """Stop and delete replicas without waiting for the files: a broker that is down finds them as stray later."""
        replicas = [PartitionReplica(partition, broker_id) for broker_id in broker_ids]
        for target in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            await self._term.transitions.move_replicas(replicas, target)
