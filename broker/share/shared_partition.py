"""The partitions that share groups read on this broker, with what is delivered of each.

Owns: which of them are loaded, from their state in `__share_group_state` to the end of this broker's leadership; when
locks expire; and that every change is stored. Must not know: requests, sessions, or the contents of the log.

Invariant: a change of a partition's deliveries is stored in the step that makes it, or it is taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from uuid import UUID

from base.clock import Clock
from base.pause import InThread, through
from broker.coordination.background import BackgroundTasks, Unfinished
from broker.loop.promise import Promise, resolved
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer, TimerHandle
from broker.replica.manager import ReplicaManager
from broker.replica.partition import NO_EPOCH, Partition
from broker.share.machine.deliveries import NEVER, Acknowledgement, Change, Deliveries
from broker.share.machine.records import ShareKey
from broker.share.machine.stored_states import NO_START, ShareState
from broker.share.states import ShareStates, text_of
from broker.share.terms import ShareTerms
from config.group import EARLIEST, LATEST, age_of_first_record
from protocol.errors import ErrorCode, KafkaError

OUTDATED = frozenset(
    {ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""The errors of a write that say that somebody else has changed the state, or ended it."""

logger = logging.getLogger("kafka.server.share.SharePartitionManager")


class SharedPartition:
    """One partition that one share group reads, for as long as this broker leads it."""

    __slots__ = ("armed_ms", "deliveries", "is_gone", "key", "leader_epoch", "partition", "state_epoch", "timer")

    def __init__(self, key: ShareKey, partition: Partition, state: ShareState) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state_epoch = state.state_epoch
        self.deliveries = Deliveries(state.start_offset, state.batches)
        self.is_gone = False
        """Whether it has to be loaded again: another leader or an administrator may have changed its state."""
        self.timer: TimerHandle | None = None
        self.armed_ms = NEVER

    @property
    def is_current(self) -> bool:
        """Whether nothing but this object changes the state."""
        return not self.is_gone and self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch


