"""The partitions that share groups read on this broker, with what is delivered of each.

Owns: which of them are loaded, from their state at the share coordinator to the end of this broker's leadership, or of
the last session of the group; when locks expire; and that every change is stored. Must not know: requests, the contents
of the log, or which broker the share coordinator is.

A change is written with all that is in flight. While one write is under way, the changes that follow wait, and the next
write has all of them. If a write fails, what is stored counts: the partition is loaded again, and nobody has acquired
anything in it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from base.clock import Clock
from base.dataclass import dataclass
from base.line_limit import LineLimit
from base.pause import InThread, through
from broker.coordination.background import BackgroundTasks, Unfinished
from broker.loop.driver import start
from broker.loop.promise import Promise, resolved
from broker.loop.slices import SlicedWork
from broker.loop.timer import Timer, TimerHandle
from broker.replica.manager import ReplicaManager
from broker.replica.partition import NO_EPOCH, Partition
from broker.share.links import StateLinks
from broker.share.machine.deliveries import NEVER, Acknowledgement, Deliveries, StateBatch
from broker.share.machine.records import ShareKey, text_of
from broker.share.machine.sessions import ShareSessions
from broker.share.machine.state_calls import Read, Write
from broker.share.machine.stored_states import NO_START, ShareState, furthest
from broker.share.terms import ShareTerms
from config.group import EARLIEST, LATEST, age_of_first_record
from protocol.errors import ErrorCode, KafkaError

OUTDATED = frozenset(
    {ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""The errors of a write that say that somebody else has changed the state, or ended it."""
LOAD_PATIENCE_MS = 1000
"""How long a partition is being loaded while the share coordinator is not available; members ask again after it."""
WRITE_PATIENCE_MS = 25_000
"""How long a write is repeated: less than the 30 seconds for which clients wait for a response."""
LINE_INTERVAL_S: Final = 10.0

logger = logging.getLogger("kafka.server.share.SharePartitionManager")


class SharedPartition:
    """One partition that one share group reads, for as long as this broker leads it."""

    __slots__ = (
        "armed_ms", "deliveries", "is_gone", "is_writing", "key", "leader_epoch", "leading_since", "partition",
        "state_epoch", "stored", "timer", "unwritten",
    )  # fmt: skip

    def __init__(self, key: ShareKey, partition: Partition, leader_epoch: int, state: ShareState) -> None:
        self.key = key
        self.partition = partition
        self.leading_since = partition.leading_since
        self.leader_epoch = leader_epoch
        """The one in which the state was read last; NO_EPOCH if it has to be read again."""
        self.state_epoch = state.state_epoch
        self.deliveries = Deliveries(state.start_offset, state.batches)
        self.stored: tuple[int, Sequence[StateBatch]] = state.start_offset, state.batches
        """The start offset and the batches at the share coordinator, after the last write."""
        self.is_gone = False
        """Whether it has to be loaded again: another leader or an administrator may have changed its state."""
        self.timer: TimerHandle | None = None
        self.armed_ms = NEVER
        self.is_writing = False
        self.unwritten: list[Promise[None]] = []
        """The outcomes of changes that the next write will have."""

    @property
    def is_led(self) -> bool:
        """Whether this broker leads since the state was loaded, as far as it knows: it may write, or will be fenced."""
        return not self.is_gone and self.partition.leading_since == self.leading_since

    @property
    def is_current(self) -> bool:
        """Whether records may be acquired: nothing but this object has changed the state since it was read."""
        return self.is_led and self.partition.leader_epoch == self.leader_epoch

    @property
    def awaits_write(self) -> bool:
        """Whether the state is read again once a write has ended: until then no records are acquired."""
        return self.is_writing and self.is_led and not self.is_current

    @property
    def awaits_load(self) -> bool:
        """Whether the next fetch loads the partition again: until then no records are acquired."""
        return not self.is_current and not self.awaits_write

    def is_stored_as(self, state: ShareState) -> bool:
        """Return whether nothing but this object has changed a state."""
        start_offset, batches = self.stored
        known = self.state_epoch, start_offset, furthest(batches, start_offset)
        return known == (state.state_epoch, state.start_offset, [*state.batches])


@dataclass(slots=True, eq=False)
class _Load:
    """A partition that is being loaded, and who waits for it."""

    waiting: list[Promise[SharedPartition]]
    is_outdated: bool = False
    """Whether its state has changed since."""


