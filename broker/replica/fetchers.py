"""Replicates the partitions that this broker follows: fetches from their leaders, appends, truncates.

Owns: the fetchers, one task and one connection each, and putting the decisions of `broker.replica.machine.fetcher` into
effect. Must not know: how a request is decided, how connections work (`Peers`), or who leads (`AssignedReplicas` says
so).

A fetcher has one request in flight. It appends the parts of a response straight from the receive buffer, in slices.
What waits for a disk runs in a thread while its partition is held: truncation, a restart of the log at another offset,
and the sync that `flush.messages` demands. The other partitions of the fetcher continue. So do appends to a slow log
directory: its thread writes them, as it writes those of producers (`storage.disk.directory_writer`). The next fetch,
whose offset acknowledges everything below it, follows when they are stored.

A leader without news holds a request for up to `replica.fetch.wait.max.ms`, and a partition that was added during that
time would wait as long. So a request that has not returned by itself soon after the last addition is abandoned, and the
next one names the added partitions too.

=========================================  =========================================================================
a part of a response                       effect
=========================================  =========================================================================
records                                    append; high watermark and log start follow the leader's
diverging epoch                            truncate in a thread, then fetch again, which compares again
OFFSET_OUT_OF_RANGE                        request the leader's end, then its start: truncate, begin there, or retry
FENCED_LEADER_EPOCH                        stop until the next LeaderAndIsr; counted as failed
other errors, damaged or overlapping data  back off, the others continue
storage error of the own log               the partition is offline until a restart; the controller hears of it
=========================================  =========================================================================
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from base.clock import Clock
from base.dataclass import dataclass
from base.pause import InThread, Pause, never, through
from base.topic_partition import TopicPartition
from broker.loop.slices import SlicedWork
from broker.network.outgoing import Peer, Peers, PeerUnavailable, RequestAbandoned
from broker.replica.machine.fetcher import (
    COMPARED_MAX,
    EARLIEST,
    LATEST,
    Append,
    BackOff,
    Compare,
    Effect,
    Fence,
    FetchedPartition,
    Fetcher,
    FetchFailedError,
    FetchTerms,
    FetchVersions,
    FindOffset,
    GrowingBackOff,
    Position,
    Retry,
    StartAt,
    Truncate,
    TruncateTo,
    compared,
    epoch_question,
    fetcher_index,
    found_offset,
    out_of_range,
    range_question,
)
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsResponse
from storage.batches.stored_batch import extent_at
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from storage.log.replicated import end_of_piece, start_of_rest
from storage.segments.leader_epochs import EpochEnd

if TYPE_CHECKING:
    from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")

Change = Callable[[Log, int], bool]
"""A change of a log at a wall-clock time; returns whether the log may be fetched on without asking the leader again."""

GRACE_MS: Final = 20
"""How long additions wait for the request in flight to return, and for more additions."""
WAIT_WHILE_HELD_MS: Final = GRACE_MS // 2
"""How long a leader may hold a request while a log is changed: the request returns before it would be abandoned."""
THROTTLE_CHECK_MS_MAX: Final = 1_000
"""How long a throttled partition waits at most before the rate, which may have been changed, is looked at again."""
HELD_SIZE_MAX: Final = 64 << 20
"""How many fetched bytes may wait for slow log directories; a single larger part may always."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """What all fetchers of a broker share."""

    terms: FetchTerms
    versions: FetchVersions
    backoff_ms: int
    timeout_ms: int
    """`replica.socket.timeout.ms`: how long a request may take."""


class ReplicaFetchers:
    """All fetchers of one broker: `Replication` for `AssignedReplicas`."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        peers: Peers,
        manager: ReplicaManager,
        clock: Clock,
        sliced_work: SlicedWork,
        in_thread: InThread,
        settings: FetcherSettings,
        fetcher_count: Callable[[], int],
    ) -> None:
        """`in_thread` runs work that waits for a disk. `fetcher_count()` is `num.replica.fetchers`."""
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.manager = manager
        self.clock = clock
        self.sliced_work = sliced_work
        self.in_thread = in_thread
        self.settings = settings
        self._peers = peers
        self._fetcher_count = fetcher_count
        self._fetchers: dict[tuple[int, int], LeaderFetcher] = {}
        self._homes: dict[TopicPartition, LeaderFetcher] = {}
        self.failed: dict[TopicPartition, str] = {}
        """Partitions that an error has stopped, with the error, until the controller names their leader again."""
        self.held_size = 0
        """How many fetched bytes wait for slow log directories."""
        self._is_leaving = False
        self._is_stopped = False

    # Replication

    def follow(self, partition: Partition, leader_id: int) -> None:
        key = (partition.topic, partition.partition)
        if self._is_leaving and self.broker_id not in partition.leadership.isr:
            self.unfollow(key)
            return
        if self._is_stopped:
            return
        index = fetcher_index(*key, self._fetcher_count())
        fetcher = self._fetchers.get((leader_id, index))
        home = self._homes.get(key)
        if home is not None and home is not fetcher:
            self.unfollow(key)
        self.failed.pop(key, None)
        if fetcher is None:
            peer = self._peers.connect(leader_id, f"{PURPOSE}{index}")
            fetcher = self._fetchers[leader_id, index] = LeaderFetcher(self, leader_id, index, peer)
        self._homes[key] = fetcher
        fetcher.add(partition)

    def unfollow(self, key: TopicPartition) -> None:
        self.failed.pop(key, None)
        fetcher = self._homes.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)

    async def resize(self) -> None:
        """Spread the partitions over the number of fetchers that is configured now."""
        async for key, fetcher in through(list(self._homes.items()), self.sliced_work.pause):
            partition = fetcher.replica_of(key) if self._homes.get(key) is fetcher else None
            if partition is not None and fetcher_index(*key, self._fetcher_count()) != fetcher.index:
                self.follow(partition, fetcher.leader_id)

    def leave(self) -> None:
        """Begin to follow nothing more outside of the ISR, because this broker is about to stop.

        A leader waits for the acknowledgements of a live follower that was caught up lately, as it is about to join the
        ISR. The controller lets none join that is shutting down, so producers would wait until this broker is gone.
        """
        self._is_leaving = True

    async def stop(self) -> None:
        """Fetch nothing more; return when the effects in progress have ended."""
        self._is_stopped = True
        fetchers = list(self._fetchers.values())
        for fetcher in fetchers:
            fetcher.cancel()
        await asyncio.gather(*(fetcher.task for fetcher in fetchers), return_exceptions=True)
        await self.manager.truncations.stop()
        self._homes.clear()

    # For fetchers and metrics

    def fail(self, key: TopicPartition, reason: str) -> None:
        """Stop a partition because of an error of its own."""
        self.unfollow(key)
        self.failed[key] = reason

    def hold(self, size: int) -> bool:
        """Count fetched bytes that wait for a slow log directory; return False if too many wait already."""
        if self.held_size and self.held_size + size > HELD_SIZE_MAX:
            return False
        self.held_size += size
        return True

    def release(self, size: int) -> None:
        """Count bytes that no longer wait."""
        self.held_size -= size

    def is_idle(self, fetcher: LeaderFetcher) -> None:
        """Close a fetcher without partitions."""
        self._fetchers.pop((fetcher.leader_id, fetcher.index), None)

    @property
    def lag_max(self) -> int:
        """How many offsets the partition that is farthest behind its leader lags."""
        return max((one.lag for fetcher in self._fetchers.values() for one in fetcher.partitions), default=0)

    @property
    def failed_count(self) -> int:
        return len(self.failed)

    @property
    def running(self) -> Iterable[LeaderFetcher]:
        """All fetchers, also those that have ended although they have partitions."""
        return self._fetchers.values()

    @property
    def dead_count(self) -> int:
        """How many fetchers have ended although they have partitions, which only an error of the broker does."""
        return sum(fetcher.task.done() for fetcher in self._fetchers.values()) if not self._is_stopped else 0


PURPOSE: Final = "fetcher-"
"""What the connections of fetchers are for; the number of the fetcher follows."""


class LeaderFetcher:
    """One fetcher: a connection to one leader, and the partitions that are fetched over it."""

    def __init__(self, fetchers: ReplicaFetchers, leader_id: int, index: int, peer: Peer) -> None:
        self.leader_id = leader_id
        self.index = index
        self._fetchers = fetchers
        self._peer = peer
        self._replicas: dict[TopicPartition, Partition] = {}
        self._machine = Fetcher(fetchers.broker_id, fetchers.settings.terms, fetchers.settings.versions)
        self._news = asyncio.Event()
        self._changes: dict[asyncio.Task[None], None] = {}
        """In the order of their start, in which they are cancelled."""
        self._is_reachable = True
        self._back_off_of_leader = GrowingBackOff()
        self._is_awaiting_fetch = False
        self._abandoning: asyncio.TimerHandle | None = None
        self._added_ms = 0
        self.request_count = 0
        """How many responses the leader has sent."""
        self.byte_count = 0
        """How many bytes of records it has sent."""
        self.task = asyncio.create_task(self._run(), name=f"fetcher {index} of leader {leader_id}")

    @property
    def partitions(self) -> Iterable[FetchedPartition]:
        return iter(self._machine)

    def replica_of(self, key: TopicPartition) -> Partition | None:
        return self._replicas.get(key)

    def add(self, partition: Partition) -> None:
        """Fetch a partition in its present leader epoch, from the end of its log on."""
        key = (partition.topic, partition.partition)
        self._replicas[key] = partition
        self._machine.add(
            FetchedPartition(key, partition.topic_id, partition.leader_epoch, _position_of(partition.log))
        )
        self._has_added()

    def remove(self, key: TopicPartition) -> None:
        self._machine.remove(key)
        self._replicas.pop(key, None)
        self._news.set()

    def cancel(self) -> None:
        """End the fetcher; changes of logs in progress end by themselves."""
        self.task.cancel()
        self._stop_abandoning()
        for change in self._changes:
            change.cancel()

    async def _run(self) -> None:
        try:
            while len(self._machine):
                try:
                    await self._fetch()
                except (PeerUnavailable, FetchFailedError, KafkaError) as error:
                    level = logging.WARNING if self._is_reachable else logging.DEBUG
                    self._is_reachable = False
                    count = len(self._machine)
                    logger.log(level, "cannot fetch %d partitions from leader %d: %s", count, self.leader_id, error)
                    await self._pause()
                except Exception:
                    logger.exception("fetcher %d of leader %d has failed unexpectedly", self.index, self.leader_id)
                    await self._pause()
            self._fetchers.is_idle(self)
        finally:
            self._stop_abandoning()
            self._peer.close()

    async def _pause(self) -> None:
        """Pause after a request without a usable response, unless the controller brings news."""
        self._machine.lost()
        self._news.clear()
        await self._news_or(self._back_off_of_leader.after_failure(self._fetchers.settings.backoff_ms))

    async def _news_or(self, wait_ms: int) -> None:
        """Wait until a partition changes, at most `wait_ms`."""
        waiting = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({waiting}, timeout=wait_ms / 1000)
        finally:
            waiting.cancel()

    async def _fetch(self) -> None:
        """Send one request, and put the parts of its response into effect."""
        machine, fetchers = self._machine, self._fetchers
        self._news.clear()  # of what changes from here on, `_wait` must hear
        now_ms = fetchers.clock.monotonic_ms()
        if fetchers.manager.throttles.follower.left() < 1:
            await self._delay_throttled(now_ms)
        # Changes of logs wait while a control request is applied, and all begin when it ends. Each that ends is news.
        while len(self._changes) < COMPARED_MAX and (uncompared := machine.take_uncompared(now_ms)):
            await self._compare_all(uncompared)
        request = machine.request(now_ms, fetchers.broker_epoch())
        if request is None:
            await self._wait()
            return
        if self._changes:
            # A log that is changed will soon be fetched again, and this request does not name it.
            request.max_wait_ms = min(request.max_wait_ms, WAIT_WHILE_HELD_MS)
        self._is_awaiting_fetch = True
        try:
            response: FetchResponse = await self._peer.ask(
                request, machine.version, timeout_ms=fetchers.settings.timeout_ms
            )
        except RequestAbandoned:
            machine.lost()
            return
        finally:
            self._is_awaiting_fetch = False
        self.request_count += 1
        self._back_off_of_leader.after_success()
        if not self._is_reachable:
            logger.info("fetching from leader %d again", self.leader_id)
            self._is_reachable = True
        pause = fetchers.sliced_work.pause
        unplaced: list[FetchedPartition] = []
        for partition, data in machine.received(response):
            self.byte_count += len(data.records or b"")
            effect = machine.effect_of(partition, data)
            if type(effect) is Append:
                throttle = fetchers.manager.throttles.follower
                if partition.lag and throttle.concerns(self._replicas[partition.key]):
                    throttle.record(len(data.records or b""))
                await self._append(partition, data, pause)
            elif isinstance(effect, FindOffset):
                machine.hold(partition)
                unplaced.append(partition)
            elif effect is not None:
                self._put_into_effect(partition, effect)
            await pause()
        if unplaced:
            await self._place_all(unplaced)

    # The comparison with a new leader

    async def _compare_all(self, partitions: list[FetchedPartition]) -> None:
        """Ask the leader where the latest epochs of the logs end, and truncate the logs to where they diverge.

        A log that cannot be compared by epochs is truncated to its high watermark.
        """
        settings, pause = self._fetchers.settings, self._fetchers.sliced_work.pause
        version = settings.versions.offset_for_leader_epoch
        unknown: dict[TopicPartition, FetchedPartition] = {}
        async for partition in through(partitions, pause):
            if version is not None and partition.position.last_fetched_epoch >= 0:
                unknown[partition.key] = partition
            elif self._machine.is_fetched(partition):
                self._change_log(partition, _truncate_to_high_watermark)
        if not unknown or version is None:
            return
        try:
            request = epoch_question(self._fetchers.broker_id, list(unknown.values()))
            response: OffsetForLeaderEpochResponse = await self._peer.ask(
                request, version, timeout_ms=settings.timeout_ms
            )
            for topic in response.topics:
                for data in topic.partitions:
                    asked = unknown.pop((topic.topic, data.partition), None)
                    if asked is not None and self._machine.is_fetched(asked):
                        self._put_into_effect(asked, compared(data))
                    await pause()
        finally:
            for partition in unknown.values():
                if self._machine.is_fetched(partition):
                    self._back_off(partition)

    async def _delay_throttled(self, now_ms: int) -> None:
        """Leave throttled partitions that lag out of the requests until bytes are left for them."""
        machine, throttle = self._machine, self._fetchers.manager.throttles.follower
        machine.end_delays(now_ms)
        due_ms = now_ms + min(throttle.wait_ms(), THROTTLE_CHECK_MS_MAX)
        for partition in list(machine):
            replica = self._replicas.get(partition.key)
            if partition.is_ready and partition.lag and replica is not None and throttle.concerns(replica):
                machine.delay(partition, due_ms)
            await self._fetchers.sliced_work.pause()

    # Additions while a request is in flight

    def _has_added(self) -> None:
        """Note that a partition is to be fetched that the request in flight, if any, does not name."""
        self._news.set()
        self._added_ms = self._fetchers.clock.monotonic_ms()
        if self._is_awaiting_fetch and self._abandoning is None:
            self._abandon_after(GRACE_MS)

    def _abandon_after(self, wait_ms: int) -> None:
        self._abandoning = asyncio.get_running_loop().call_later(wait_ms / 1000, self._abandon)

    def _abandon(self) -> None:
        """Abandon the request in flight if it does not name what was added, and no more was added lately."""
        self._abandoning = None
        if not self._is_awaiting_fetch or not self._machine.has_unnamed:
            return
        rest_ms = self._added_ms + GRACE_MS - self._fetchers.clock.monotonic_ms()
        if rest_ms > 0 or not self._peer.abandon():
            self._abandon_after(max(rest_ms, 1))

    def _stop_abandoning(self) -> None:
        if self._abandoning is not None:
            self._abandoning.cancel()
            self._abandoning = None

    async def _wait(self) -> None:
        """Wait until a delay ends, or a partition has changed since `_fetch` began."""
        due_ms = self._machine.next_due_ms
        if due_ms is None:
            await self._news.wait()
        else:
            await self._news_or(max(0, due_ms - self._fetchers.clock.monotonic_ms()))

    # Effects

    def _put_into_effect(self, partition: FetchedPartition, effect: Effect | Compare) -> None:
        key = partition.key
        if isinstance(effect, Truncate):
            logger.info(
                "%s-%d: the log diverges from that of leader %d, whose epoch %d ends at offset %d; it ends at %d here",
                *key,
                self.leader_id,
                effect.epoch,
                effect.end_offset,
                partition.position.fetch_offset,
            )
            self._change_log(partition, partial(_truncate_to_epoch_end, EpochEnd(effect.epoch, effect.end_offset)))
        elif isinstance(effect, Compare):
            self._change_log(partition, partial(_truncate_to_epoch_end, EpochEnd(effect.epoch, effect.end_offset)))
        elif isinstance(effect, Fence):
            logger.info(
                "%s-%d: leader %d has a newer leader epoch than %d; waiting for the controller",
                *key,
                self.leader_id,
                partition.leader_epoch,
            )
            self._fetchers.fail(key, ErrorCode.FENCED_LEADER_EPOCH.name)
        elif isinstance(effect, BackOff):
            wait_ms = self._back_off(partition)
            # A leader that has not heard of its election yet is nothing to warn of.
            level = logging.WARNING if wait_ms == self._fetchers.settings.backoff_ms else logging.INFO
            logger.log(level, "%s-%d: fetching from leader %d fails: %s", *key, self.leader_id, effect.code.name)

    def _back_off(self, partition: FetchedPartition) -> int:
        """Fetch a partition again after a pause, and return that in milliseconds."""
        fetchers = self._fetchers
        position = _position_of(self._replicas[partition.key].log)  # what has failed may have changed it
        now_ms = fetchers.clock.monotonic_ms()
        wait_ms = self._machine.failed(partition, position, now_ms, fetchers.settings.backoff_ms)
        self._news.set()  # the fetcher may wait without a limit, because nothing was delayed before
        return wait_ms

    async def _append(self, partition: FetchedPartition, data: PartitionData, pause: Pause) -> None:
        """Append the records of a part in pieces, between which other work gets its turn and may end the fetching."""
        records = memoryview(data.records or b"")
        log = self._replicas[partition.key].log
        if len(records) and _begins_below(log, records):
            # The leader's log starts within this batch; an empty log begins with the whole of it. The next response
            # raises the log start to the leader's.
            self._change_log(partition, partial(_begin_with, bytearray(records), partition.leader_epoch))
            return
        if len(records) and log.is_slow:
            self._append_held(partition, data)
            return
        await self._append_pieces(partition, data, records, pause)

    def _append_held(self, partition: FetchedPartition, data: PartitionData) -> None:
        """Append the records of a part to a slow log directory, from a copy, while the partition is held."""
        fetchers, records = self._fetchers, bytes(data.records or b"")
        if not fetchers.hold(len(records)):
            self._back_off(partition)  # the records are fetched again
            return
        self._machine.hold(partition)
        task = asyncio.create_task(
            self._appended(partition, data, memoryview(records)), name="append to {}-{}".format(*partition.key)
        )
        self._changes[task] = None
        task.add_done_callback(partial(self._append_ended, len(records)))

    def _append_ended(self, size: int, task: asyncio.Task[None]) -> None:
        self._fetchers.release(size)
        del self._changes[task]

    async def _appended(self, partition: FetchedPartition, data: PartitionData, records: memoryview) -> None:
        replica = self._replicas.get(partition.key)
        if replica is None or not self._machine.is_fetched(partition):
            return
        try:
            is_appended = await self._append_pieces(partition, data, records, never)
        except Exception:
            logger.exception("%s-%d: what leader %d has sent is not appended", *partition.key, self.leader_id)
            if self._machine.is_fetched(partition):
                self._back_off(partition)
            return
        if is_appended:
            self._machine.resume(partition, _position_of(replica.log))
            self._has_added()

    async def _append_pieces(
        self,
        partition: FetchedPartition,
        data: PartitionData,
        records: memoryview,
        pause: Pause,
    ) -> bool:
        """Append records in pieces, and wait until they are stored; return whether the partition is fetched on."""
        position = 0
        while self._append_piece(partition, data, records[position : end_of_piece(records, position)]):
            log = self._replicas[partition.key].log
            if len(records) and log.planned.count:
                await _until_stored(log)
                if not self._machine.is_fetched(partition) or not self._append_piece(partition, data, records[:0]):
                    return False  # else high watermark and log start now follow the leader's
            before, position = position, start_of_rest(records, position, log.log_end_offset)
            if position == before or position >= len(records):
                return True
            await pause()
            if not self._machine.is_fetched(partition):
                return False
        return False

    def _append_piece(self, partition: FetchedPartition, data: PartitionData, records: memoryview) -> bool:
        """Append some of the records of a part; return whether the others may be appended now."""
        replica = self._replicas[partition.key]
        log = replica.log
        try:
            log.refuse_offline()
            self._fetchers.manager.append_fetched(
                replica,
                records,
                leader_epoch=partition.leader_epoch,
                leader_high_watermark=data.high_watermark,
                leader_log_start_offset=data.log_start_offset,
                now_ms=self._fetchers.clock.now_ms(),
            )
        except KafkaError as error:
            self._not_appended(partition, error)
            return False
        if log.planned.count:
            return True
        if log.durability.needs_flush:
            self._change_log(partition, _flush)
            return False
        self._machine.appended(partition, _position_of(log), data.high_watermark)
        return True

    def _not_appended(self, partition: FetchedPartition, error: KafkaError) -> None:
        key = partition.key
        if isinstance(error, TryLaterError) or error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            logger.error(
                "%s-%d: what leader %d has sent for offset %d is not appended: %s",
                *key,
                self.leader_id,
                partition.position.fetch_offset,
                error,
            )
            self._back_off(partition)
        else:
            logger.error("%s-%d is no longer replicated: %s", *key, error)
            self._fetchers.fail(key, str(error))

    # Changes of a log that wait for the disk

    def _change_log(self, partition: FetchedPartition, change: Change) -> None:
        """Run `change` in a thread while the partition is held, then fetch the partition again, or compare it first."""
        self._machine.hold(partition)
        replica = self._replicas[partition.key]
        task = asyncio.create_task(
            self._changed(partition, replica, change), name="change of {}-{}".format(*partition.key)
        )
        self._changes[task] = None
        task.add_done_callback(self._change_ended)

    def _change_ended(self, task: asyncio.Task[None]) -> None:
        del self._changes[task]
        self._news.set()

    async def _changed(self, partition: FetchedPartition, replica: Partition, change: Change) -> None:
        try:
            await self._fetchers.manager.truncations.run(
                partition.key, lambda: self._in_reserved(partition, replica, change)
            )
        except KafkaError as error:
            if self._machine.is_fetched(partition):
                if change is _flush and isinstance(error, TryLaterError):
                    await self._flush_again(partition, error)
                else:
                    self._not_appended(partition, error)
            return
        except Exception:
            logger.exception("the log of %s-%d could not be changed", *partition.key)
            if self._machine.is_fetched(partition):
                self._back_off(partition)
            return
        self._machine.resume(partition, _position_of(replica.log))
        self._has_added()

    async def _flush_again(self, partition: FetchedPartition, error: TryLaterError) -> None:
        """Sync a held log after a pause: to fetch it on would tell the leader that the records are on the disk."""
        logger.warning("%s-%d: what leader %d has sent is not synced yet: %s", *partition.key, self.leader_id, error)
        await asyncio.sleep(self._fetchers.settings.backoff_ms / 1000)
        if self._machine.is_fetched(partition):
            self._change_log(partition, _flush)

    async def _in_reserved(self, partition: FetchedPartition, replica: Partition, change: Change) -> None:
        if not self._machine.is_fetched(partition):
            return  # the controller has decided otherwise in the meantime
        log = replica.log
        log.planned.reserve()
        try:
            is_settled = await self._fetchers.in_thread(partial(change, log, self._fetchers.clock.now_ms()))
            if is_settled:
                self._machine.settle(partition)
        finally:
            log.planned.release()
            self._fetchers.manager.wake_readers(replica)

    # An offset that is out of the leader's range

    async def _place_all(self, partitions: list[FetchedPartition]) -> None:
        """Let the logs begin or end within the ranges of the leader's, a limited number with each pair of requests."""
        placed: set[TopicPartition] = set()
        try:
            for first in range(0, len(partitions), COMPARED_MAX):
                await self._find_offsets(partitions[first : first + COMPARED_MAX], placed)
        finally:
            for partition in partitions:
                if partition.key not in placed and self._machine.is_fetched(partition):
                    self._back_off(partition)

    async def _find_offsets(self, partitions: list[FetchedPartition], placed: set[TopicPartition]) -> None:
        """Place `partitions` between the ends and starts of the leader's logs; add those with both to `placed`."""
        ends = await self._offsets(partitions, LATEST)
        asked = [it for it in partitions if it.position.fetch_offset <= ends.get(it.key, -1)]
        starts = await self._offsets(asked, EARLIEST) if asked else {}
        has_start = {partition.key for partition in asked}
        async for partition in through(partitions, self._fetchers.sliced_work.pause):
            end_offset = ends.get(partition.key)
            start_offset = starts.get(partition.key) if partition.key in has_start else 0
            if end_offset is not None and start_offset is not None and self._machine.is_fetched(partition):
                placed.add(partition.key)
                self._place(partition, end_offset, start_offset)

    async def _offsets(self, partitions: list[FetchedPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return the offsets of the partitions in the leader's response."""
        request = range_question(self._fetchers.broker_id, partitions, timestamp)
        response: ListOffsetsResponse = await self._peer.ask(
            request, self._fetchers.settings.versions.list_offsets, timeout_ms=self._fetchers.settings.timeout_ms
        )
        return {
            (topic.name, one.partition_index): found_offset(one)
            for topic in response.topics
            for one in topic.partitions
            if not one.error_code
        }

    def _place(self, partition: FetchedPartition, leader_end_offset: int, leader_start_offset: int) -> None:
        key, position = partition.key, partition.position
        decision = out_of_range(position.fetch_offset, leader_end_offset, leader_start_offset)
        if isinstance(decision, Retry):
            self._machine.resume(partition, position)
            return
        logger.warning(
            "%s-%d: offset %d is out of the range of leader %d; %s",
            *key,
            position.fetch_offset,
            self.leader_id,
            f"the log is truncated to the leader's end offset {decision.offset}"
            if isinstance(decision, TruncateTo)
            else f"the log is deleted and begins at the leader's start offset {decision.offset}",
        )
        change = _start_at if isinstance(decision, StartAt) else _truncate_to
        self._change_log(partition, partial(change, decision.offset))


async def _until_stored(log: Log) -> None:
    """Wait until all planned appends of `log` are stored, or have failed."""
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log.planned.when_stored(lambda: None if stored.done() else stored.set_result(None))
    await stored


def _position_of(log: Log) -> Position:
    return Position(log.log_end_offset, log.leader_epochs.latest, log.log_start_offset)


def _begins_below(log: Log, records: memoryview) -> bool:
    """Return whether the log is empty and the first batch begins before its end, but reaches it."""
    if log.log_start_offset != log.log_end_offset:
        return False
    try:
        extent = extent_at(records, 0, 0)
    except Exception:
        return False
    return extent.base_offset < log.log_end_offset <= extent.last_offset and extent.end <= len(records)


def _truncate_to_epoch_end(leaders: EpochEnd, log: Log, now_ms: int) -> bool:
    return log.truncation.truncate_to_epoch_end(leaders, now_ms=now_ms)


def _truncate_to_high_watermark(log: Log, now_ms: int) -> bool:
    return _truncate_to(log.high_watermark, log, now_ms)


def _truncate_to(offset: int, log: Log, now_ms: int) -> bool:
    log.truncation.truncate_to(offset, now_ms=now_ms)
    return True


def _start_at(offset: int, log: Log, now_ms: int) -> bool:
    log.truncation.truncate_fully_and_start_at(offset, now_ms=now_ms)
    return True


def _begin_with(records: bytearray, leader_epoch: int, log: Log, now_ms: int) -> bool:
    log.truncation.truncate_fully_and_start_at(extent_at(records, 0, 0).base_offset, now_ms=now_ms)
    log.appends.append_as_follower(memoryview(records), now_ms=now_ms, leader_epoch=leader_epoch)
    return True


def _flush(log: Log, now_ms: int) -> bool:
    log.durability.flush(now_ms)
    return True
