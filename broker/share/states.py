"""The share coordinator: keeps how far share groups are, in the led partitions of `__share_group_state` (KIP-932).

Owns: which states exist here, and the order of their records. Must not know: what a state means, or which groups and
topics exist.

Methods raise KafkaError when a state cannot be served here now: the errors of `LedPartitions.require`, then
UNKNOWN_TOPIC_OR_PARTITION if it was not initialized.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field

from base.clock import Clock
from base.dataclass import dataclass
from broker.cluster.internal_topics import SHARE_GROUP_STATE_TOPIC
from broker.coordination.background import BackgroundTasks
from broker.coordination.coordinator_log import APPEND_ERRORS, CoordinatorLog, when_appended
from broker.coordination.led_partitions import LedPartition, LedPartitions
from broker.coordination.replay import replay
from broker.loop.promise import Promise, resolved
from broker.share.loading import ReplayedStates
from broker.share.machine.deliveries import StateBatch
from broker.share.machine.records import ShareKey, snapshot_key, snapshot_value
from broker.share.machine.stored_states import NO_START, ShareState
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import id_text
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression

EPOCH_MAX = (1 << 31) - 1
"""The epochs of snapshots begin again after it; nothing compares them."""

logger = logging.getLogger("kafka.coordinator.share.ShareCoordinatorService")


@dataclass(slots=True, eq=False)
class StatePartition(LedPartition):
    """One led partition and the states in it."""

    states: dict[ShareKey, ShareState] = field(default_factory=dict)
    """As of the last append."""
    stored: dict[ShareKey, ShareState] = field(default_factory=dict)
    """As far as all in-sync replicas have them."""


class ShareStates:
    """The states of one broker."""

    def __init__(
        self,
        log: CoordinatorLog,
        clock: Clock,
        ensure_internal_topic: Callable[[str], Awaitable[None]],
        *,
        load_buffer_size: int,
        write_timeout_ms: int,
        compression: Compression,
    ) -> None:
        self._log = log
        self._clock = clock
        self._load_buffer_size = load_buffer_size
        self._write_timeout_ms = write_timeout_ms
        self._compression = compression
        self.partitions: LedPartitions[StatePartition] = LedPartitions(
            SHARE_GROUP_STATE_TOPIC, log, clock, ensure_internal_topic, self, logger, reloads_in_new_epoch=True
        )

    def state_of(self, key: ShareKey) -> ShareState:
        """Return a state."""
        state = self._partition(key).states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No state of {text_of(key)} is stored.")
        return state

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int = NO_START) -> Awaitable[None]:
        """Begin a state, or begin it anew with a higher epoch; one with this epoch, or a later one, stays as it is.

        Raises KafkaError if the state cannot be appended; the awaitable does if it is not replicated.
        """
        partition = self._partition(key)
        before = partition.states.get(key)
        if before is not None and before.state_epoch >= state_epoch:
            return resolved(None)
        now_ms = self._clock.now_ms()
        snapshot_epoch = 0 if before is None else _next_epoch(before)
        state = ShareState(state_epoch, start_offset, (), 0, snapshot_epoch, now_ms)
        return self._store(partition, key, state)

    def write(
        self, key: ShareKey, state_epoch: int, leader_epoch: int, start_offset: int, batches: Sequence[StateBatch]
    ) -> Awaitable[None]:
        """Replace a state. Raises KafkaError also if a later epoch is known: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH.

        If this raises, nothing has changed. If the awaitable does, the state before counts here, although the log may
        have the new one.
        """
        before = self.state_of(key)
        if before.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if before.leader_epoch > leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        after = before._replace(
            start_offset=start_offset,
            batches=tuple(batches),
            leader_epoch=leader_epoch,
            snapshot_epoch=_next_epoch(before),
        )
        return self._store(self._partition(key), key, after)

    def delete(self, key: ShareKey) -> Awaitable[None]:
        """Forget a state; one that does not exist is none."""
        partition = self._partition(key)
        if key not in partition.states:
            return resolved(None)
        return self._store(partition, key, None)

    def _partition(self, key: ShareKey) -> StatePartition:
        return self.partitions.require(text_of(key))

    def _store(self, partition: StatePartition, key: ShareKey, state: ShareState | None) -> Awaitable[None]:
        now_ms = self._clock.now_ms()
        value = None if state is None else snapshot_value(state.to_stored(now_ms))
        batch = build_batch([RecordData(now_ms, snapshot_key(key), value)], compression=self._compression)
        try:
            awaited = self._log.append(partition.number, bytearray(batch), self._write_timeout_ms)
        except KafkaError as error:
            logger.warning("The state of %s was not stored: %s", text_of(key), error.code.name)
            raise KafkaError(APPEND_ERRORS.get(error.code, error.code)) from error
        _put(partition.states, key, state)
        if awaited is None:
            _put(partition.stored, key, state)
            return resolved(None)
        replicated: Promise[None] = Promise()

        def finish(error: ErrorCode) -> None:
            if not error:
                _put(partition.stored, key, state)
                replicated.set_result(None)
                return
            logger.warning("The state of %s was not replicated: %s", text_of(key), error.name)
            _put(partition.states, key, partition.stored.get(key))
            replicated.set_exception(KafkaError(APPEND_ERRORS.get(error, error)))

        when_appended(awaited, finish)
        return replicated

    # The contents of a partition (`PartitionContents`)

    def new_partition(self, number: int, leader_epoch: int) -> StatePartition:
        """Return an empty partition."""
        return StatePartition(number, leader_epoch, BackgroundTasks(logger))

    async def read(self, partition: StatePartition) -> int:
        """Replay the log into states, and return their number."""
        replayed, end_offset = await replay(
            self._log, partition.number, self._load_buffer_size, ReplayedStates, SHARE_GROUP_STATE_TOPIC
        )
        await self._log.committed(partition.number, end_offset)
        partition.states, partition.stored = replayed.states, dict(replayed.states)
        return len(partition.states)

    async def activated(self, partition: StatePartition) -> None:
        """Nothing is left to do."""

    def unloaded(self, partition: StatePartition) -> None:
        """Nothing is left to do: the states go with the partition."""


def text_of(key: ShareKey) -> str:
    """Return the text by which Kafka names a state, and finds its partition."""
    return f"{key.group_id}:{id_text(key.topic_id)}:{key.partition}"


def _next_epoch(state: ShareState) -> int:
    return (state.snapshot_epoch + 1) & EPOCH_MAX


def _put(states: dict[ShareKey, ShareState], key: ShareKey, state: ShareState | None) -> None:
    if state is None:
        states.pop(key, None)
    else:
        states[key] = state