class SharedPartitions:
    """The partitions of one broker by group, topic and number."""

    def __init__(
        self,
        states: ShareStates,
        manager: ReplicaManager,
        terms: Callable[[str], ShareTerms],
        timer: Timer,
        clock: Clock,
        in_thread: InThread,
        sliced_work: SlicedWork,
    ) -> None:
        """`terms(group_id)` returns the settings of a group."""
        self._sliced_work = sliced_work
        self._tasks = BackgroundTasks(logger)
        self._states = states
        self._manager = manager
        self.terms = terms
        self._timer = timer
        self._clock = clock
        self._in_thread = in_thread
        self._shared: dict[ShareKey, SharedPartition] = {}

    async def find(self, group_id: str, topic: str, topic_id: UUID, number: int) -> SharedPartition:
        """Return a partition, loaded. Raises KafkaError if this broker does not lead it, or it has no state."""
        key = ShareKey(group_id, topic_id, number)
        shared = self._shared.get(key)
        if shared is not None and shared.is_current:
            return shared
        if shared is not None:
            self._forget(shared)
        partition = self._manager.find(topic, number)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.require_leader(NO_EPOCH)
        if partition.log.topic_id != topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        state = self._state(key)
        while state.start_offset == NO_START:
            begin = await self._first_offset(partition, self.terms(group_id).auto_offset_reset)
            if self._manager.find(topic, number) is not partition:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            partition.require_leader(NO_EPOCH)
            if self._state(key) is state:  # else another request was faster, or an administrator
                try:
                    self._states.write(key, state.state_epoch, partition.leader_epoch, begin, ())
                except KafkaError as error:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
            state = self._state(key)
        present = self._shared.get(key)
        if present is not None and present.is_current:
            return present
        if present is not None:
            self._forget(present)
        shared = self._shared[key] = SharedPartition(key, partition, state)
        return shared

    def _state(self, key: ShareKey) -> ShareState:
        """Return a state. Raises KafkaError with a code that members expect: they ask again."""
        try:
            return self._states.state_of(key)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error

    def acknowledge(self, shared: SharedPartition, owner: object, given: Sequence[Acknowledgement]) -> Awaitable[None]:
        """Apply what a member says; the awaitable ends once that is stored. Raises KafkaError, also when awaited."""
        if not shared.is_current:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        change = shared.deliveries.acknowledge(owner, given, self.terms(shared.key.group_id).limits)
        if not change.batches and change.start_offset == change.before[0]:
            return resolved(None)
        stored = self._store(shared, change)
        self._changed(shared)
        return stored

    def release(self, keys: Iterable[ShareKey], owner: object) -> None:
        """Take from a session what it has acquired: it has ended."""

        async def release() -> None:
            async for key in through(keys, self._sliced_work.pause):
                shared = self._shared.get(key)
                if shared is not None and shared.is_current:
                    self._apply(shared, shared.deliveries.release(owner, self.terms(key.group_id).limits))

        self._tasks.go_on(self._sliced_work.start(release()))

    def arm(self, shared: SharedPartition) -> None:
        """Wake up when the first lock expires. A timer that has become too early is kept."""
        wake_at_ms = shared.deliveries.wake_at_ms
        if wake_at_ms < shared.armed_ms:
            if shared.timer is not None:
                shared.timer.cancel()
            shared.armed_ms = wake_at_ms
            shared.timer = self._timer.schedule(wake_at_ms, lambda: self._expire(shared))

    def reset(self, keys: Iterable[ShareKey]) -> None:
        """Load partitions again at their next use: their states have changed, or are gone."""
        for key in keys:
            if (shared := self._shared.get(key)) is not None:
                self._forget(shared)

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        for shared in list(self._shared.values()):
            self._forget(shared)
        return self._tasks.cancel()

    def _forget(self, shared: SharedPartition) -> None:
        if shared.is_gone:
            return
        shared.is_gone = True
        if shared.timer is not None:
            shared.timer.cancel()
        if self._shared.get(shared.key) is shared:
            del self._shared[shared.key]
        self._manager.fetch_purgatory.check_and_complete(shared.key)

    def _expire(self, shared: SharedPartition) -> None:
        shared.timer, shared.armed_ms = None, NEVER
        if shared.is_current:
            limits = self.terms(shared.key.group_id).limits
            self._apply(shared, shared.deliveries.expire(limits, self._clock.monotonic_ms()))
            self.arm(shared)

    def _apply(self, shared: SharedPartition, change: Change | None) -> None:
        """Store a change that no request waits for."""
        if change is None:
            return
        try:
            self._store(shared, change)
        except KafkaError as error:
            logger.warning("What ended in %s was not stored: %s", text_of(shared.key), error.code.name)
            self._forget(shared)  # what is stored counts, and nobody has acquired anything in it
            return
        self._changed(shared)

    def _changed(self, shared: SharedPartition) -> None:
        """Wake the fetches that wait for what is available now."""
        if shared.key in self._manager.fetch_purgatory.watched:
            self._manager.fetch_purgatory.check_and_complete(shared.key)

    def _store(self, shared: SharedPartition, change: Change) -> Awaitable[None]:
        deliveries = shared.deliveries
        try:
            stored = self._states.write(
                shared.key,
                shared.state_epoch,
                shared.leader_epoch,
                deliveries.start_offset,
                deliveries.stored_batches(),
            )
        except KafkaError as error:
            deliveries.take_back(change)
            if error.code not in OUTDATED:
                raise
            self._forget(shared)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from error
        if isinstance(stored, Promise) and not stored.done():
            return self._followed(shared, stored)
        return stored

    def _followed(self, shared: SharedPartition, stored: Promise[None]) -> Promise[None]:
        """Return the outcome of a write. If it is not replicated, what is stored counts."""
        outcome: Promise[None] = Promise()

        def finish(written: Promise[None]) -> None:
            error = written.exception()
            if error is None:
                outcome.set_result(None)
            else:
                self._forget(shared)
                outcome.set_exception(error)

        stored.add_done_callback(finish)
        return outcome

    async def _first_offset(self, partition: Partition, reset: str) -> int:
        """Return where a group begins that has not read the partition before."""
        log = partition.log
        if reset == EARLIEST:
            return log.log_start_offset
        if reset == LATEST:
            return log.high_watermark
        since_ms = self._clock.now_ms() - int(age_of_first_record(reset).total_seconds() * 1000)
        end_offset = log.high_watermark
        found = await self._in_thread(
            lambda: log.lookups.offset_for_timestamp(max(since_ms, 0), upper_bound_offset=end_offset)
        )
        return end_offset if found is None else found.offset