class SharedPartitions:
    """The partitions of one broker by group, topic and number."""

    def __init__(
        self,
        states: StateLinks,
        sessions: ShareSessions,
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
        self._sessions = sessions
        self._manager = manager
        self.terms = terms
        self._timer = timer
        self._clock = clock
        self._in_thread = in_thread
        self._by_group: dict[str, dict[ShareKey, SharedPartition]] = {}
        self._loads: dict[ShareKey, _Load] = {}
        self._lines = LineLimit(LINE_INTERVAL_S)  # of all partitions: what fails concerns many, and members ask again

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    def find(self, group_id: str, topic: str, topic_id: UUID, number: int) -> Promise[SharedPartition]:
        """Return a promise of a partition, loaded. Raises KafkaError, also when awaited.

        The errors say that this broker does not lead it, that it has no state, or that the state is not available.
        """
        key = ShareKey(group_id, topic_id, number)
        shared = self._known(key)
        if shared is not None:
            if shared.is_current or (shared.is_led and shared.is_writing):
                return resolved(shared)
            if not shared.is_led:
                self._forget(shared)
        found: Promise[SharedPartition] = Promise()
        if (load := self._loads.get(key)) is not None:
            load.waiting.append(found)
            return found
        partition = self._manager.find(topic, number)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.require_leader(NO_EPOCH)
        if partition.log.topic_id != topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        self._loads[key] = load = _Load([found])
        self._tasks.go_on(start(self._load(key, partition, load)))
        return found

    async def _load(self, key: ShareKey, partition: Partition, load: _Load) -> None:
        outcome: SharedPartition | Exception
        try:
            outcome = await self._loaded(key, partition, load)
        except Exception as error:
            outcome = error
        finally:
            del self._loads[key]  # before those that wait go on
        for each in load.waiting:
            if isinstance(outcome, Exception):
                each.set_exception(outcome)
            else:
                each.set_result(outcome)

    async def _loaded(self, key: ShareKey, partition: Partition, load: _Load) -> SharedPartition:
        """Return a partition as it is stored. Raises KafkaError with a code that members expect: they ask again."""
        epoch = partition.leader_epoch
        try:
            state = await self._states.call(Read(key, epoch), LOAD_PATIENCE_MS)
            if state.start_offset == NO_START:
                begin = await self._first_offset(partition, self.terms(key.group_id).auto_offset_reset)
                await self._states.call(Write(key, state.state_epoch, epoch, begin, ()), LOAD_PATIENCE_MS)
                state = state._replace(start_offset=begin)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if (held_back := self._lines.admit(self._clock.monotonic_s())) is not None:
                logger.warning(
                    "The state of %s was not loaded: %s: %s (%d such failures not logged)",
                    text_of(key), error.code.name, error.message, held_back,
                )  # fmt: skip
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
        shared = self._known(key)
        if shared is None or not shared.is_stored_as(state):
            if shared is not None:
                self._forget(shared)  # this broker has missed that another one has led
            shared = SharedPartition(key, partition, epoch, state)
        shared.leader_epoch = epoch
        is_hosted = self._manager.find(partition.topic, key.partition) is partition
        if load.is_outdated or not is_hosted or not shared.is_current:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._by_group.setdefault(key.group_id, {})[key] = shared
        self.arm(shared)
        return shared

    def acknowledge(self, shared: SharedPartition, owner: object, given: Sequence[Acknowledgement]) -> Awaitable[None]:
        """Apply what a member says; the awaitable ends once that is stored. Raises KafkaError, also when awaited."""
        if not shared.is_led:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        change = shared.deliveries.acknowledge(owner, given, self.terms(shared.key.group_id).limits)
        return resolved(None) if change is None else self._store(shared)

    def store_start(self, shared: SharedPartition) -> None:
        """Store that a group is done with offsets without records: no acknowledgement will do that.

        These are markers of transactions, what was aborted, and what was deleted.
        """
        if shared.deliveries.start_offset > shared.stored[0] and not shared.is_writing:
            self._store(shared)

    def release(self, group_id: str, keys: Iterable[ShareKey], owner: object) -> None:
        """Take from a session what it has acquired: it has ended. With the last one, the group's partitions go too."""

        async def release() -> None:
            stored: list[Promise[None]] = []
            async for key in through(keys, self._sliced_work.pause):
                shared = self._known(key)
                if shared is not None and shared.is_led:
                    limits = self.terms(group_id).limits
                    if shared.deliveries.release(owner, limits) is not None:
                        stored.append(self._store(shared))
            for each in stored:
                with suppress(KafkaError):
                    await each
            if self._sessions.are_of_group(group_id):
                return
            of_group = self._by_group.get(group_id, {})
            async for shared in through(list(of_group.values()), self._sliced_work.pause):
                if shared.is_writing:
                    # The next session would read the state before that write, and count a delivery too few.
                    with suppress(KafkaError):
                        await self._store(shared)
                if not self._sessions.are_of_group(group_id):
                    self._forget(shared)

        self._tasks.go_on(self._sliced_work.start(release()))

    def arm(self, shared: SharedPartition) -> None:
        """Wake up when the first lock expires. A timer that has become too early is kept."""
        wake_at_ms = shared.deliveries.wake_at_ms
        if wake_at_ms < shared.armed_ms:
            if shared.timer is not None:
                shared.timer.cancel()
            shared.armed_ms = wake_at_ms
            shared.timer = self._timer.schedule(wake_at_ms, lambda: self._expire(shared))

    def read_again(self, key: ShareKey) -> None:
        """Read the state of a partition at its next use, for a new session: it may have been moved, or begun again.

        A group coordinator on another broker cannot say so. Not while records are acquired or being written: the
        coming write fails if the state has changed.
        """
        shared = self._known(key)
        if shared is not None and not shared.is_writing and shared.deliveries.wake_at_ms == NEVER:
            shared.leader_epoch = NO_EPOCH

    def reset(self, keys: Iterable[ShareKey]) -> None:
        """Load partitions again at their next use: their states have changed, or are gone."""
        for key in keys:
            if (shared := self._known(key)) is not None:
                self._forget(shared)
            if (load := self._loads.get(key)) is not None:
                load.is_outdated = True

    def stop(self) -> Unfinished:
        """Cancel what is unfinished, and return it: cancelled work still has to end."""
        for of_group in list(self._by_group.values()):
            for shared in list(of_group.values()):
                self._forget(shared)
        return self._tasks.cancel()

    def _known(self, key: ShareKey) -> SharedPartition | None:
        of_group = self._by_group.get(key.group_id)
        return None if of_group is None else of_group.get(key)

    def _forget(self, shared: SharedPartition) -> None:
        if shared.is_gone:
            return
        shared.is_gone = True
        if shared.timer is not None:
            shared.timer.cancel()
        if self._known(shared.key) is shared:
            of_group = self._by_group[shared.key.group_id]
            del of_group[shared.key]
            if not of_group:
                del self._by_group[shared.key.group_id]
        self._manager.fetch_purgatory.check_and_complete(shared.key)

    def _expire(self, shared: SharedPartition) -> None:
        shared.timer, shared.armed_ms = None, NEVER
        if shared.is_led:
            limits = self.terms(shared.key.group_id).limits
            if shared.deliveries.expire(limits, self._clock.monotonic_ms()) is not None:
                self._store(shared)
            self.arm(shared)

    def _store(self, shared: SharedPartition) -> Promise[None]:
        """Store what has changed, and wake the fetches that wait for what is available now."""
        outcome: Promise[None] = Promise()
        shared.unwritten.append(outcome)
        if not shared.is_writing:
            self._write(shared)
        if shared.key in self._manager.fetch_purgatory.watched:
            self._manager.fetch_purgatory.check_and_complete(shared.key)
        return outcome

    def _write(self, shared: SharedPartition) -> None:
        outcomes, shared.unwritten, shared.is_writing = shared.unwritten, [], True
        start_offset, batches = shared.deliveries.start_offset, shared.deliveries.stored_batches()
        call = Write(shared.key, shared.state_epoch, shared.leader_epoch, start_offset, batches)
        written = self._states.call(call, WRITE_PATIENCE_MS)
        written.add_done_callback(partial(self._written, shared, call, outcomes))

    def _written(
        self, shared: SharedPartition, call: Write, outcomes: Sequence[Promise[None]], written: Promise[ShareState]
    ) -> None:
        shared.is_writing = False
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if written.cancelled() else written.exception()
        if error is None:
            shared.stored = call.start_offset, call.batches
            if shared.unwritten:
                self._write(shared)
            elif not shared.is_current:
                self._manager.fetch_purgatory.check_and_complete(shared.key)
            for each in outcomes:
                each.set_result(None)
            return
        if isinstance(error, KafkaError):
            is_outdated = error.code in OUTDATED
            level = logging.INFO if is_outdated else logging.WARNING
            logger.log(level, "What was done in %s was not stored: %s", text_of(shared.key), error.code.name)
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) if is_outdated else error
        unwritten, shared.unwritten = shared.unwritten, []
        self._forget(shared)
        for each in (*outcomes, *unwritten):
            each.set_exception(error)

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
