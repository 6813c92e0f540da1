"""The outcomes of records that the broker itself appends: commits, states and markers of transactions.

Owns the order of these outcomes: it is that of the log, as coordinators apply what they have appended when they know
its outcome. An append that `flush.messages` has to sync therefore delays the outcomes of later appends to its
partition; one sync serves all of them. Must not know what the records mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from base.clock import Clock
from base.pause import InThread
from base.topic_partition import TopicPartition
from broker.replica.bound_partition import BoundPartition
from broker.replica.delayed_produce import AwaitedAppend
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from protocol.errors import ErrorCode, KafkaError


class OwnAppends:
    """The appends of one broker's coordinators whose outcomes are not known yet."""

    def __init__(self, replica_manager: ReplicaManager, clock: Clock, in_thread: InThread) -> None:
        """`in_thread(work)` runs `work`, which may wait for a disk, in a thread."""
        self._manager = replica_manager
        self._clock = clock
        self._in_thread = in_thread
        self._last: dict[TopicPartition, asyncio.Task[None]] = {}
        """The last append to each partition whose outcome waits for a sync, its own or an earlier one."""
        self._syncs: dict[TopicPartition, asyncio.Task[ErrorCode]] = {}

    def is_complete(self, bound: BoundPartition, end_offset: int) -> bool:
        """Return whether an append that ends at `end_offset` has succeeded, so that nothing has to be awaited."""
        return bound.partition.is_committed(end_offset) and not self._may_wait_for_sync(bound)

    def await_outcome(
        self, bound: BoundPartition, append: AwaitedAppend, deadline_ms: int, on_decided: Callable[[], None]
    ) -> None:
        """Call `on_decided` once `append.error` is known: synced if that is demanded, and committed or failed.

        `deadline_ms` (monotonic) limits the wait for other replicas, not that for the disk.
        """
        if not self._may_wait_for_sync(bound):
            self._manager.await_commit([append], deadline_ms, on_decided)
            return
        key = bound.key
        previous = self._last.get(key)
        task = asyncio.get_running_loop().create_task(self._decide(previous, append, deadline_ms, on_decided))
        self._last[key] = task
        task.add_done_callback(lambda done: self._forget(key, done))

    def _may_wait_for_sync(self, bound: BoundPartition) -> bool:
        if bound.key in self._last:
            return True
        # What a slow log directory has not written yet counts only later.
        return bound.may_need_flush and (bound.log.durability.needs_flush or bound.log.planned.count > 0)

    def _forget(self, key: TopicPartition, done: asyncio.Task[None]) -> None:
        if self._last.get(key) is done:
            del self._last[key]

    async def _decide(
        self,
        previous: asyncio.Task[None] | None,
        append: AwaitedAppend,
        deadline_ms: int,
        on_decided: Callable[[], None],
    ) -> None:
        committed = self._commit_of(append, deadline_ms)
        partition = append.partition
        if partition.log.planned.count:
            written = AwaitedAppend(partition, append.leading_since, append.end_offset, needs_isr=False)
            await self._commit_of(written, deadline_ms)
        sync_error = await self._synced(append)
        await committed
        if sync_error:
            append.error = sync_error
        if previous is not None:
            await asyncio.wait({previous})
        on_decided()
        await asyncio.sleep(0)  # what `on_decided` has scheduled precedes the outcomes of later appends

    def _commit_of(self, append: AwaitedAppend, deadline_ms: int) -> asyncio.Future[None]:
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._manager.await_commit([append], deadline_ms, lambda: None if decided.done() else decided.set_result(None))
        return decided

    async def _synced(self, append: AwaitedAppend) -> ErrorCode:
        """Sync the log if that is demanded; return the error. One sync serves all appends before its start."""
        key = append.key
        running = self._syncs.get(key)
        if running is not None:  # it may have started before the append
            await asyncio.wait({running})
        durability = append.partition.log.durability
        if durability.recovery_point >= append.end_offset or not durability.needs_flush:
            return ErrorCode.NONE
        running = self._syncs.get(key)
        if running is None:
            running = asyncio.get_running_loop().create_task(self._sync(append.partition))
            self._syncs[key] = running
            running.add_done_callback(lambda _: self._syncs.pop(key))
        await asyncio.wait({running})
        return running.result()

    async def _sync(self, partition: Partition) -> ErrorCode:
        from broker.replica.log_sync import sync_log  # on demand: few topics have flush.messages

        try:
            await sync_log(partition, self._in_thread, self._clock)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE
