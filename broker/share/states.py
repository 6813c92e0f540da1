"""The share coordinator: keeps how far share groups are, in the led partitions of `__share_group_state` (KIP-932).

Owns: which states exist here, who may change them, and the order of their records. Must not know: what a state means,
or which groups and topics exist.

A call ends once all in-sync replicas have the state after it, which is appended also if it is the same as before: no
caller relies on a state that the next coordinator may not have. If that fails, the state of the last append counts here
all the same. A call may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from base.clock import Clock
from base.dataclass import dataclass
from base.line_limit import LineLimit
from broker.coordination.background import BackgroundTasks
from broker.coordination.coordinator_log import APPEND_ERRORS, CoordinatorLog, when_appended
from broker.coordination.led_partitions import LedPartition, LedPartitions
from broker.coordination.replay import replay
from broker.loop.promise import Promise, resolved
from broker.share.loading import ReplayedStates
from broker.share.machine.records import ShareKey, snapshot_key, snapshot_value, text_of
from broker.share.machine.state_calls import FIRST_EPOCH, Call, ReadSummary, check, state_after
from broker.share.machine.stored_states import ShareState
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression

EPOCH_MAX: Final = (1 << 31) - 1
"""The epochs of snapshots begin again after it; nothing compares them. So do the first epochs of states."""
ENDED_MAX: Final = 10_000
"""How many ended states of a partition are remembered."""
STATE_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {**APPEND_ERRORS, ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE}
)
"""The error of a call whose state could not be stored; after all of these the call is repeated."""
LINE_INTERVAL_S: Final = 10.0
MISSING: Final = ShareState(0)
"""What is returned of a state that does not exist."""

logger = logging.getLogger("kafka.coordinator.share.ShareCoordinatorService")


@dataclass(slots=True, eq=False)
class StatePartition(LedPartition):
    """One led partition and the states in it."""

    states: dict[ShareKey, ShareState] = field(default_factory=dict)
    """As of the last append."""
    ended: dict[ShareKey, int] = field(default_factory=dict)
    """The last state epoch of states that ended here, the latest last."""

    def end(self, key: ShareKey) -> None:
        """Remove a state, and remember its epoch."""
        state = self.states.pop(key, None)
        if state is None:
            return
        self.ended.pop(key, None)
        self.ended[key] = state.state_epoch
        if len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]

    def first_epoch(self, key: ShareKey) -> int:
        """Return the state epoch in which a state begins.

        It is later than that of one that ended here, so that a late write to that one is fenced. It is small all the
        same: a coordinator of Kafka that takes the log over moves a state only to a later epoch, that of the group.
        """
        return (self.ended.get(key, FIRST_EPOCH - 1) + 1) & EPOCH_MAX


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
        self._lines = LineLimit(LINE_INTERVAL_S)  # of all states: what fails concerns all, and callers repeat calls
        self.partitions: LedPartitions[StatePartition] = LedPartitions(
            SHARE_GROUP_STATE_TOPIC, log, clock, ensure_internal_topic, self, logger, reloads_in_new_epoch=True
        )

    def serve(self, call: Call) -> Promise[ShareState]:
        """Serve a call. Raises KafkaError if the state is not changed, the promise does if that is not replicated.

        The errors are those of `check`, of `LedPartitions.require` and of `state_after`.
        """
        check(call)
        partition = self.partitions.require(text_of(call.key))
        before = partition.states.get(call.key)
        after = state_after(call, before)
        if isinstance(call, ReadSummary):
            return resolved(after or MISSING)
        if after is not None:
            is_new = before is None or before.state_epoch != after.state_epoch
            if before is None and after.state_epoch == FIRST_EPOCH:
                after = after._replace(state_epoch=partition.first_epoch(call.key))
            after = after._replace(
                snapshot_epoch=0 if before is None else (before.snapshot_epoch + 1) & EPOCH_MAX,
                created_ms=self._clock.now_ms() if is_new else after.created_ms,
            )
        return self._append(partition, call.key, after)

    def _append(self, partition: StatePartition, key: ShareKey, state: ShareState | None) -> Promise[ShareState]:
        now_ms = self._clock.now_ms()
        value = None if state is None else snapshot_value(state.to_stored(now_ms))
        batch = build_batch([RecordData(now_ms, snapshot_key(key), value)], compression=self._compression)
        try:
            awaited = self._log.append(partition.number, bytearray(batch), self._write_timeout_ms)
        except KafkaError as error:
            self._log_failure(key, "stored", error.code)
            raise KafkaError(STATE_APPEND_ERRORS.get(error.code, error.code)) from error
        if state is None:
            partition.end(key)
        else:
            partition.states[key] = state
        if awaited is None:
            return resolved(state or MISSING)
        replicated: Promise[ShareState] = Promise()

        def finish(error: ErrorCode) -> None:
            if error:
                self._log_failure(key, "replicated", error)
                replicated.set_exception(KafkaError(STATE_APPEND_ERRORS.get(error, error)))
            else:
                replicated.set_result(state or MISSING)

        when_appended(awaited, finish)
        return replicated

    def _log_failure(self, key: ShareKey, missing: str, code: ErrorCode) -> None:
        suppressed = self._lines.admit(self._clock.monotonic_s())
        if suppressed is not None:
            logger.warning(
                "The state of %s was not %s: %s (%d such failures not logged)",
                text_of(key), missing, code.name, suppressed,
            )  # fmt: skip

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
        partition.states = replayed.states
        return len(partition.states)

    async def activated(self, partition: StatePartition) -> None:
        """Nothing is left to do."""

    def unloaded(self, partition: StatePartition) -> None:
        """Nothing is left to do: the states go with the partition."""
