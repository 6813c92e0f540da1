"""Moves logs between the log directories of this broker, in the background (KIP-113).

Owns: which moves run, how many at a time, how fast all of them together, and the one step in which a copy takes the
place of its log. Must not know: requests, or how a copy catches up (`storage.manager.log_moves`).

A move runs while its partition is hosted with the same log and copy, and ends by itself when one of them is removed. A
copy left on the disk is resumed when its partition is opened. While a copy exists, retention and the cleaner skip the
log.

Invariants: only the thread of its move changes a copy. The log is replaced by the copy between two requests, when the
copy holds all batches and is synced as far as the log. A sync that is requested after the replacement began is
acknowledged only when the copy is synced too (`Appends`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from base.clock import Clock
from base.dataclass import dataclass
from broker.replica.manager import ReplicaManager
from broker.replica.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from storage.directories.log_directory import LogDirectory
from storage.disk.shortages import TryLaterError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_moves import catch_up

logger = logging.getLogger("kafka.server.ReplicaAlterLogDirsManager")

T = TypeVar("T")

CHUNK_SIZE = 256 * 1024
"""The bytes that are copied in one turn, and that may be left to copy in the step that ends a move."""
PACE_CHECK_MS_MAX = 1_000
"""A move that waits for its turn reads the limit again after this time: it may have been raised."""
RETRY_SECONDS = 0.01
SHORTAGE_RETRY_SECONDS = 1.0


class Pacer:
    """Limits bytes per second by waits between them. Pure; times are monotonic."""

    def __init__(self) -> None:
        self._bytes_ahead = 0.0
        self._checked_ms = 0

    def wait_ms(self, bytes_per_second: int, now_ms: int) -> int:
        """Return how long to wait before the next bytes: at most `PACE_CHECK_MS_MAX`, and that for a rate of 0."""
        self._bytes_ahead = max(0.0, self._bytes_ahead - bytes_per_second * (now_ms - self._checked_ms) / 1000)
        self._checked_ms = now_ms
        if bytes_per_second <= 0:
            return PACE_CHECK_MS_MAX
        return min(-int(-self._bytes_ahead * 1000 // bytes_per_second), PACE_CHECK_MS_MAX)

    def passed(self, size: int) -> None:
        self._bytes_ahead += size


@dataclass(slots=True)
class _Move:
    """A move with the partition, the log and the copy that it began with."""

    partition: Partition
    log: Log
    copy: Log
    piece_count: int = 0
    """How many pieces it has copied."""

    @property
    def title(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition}"


class DirectoryMoves:
    """All moves of one broker."""

    def __init__(
        self,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        clock: Clock,
        new_threads: Callable[[int, str], Executor],
        *,
        threads: int,
        bytes_per_second_max: Callable[[], int],
    ) -> None:
        self._log_manager = log_manager
        self._replica_manager = replica_manager
        self._clock = clock
        self._new_threads = new_threads
        self._threads = threads
        self._bytes_per_second_max = bytes_per_second_max
        self._pacer = Pacer()
        self._slots = asyncio.Semaphore(threads)
        self._executor: Executor | None = None
        self._tasks: dict[Log, asyncio.Task[None]] = {}
        self._moves: dict[Log, _Move] = {}
        self.moved_size = 0
        """How many bytes all moves have copied."""
        self._stopped: set[Log] = set()
        """Copies whose move was stopped by an error; some of them may be removed by now."""

    @property
    def lag_max(self) -> int:
        """The most offsets that a copy lags behind its log; 0 if nothing moves."""
        pairs = ((copy, self._log_manager.get(copy.topic, copy.partition)) for copy in self._tasks)
        return max((log.log_end_offset - copy.log_end_offset for copy, log in pairs if log is not None), default=0)

    @property
    def failed_count(self) -> int:
        """How many moves an error has stopped. They are resumed when requested again, or at the next start."""
        return sum(map(self._is_in_place, self._stopped))

    def move(self, partition: Partition, directory: LogDirectory) -> None:
        """Begin to move a partition's log; if it is in `directory` already, drop its copy. May be repeated.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR.
        """
        logs, now_ms = self._log_manager, self._clock.now_ms()
        topic, index = partition.topic, partition.partition
        if logs.future_directory_of(topic, index) not in (None, directory):
            logs.drop_future(topic, index, now_ms=now_ms)
        if logs.directory_of(topic, index) is directory:
            return
        if logs.future(topic, index) is None:
            logs.create_future(partition.log, directory, now_ms=now_ms)
            logger.info("moving %s-%d from %s to %s", topic, index, partition.log.directory.parent, directory.path)
        self.resume(partition)

    def resume(self, partition: Partition) -> None:
        """Resume the move of a partition's log if a copy of it exists."""
        copy = self._log_manager.future(partition.topic, partition.partition)
        if copy is not None and copy not in self._tasks:
            self._stopped = {each for each in self._stopped if self._is_in_place(each) and each is not copy}
            name = f"move of {partition.topic}-{partition.partition}"
            move = self._moves[copy] = _Move(partition, partition.log, copy)
            task = self._tasks[copy] = asyncio.create_task(self._run(move), name=name)
            task.add_done_callback(lambda _: self._ended(copy))

    def piece_counts(self) -> dict[str, int]:
        """Return how many pieces each move has copied, by partition."""
        return {move.title: move.piece_count for move in self._moves.values()}

    def _ended(self, copy: Log) -> None:
        self._tasks.pop(copy, None)
        self._moves.pop(copy, None)

    async def stop(self) -> None:
        """Stop all moves and keep the copies; `resume` continues after the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown)

    async def _run(self, move: _Move) -> None:
        async with self._slots:
            try:
                while self._is_wanted(move):
                    try:
                        await self._catch_up(move)
                        if await self._switch(move):
                            return
                    except TryLaterError:
                        await asyncio.sleep(SHORTAGE_RETRY_SECONDS)
            except KafkaError as error:
                if self._is_wanted(move):
                    self._stopped.add(move.copy)
                    logger.error("the move of %s is stopped, it stays in its directory: %s", move.title, error)
            except Exception:
                self._stopped.add(move.copy)
                logger.exception("the move of %s is stopped, it stays in its directory", move.title)

    def _is_in_place(self, copy: Log) -> bool:
        return self._log_manager.future(copy.topic, copy.partition) is copy

    def _is_wanted(self, move: _Move) -> bool:
        partition = move.partition
        topic, index = partition.topic, partition.partition
        return (
            self._replica_manager.find(topic, index) is partition
            and partition.log is move.log
            and self._log_manager.future(topic, index) is move.copy
            and not move.log.is_offline
            and not move.copy.is_offline
        )

    async def _catch_up(self, move: _Move) -> None:
        """Copy until the copy has reached the end of the log."""
        log, copy = move.log, move.copy
        is_first = True
        while self._is_wanted(move) and (is_first or copy.log_end_offset != log.log_end_offset):
            is_first = False
            await self._wait_for_turn()
            size_max = max(1, min(CHUNK_SIZE, self._bytes_per_second_max()))
            size = await self._in_thread(partial(self._copy_piece, move, size_max))
            self._pacer.passed(size)
            self.moved_size += size
            move.piece_count += 1
            if not size:
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait_for_turn(self) -> None:
        while True:
            wait_ms = self._pacer.wait_ms(self._bytes_per_second_max(), self._clock.monotonic_ms())
            if not wait_ms:
                return
            await asyncio.sleep(wait_ms / 1000)

    async def _switch(self, move: _Move) -> bool:
        """Replace the log by the copy; return False if there is too much to copy first, or the move is over."""
        await self._in_thread(lambda: self._prepare(move))
        # From here on the log is no longer synced; a caller that waits for a sync gets one of the log in service.
        move.log.durability.hold_flushes()
        try:
            return await self._switch_held(move)
        finally:
            move.log.planned.end_drain()
            move.log.durability.release_flushes()

    async def _switch_held(self, move: _Move) -> bool:
        log, copy, partition = move.log, move.copy, move.partition
        if not await self._in_thread(lambda: self._copy_and_flush(move)):
            return False
        if log.planned.count:
            await _drained(log)
        # Nothing is awaited from here to the end, so no append, read or truncation can run in between.
        if not self._is_wanted(move) or log.planned.is_pending or not self._copy_rest(move):
            return False
        if copy.log_end_offset != log.log_end_offset or copy.durability.recovery_point < log.durability.recovery_point:
            return False
        old_directory = self._log_manager.directory_of(partition.topic, partition.partition)
        assert old_directory is not None
        copy.take_over_state(log)
        partition.replace_log(
            self._log_manager.put_future_in_service(partition.topic, partition.partition, now_ms=self._clock.now_ms())
        )
        logger.info("moved %s to %s", move.title, copy.directory)
        log.durability.release_flushes()  # producers do not wait for the rest
        await self._in_thread(
            lambda: self._log_manager.move_markers.finish(copy, old_directory, now_ms=self._clock.now_ms())
        )
        return True

    def _prepare(self, move: _Move) -> None:
        """Sync most of the copy, while the log may still be synced too, and mark the copy as complete."""
        move.copy.durability.flush(self._clock.now_ms())
        self._log_manager.move_markers.mark_whole(move.copy, move.log, now_ms=self._clock.now_ms())

    def _copy_and_flush(self, move: _Move) -> bool:
        """Sync the copy as far as the log; return False if there is too much to copy first."""
        if not self._copy_rest(move):
            return False
        move.copy.durability.flush(self._clock.now_ms())
        return self._copy_rest(move)  # what was appended during the sync, so that less is left for the event loop

    def _copy_rest(self, move: _Move) -> bool:
        """Copy the last appends, which are in memory; return False if they are too many for one step. Any thread."""
        log, copy = move.log, move.copy
        if copy.log_end_offset < log.log_end_offset:
            size = log.reader.size_between(copy.log_end_offset, log.log_end_offset)
            if size is None or size > CHUNK_SIZE:
                return False
        while self._copy_piece(move, CHUNK_SIZE):
            pass
        return True

    def _copy_piece(self, move: _Move, size_max: int) -> int:
        """Copy about `size_max` bytes; return how many. 0 may also mean that the log was changed while it was read."""
        try:
            return catch_up(move.log, move.copy, size_max, now_ms=self._clock.now_ms())
        except KafkaError as error:
            # The log was truncated, or its start was raised.
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return 0

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._executor is None:
            self._executor = self._new_threads(self._threads, "replica-alter-log-dirs")
        return asyncio.get_running_loop().run_in_executor(self._executor, work)


def _drained(log: Log) -> asyncio.Future[None]:
    """Return a future of the end of all planned writes. Producers wait until `PlannedAppends.end_drain`."""
    drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log.planned.drain(lambda: None if drained.done() else drained.set_result(None))
    return drained
