"""Apply the in-sync replicas that leaders report.

Owns both ways of reporting: AlterPartition requests, and notifications of leaders that wrote the state themselves.
"""

from collections.abc import Iterable

from base.topic_partition import TopicPartition
from controller.active.reassignments import Reassignments
from controller.active.term import Term
from controller.machine.effects import ChangeLeadership
from controller.machine.events import AlterPartition, IsrChangesNotified
from controller.machine.isr_changes import plan_isr_change
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicData,
    TopicResult,
)

# From this version on, topics are named by id.
FIRST_VERSION_WITH_TOPIC_IDS = 2


class IsrChanges:
    def __init__(self, term: Term, reassignments: Reassignments) -> None:
        self._term = term
        self._context = term.context
        self._reassignments = reassignments

    async def alter_partition(self, event: AlterPartition) -> AlterPartitionResponse:
        """Check all reported states, write the valid ones in one batch, and return the response."""
        request = event.request
        broker = self._context.live_brokers.get(request.broker_id)
        if broker is None or request.broker_epoch != broker.epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        errors: dict[TopicPartition, ErrorCode] = {}
        changes: list[ChangeLeadership] = []
        names = [self._name_of(topic, event.version) for topic in request.topics]
        for topic, name in zip(request.topics, names, strict=True):
            for reported in topic.partitions if name is not None else ():
                partition = (name or "", reported.partition_index)
                try:
                    change = plan_isr_change(self._context, request.broker_id, partition, reported, event.version)
                    if change is not None:
                        changes.append(change)
                except KafkaError as error:
                    errors[partition] = error.code
        written, conflicts = await self._term.transitions.change_isr(changes)
        errors |= dict.fromkeys(conflicts, ErrorCode.INVALID_UPDATE_VERSION)
        # The response is built before moves are completed: these may elect another leader, which LeaderAndIsr reports.
        response = AlterPartitionResponse(topics=self._results(request, names, errors))
        await self._reassignments.complete(written)
        return response

    def _name_of(self, topic: TopicData, version: int) -> str | None:
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            return topic.topic_name
        return self._context.topic_names.get(topic.topic_id)

    def _results(
        self,
        request: AlterPartitionRequest,
        names: Iterable[str | None],
        errors: dict[TopicPartition, ErrorCode],
    ) -> list[TopicResult]:
        results = []
        for topic, name in zip(request.topics, names, strict=True):
            partitions = []
            for reported in topic.partitions:
                if name is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    code = errors.get((name, reported.partition_index), ErrorCode.NONE)
                partitions.append(self._partition_result(name, reported.partition_index, code))
            results.append(TopicResult(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions))
        return results

    def _partition_result(self, name: str | None, index: int, code: ErrorCode) -> PartitionResult:
        if code or name is None:
            return PartitionResult(
                partition_index=index, error_code=code, leader_id=-1, leader_epoch=-1, isr=[], partition_epoch=-1
            )
        leadership = self._context.leaderships[(name, index)]
        return PartitionResult(
            partition_index=index,
            leader_id=leadership.state.leader,
            leader_epoch=leadership.state.leader_epoch,
            isr=list(leadership.state.isr),
            leader_recovery_state=leadership.state.recovery_state,
            partition_epoch=leadership.partition_epoch,
        )

    async def changes_notified(self, event: IsrChangesNotified) -> None:
        """Read the states that leaders wrote themselves, and send them to all brokers."""
        folder = paths.ISR_CHANGE_NOTIFICATIONS
        store = self._term.store
        names = await store.children(folder, self._term.on_change(event))
        notes = [f"{folder}/{name}" for name in names]
        partitions = await store.read_isr_changes(notes)
        known = [it for it in dict.fromkeys(partitions) if self._context.has_partition(it)]
        if known:
            self._context.leaderships |= await store.read_leaderships(known)
            await self._term.transitions.send_metadata(self._context.live_brokers, known)
            await self._reassignments.complete(known)
        await store.remove(notes)
