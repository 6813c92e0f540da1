"""Commits of offsets: append them, then show them.

Owns: which members may commit, the limit for metadata, and the order append-then-show: a commit is shown once its
record is in the log of all in-sync replicas. Must not know: which commit wins (`broker.groups.machine.offsets`),
or when offsets are removed (`broker.groups.removal`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from base.clock import Clock
from base.pause import Pause
from base.topic_partition import TopicPartition
from broker.coordination.coordinator_log import CoordinatorLog, when_appended
from broker.groups.batches import COMMIT_APPEND_ERRORS, CommittingProducer, commit_batch, commit_batch_in_slices
from broker.groups.hosted_groups import HostedGroups
from broker.groups.machine.events import Moment
from broker.groups.machine.offsets import GroupOffsets, Offsets
from broker.groups.partition import CoordinatedGroup
from broker.groups.runner import GroupRunner
from broker.groups.settings import CoordinatorSettings
from broker.loop.promise import Promise
from protocol.errors import ErrorCode, KafkaError

NOTHING_REFUSED: Mapping[TopicPartition, ErrorCode] = MappingProxyType({})


class Committer(NamedTuple):
    """The member that commits. The defaults are an administrator, or a consumer that assigns partitions itself."""

    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    knows_epochs: bool = True
    """Whether its client may be a member of the consumer protocol, whose commits name an epoch (version 9)."""


class CommitResult(NamedTuple):
    """The result of a commit: `error` for every partition that is not in `refused`."""

    error: ErrorCode
    refused: Mapping[TopicPartition, ErrorCode] = NOTHING_REFUSED


COMMITTED = CommitResult(ErrorCode.NONE)


class OffsetCommits:
    """Commits and shows the offsets of the groups of one broker."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        log: CoordinatorLog,
        clock: Clock,
        groups: HostedGroups,
        runner: GroupRunner,
    ) -> None:
        self._settings = settings
        self._log = log
        self._clock = clock
        self._groups = groups
        self._runner = runner
        self.commit_count = 0

    def of(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group, to be read only; a group that does not exist has none.

        Raises KafkaError if the group cannot be served here now (see `LedPartitions.require`).
        """
        group = self._groups.find(group_id)
        return GroupOffsets() if group is None or group.machine.is_dead else group.offsets

    def require_member(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless offsets may be fetched by somebody who names a member and its epoch, or neither.

        UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, or the errors of `LedPartitions.require`.
        """
        group = self._groups.find(group_id)
        error = ErrorCode.NONE if group is None else group.machine.fetch_error(member_id, epoch)
        if error:
            raise KafkaError(error)

    async def commit(
        self, group_id: str, committer: Committer, offsets: Offsets, producer: CommittingProducer | None = None
    ) -> CommitResult:
        """Commit offsets, within the transaction of `producer` if one is given.

        `offsets` belongs to the coordinator afterwards. Offsets whose metadata is too long are refused one by one, the
        others are committed. Raises KafkaError if the group cannot be served here now (see `LedPartitions.require`).
        """
        moment = self._runner.moment()
        group = self._find_for_commit(group_id, committer, moment, is_transactional=producer is not None)
        if isinstance(group, ErrorCode):
            return CommitResult(group)
        refused = self._refuse_long_metadata(offsets)
        if not offsets:
            return CommitResult(ErrorCode.NONE, refused)
        batch = commit_batch(group_id, offsets, producer, moment.now_ms, self._settings.form)
        return await self._append(group, offsets, producer, refused, bytearray(batch))

    async def commit_in_slices(
        self,
        group_id: str,
        committer: Committer,
        offsets: Offsets,
        pause: Pause,
        producer: CommittingProducer | None = None,
        verify: Callable[[], Awaitable[None]] | None = None,
    ) -> CommitResult:
        """As `commit`, for thousands of offsets.

        Whether the committer may commit is decided in the last step, which also appends the offsets. `verify` is
        awaited directly before: raises KafkaError unless the partition of `group_id` is in the producer's transaction.
        """
        self._groups.find(group_id)
        refused = self._refuse_long_metadata(offsets)
        batch = b""
        if offsets:
            batch = await commit_batch_in_slices(
                group_id, offsets, producer, self._clock.now_ms(), self._settings.form, pause
            )
            await pause()
        if verify is not None:
            await verify()
        moment = self._runner.moment()
        group = self._find_for_commit(group_id, committer, moment, is_transactional=producer is not None)
        if isinstance(group, ErrorCode):
            return CommitResult(group)
        if not offsets:
            return CommitResult(ErrorCode.NONE, refused)
        return await self._append(group, offsets, producer, refused, bytearray(batch))

    def end_transaction(self, number: int, producer_id: int, *, is_committed: bool) -> None:
        """Commit or drop a producer's pending offsets in partition `number`, whose log has its marker now."""
        partition = self._groups.partitions.get(number)
        if partition is not None:
            partition.end_transaction(producer_id, is_committed=is_committed)

    def _find_for_commit(
        self, group_id: str, committer: Committer, moment: Moment, *, is_transactional: bool
    ) -> CoordinatedGroup | ErrorCode:
        """Return the group if the committer may commit now. A group that does not exist yet is created."""
        group = self._groups.find(group_id)
        if group is None:
            if committer.generation_id >= 0:
                names_group = (
                    committer.knows_epochs and self._settings.serves_consumer_protocol and not is_transactional
                )
                return ErrorCode.GROUP_ID_NOT_FOUND if names_group else ErrorCode.ILLEGAL_GENERATION
            group = self._groups.add(group_id)
        error = group.machine.commit(
            committer.member_id,
            committer.group_instance_id,
            committer.generation_id,
            moment,
            is_transactional=is_transactional,
        )
        self._runner.arm(group)
        if error is ErrorCode.STALE_MEMBER_EPOCH and is_transactional:
            return ErrorCode.ILLEGAL_GENERATION  # what clients know of TxnOffsetCommit
        if not committer.knows_epochs and group.machine.has_consumer(committer.member_id):
            return ErrorCode.UNSUPPORTED_VERSION
        return error or group

    def _refuse_long_metadata(self, offsets: Offsets) -> Mapping[TopicPartition, ErrorCode]:
        size_max = self._settings.offset_metadata_size_max
        refused = [
            each
            for each, value in offsets.items()
            if value.metadata and _java_length(value.metadata, size_max) > size_max
        ]
        for partition in refused:
            del offsets[partition]
        return dict.fromkeys(refused, ErrorCode.OFFSET_METADATA_TOO_LARGE) if refused else NOTHING_REFUSED

    async def _append(
        self,
        group: CoordinatedGroup,
        offsets: Offsets,
        producer: CommittingProducer | None,
        refused: Mapping[TopicPartition, ErrorCode],
        batch: bytearray,
    ) -> CommitResult:
        partition, kept, count = group.partition, group.offsets, len(offsets)
        order = partition.take_order()
        try:
            awaited = self._log.append(partition.number, batch, self._settings.commit_timeout_ms)
        except KafkaError as error:
            return CommitResult(COMMIT_APPEND_ERRORS.get(error.code, error.code), refused)
        if producer is not None:
            if awaited is None:
                kept.put_in_transaction(producer.producer_id, order, offsets)
            else:
                kept.begin_in_transaction(producer.producer_id, order, offsets)
            partition.groups_by_producer.setdefault(producer.producer_id, set()).add(group.machine.group_id)
        elif awaited is None:
            kept.put(order, offsets)
        else:
            kept.begin(order, offsets)
        if awaited is None:
            self.commit_count += count
            return CommitResult(ErrorCode.NONE, refused) if refused else COMMITTED
        result: Promise[CommitResult] = Promise()

        def finish(error: ErrorCode) -> None:
            if producer is None:
                kept.fail(order) if error else kept.succeed(order)
            elif error:
                kept.fail_in_transaction(producer.producer_id, order)
            else:
                kept.succeed_in_transaction(producer.producer_id, order)
            if not error:
                self.commit_count += count
            result.set_result(CommitResult(COMMIT_APPEND_ERRORS.get(error, error), refused))

        when_appended(awaited, finish)
        return await result


def _java_length(text: str, size_max: int) -> int:
    """Return the length in UTF-16 units, which Kafka compares with its limits.

    A text that is short enough in any case is not encoded; its number of code points is returned.
    """
    return len(text) if 2 * len(text) <= size_max else len(text.encode("utf-16-be", "surrogatepass")) // 2
