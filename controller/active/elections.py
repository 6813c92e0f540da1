"""Elect leaders on request, and move leadership back to the preferred replicas.

Owns which partitions need an election. `controller.machine.election` decides it.
"""

import logging
from collections.abc import Iterable, Iterator

from base.pause import through
from base.topic_partition import TopicPartition, partition_name
from controller.active.reassignments import Reassignments
from controller.active.term import Term
from controller.machine.events import (
    ElectionType,
    ElectLeaders,
    PreferredElectionNodeChanged,
    RebalanceDue,
    TopicUncleanElectionEnabled,
    UncleanElectionEnabled,
)
from controller.machine.leadership import ElectionReason
from controller.machine.model import ApiError
from controller.machine.partition_states import PartitionState
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kafka.controller.KafkaController")

_REASONS = {ElectionType.PREFERRED: ElectionReason.PREFERRED, ElectionType.UNCLEAN: ElectionReason.OFFLINE}
_NO_CANDIDATE = {
    ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


class Elections:
    def __init__(self, term: Term, reassignments: Reassignments) -> None:
        self._term = term
        self._context = term.context
        self._reassignments = reassignments

    async def elect_leaders(self, event: ElectLeaders) -> dict[TopicPartition, ApiError]:
        """Elect where needed; return one result per partition. Without `partitions`, omit those without need."""
        if event.partitions is None:
            needed = [
                it
                async for it in through(list(self._context.all_partitions()), self._term.pause)
                if not self._context.is_partition_to_be_deleted(it) and self._needs(it, event.election_type)
            ]
            return await self._elect(needed, event.election_type)
        results: dict[TopicPartition, ApiError] = {}
        needed = []
        async for partition in through(dict.fromkeys(event.partitions), self._term.pause):
            try:
                self._check(partition, event.election_type)
                needed.append(partition)
            except KafkaError as error:
                results[partition] = ApiError(error.code, error.message)
        return results | await self._elect(needed, event.election_type)

    def _check(self, partition: TopicPartition, election_type: ElectionType) -> None:
        if not self._context.has_partition(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if self._context.is_partition_to_be_deleted(partition):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        if not self._needs(partition, election_type):
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)

    def _needs(self, partition: TopicPartition, election_type: ElectionType) -> bool:
        leadership = self._context.leaderships.get(partition)
        if leadership is None:
            return election_type is ElectionType.UNCLEAN
        if election_type is ElectionType.PREFERRED:
            return leadership.state.leader != self._context.assignment(partition).replicas[0]
        return not self._context.is_replica_online(leadership.state.leader, partition)

    async def _elect(
        self, partitions: list[TopicPartition], election_type: ElectionType
    ) -> dict[TopicPartition, ApiError]:
        failures = await self._term.transitions.elect(
            partitions, _REASONS[election_type], unclean_forced=election_type is ElectionType.UNCLEAN
        )
        await self._reassignments.complete(partitions)
        code = _NO_CANDIDATE[election_type]
        return {
            partition: ApiError(
                code, f"Failed to elect leader for partition {partition_name(partition)}: {failures[partition]}"
            )
            if partition in failures
            else ApiError()
            async for partition in through(partitions, self._term.pause)
        }

    async def node_changed(self, event: PreferredElectionNodeChanged) -> None:
        """Perform the elections that an old tool requests, and delete its node."""
        store, path, watch = self._term.store, paths.PREFERRED_REPLICA_ELECTION, self._term.on_change(event)
        partitions = await store.read_request(path, paths.decode_partition_list, watch)
        if partitions is not None:
            await self.elect_leaders(ElectLeaders(ElectionType.PREFERRED, partitions))
            await store.remove_request(path)

    async def elect_missing(self, topic: str | None = None) -> None:
        """Retry the election of all partitions without a leader, of one topic or of all.

        An unclean one may be all that a move has waited for; the caller completes the moves.
        """
        partitions = [
            partition
            for partition in self._context.partitions_in(PartitionState.NEW, PartitionState.OFFLINE)
            if topic in (None, partition[0]) and not self._context.is_partition_to_be_deleted(partition)
        ]
        await self._term.transitions.elect(partitions, ElectionReason.OFFLINE)

    async def unclean_election_enabled(self, _: UncleanElectionEnabled) -> None:
        """Elect leaders for partitions that an unclean election can now bring online."""
        await self.elect_missing()
        await self._reassignments.complete(self._context.reassigning)

    async def topic_unclean_election_enabled(self, event: TopicUncleanElectionEnabled) -> None:
        """Do the same for the partitions of one topic."""
        await self.elect_missing(event.topic)
        await self._reassignments.complete(self._context.reassigning)

    async def rebalance(self, _: RebalanceDue) -> None:
        """Elect preferred leaders for each broker whose imbalance exceeds the limit."""
        limit = self._term.settings.leader_imbalance_per_broker_percentage
        for broker_id, preferred in sorted((await self._partitions_by_preferred_leader()).items()):
            elsewhere = [it for it in preferred if self._context.leaderships[it].state.leader != broker_id]
            if len(elsewhere) * 100 > limit * len(preferred):
                await self._elect_preferred(broker_id, elsewhere)

    async def _elect_preferred(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        candidates = [
            it
            for it in partitions
            if self._context.is_replica_online(broker_id, it)
            and broker_id in self._context.leaderships[it].state.isr
            and it not in self._context.reassigning
        ]
        if candidates:
            logger.info(
                "moving leadership of %d partitions back to broker %d, their preferred leader",
                len(candidates),
                broker_id,
            )
            await self._term.transitions.elect(candidates, ElectionReason.PREFERRED)

    async def _partitions_by_preferred_leader(self) -> dict[int, list[TopicPartition]]:
        by_broker: dict[int, list[TopicPartition]] = {}
        async for partition in through(self._context.leaderships, self._term.pause):
            if not self._context.is_partition_to_be_deleted(partition):
                by_broker.setdefault(self._context.assignment(partition).replicas[0], []).append(partition)
        return by_broker

    def imbalances(self) -> Iterator[int]:
        """Yield for each partition whether its preferred replica does not lead it, as 0 or 1.

        The state may change between two partitions.
        """
        for topic in list(self._context.assignments):
            for partition in self._context.partitions_of(topic):
                leadership = self._context.leaderships.get(partition)
                is_counted = leadership is not None and not self._context.is_to_be_deleted(topic)
                preferred = self._context.assignment(partition).replicas[0] if is_counted else None
                yield int(leadership is not None and is_counted and leadership.state.leader != preferred)
