"""Which threads write a log directory: the one that owns the logs, or, while the disk is slow, the directory's own.

Owns when a directory is slow, the order of the pending writes, and which changes of a log must wait while one of its
writes is in progress. Must not know what a write contains, nor event loops: `start` is the port to the threads.

A write to the page cache takes microseconds. It takes milliseconds if the kernel throttles a process with too many
dirty pages, or if a remote disk is overloaded. Then each append would block the event loop, and with it the clients of
all other directories. So each write is timed. A directory with too many slow writes is slow: its appends are planned as
usual (checked, numbered, applied to the state of their producers), and then wait here for the directory's threads.
No record is readable or acknowledged before it is written. So a failure, which takes the directory offline, needs no
rollback.

On a machine with too few processors a write is late as well, and a thread would make that worse. To subtract the time
for which the thread waits for a processor takes several microseconds a write, so it is measured only for a while after
a write was slow.

    directly    plan -> write -> readable and acknowledged      in the thread that owns the logs
    slow        plan -> submit ... store ... finish             `store` in the directory's threads, the rest in it

Each thread gets writes as soon as it is free. One thread would not do: a disk with a long latency serves several writes
at a time as fast as one, and a request to a coordinator waits for a chain of them, each behind those of all other logs.
Handing a write to a thread and back costs more than a fast write, so a thread gets its share of those that wait. While
the writes are slow, it gets one: the others would wait for it although another thread is free sooner.

Threads: the thread that owns the logs calls everything except `note_slow_write` and `DeferredWrite.store`.

Invariants:
- The writes of a log reach its files in the order in which they were submitted.
- One write of a log is in progress at most. Until its share ends, nothing else changes the files of the log;
  `run_between` waits for that.
- A directory is written directly again only when no write is pending.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from storage.disk.files import ShortageError

SLOW_WRITE_S: Final = 0.01
"""A write that takes longer is slow."""
SLOW_SECOND_S: Final = 0.2
"""A directory is slow once slow writes have taken this much of a second.

An append through the thread costs three times the CPU time of a direct one, so rare waits of some 20 ms, as for the
journal of a file system, are cheaper.
"""
WINDOW_S: Final = 1.0
CERTAIN_S: Final = 1.0
"""A write that took this long was slow, even if nobody knows how long it waited for a processor."""
FAST_WRITES_MIN: Final = 20
FAST_SECONDS_MIN: Final = 1.0
"""A directory is fast again after this many writes in a row and this much time without a slow one."""
FAST_SECONDS_MAX: Final = 30.0
SLOW_AGAIN_S: Final = 60.0
"""That time doubles, up to FAST_SECONDS_MAX, if a directory becomes slow this soon after its last slow write."""
THREADS: Final = 8
"""How many threads write a slow directory: as many as Apache Kafka has for requests (num.io.threads)."""
SHARE_WRITES_MAX: Final = 8
SHARE_SIZE_MAX: Final = 1 << 17
"""A share ends with the write that reaches this size: the thread that owns the logs completes a share in one turn."""
PENDING_SIZE_MAX: Final = 64 << 20
"""From this many pending bytes on `has_room` is false. Internal appends, which are small, are still accepted."""
SHORTAGE_RETRY_S: Final = 0.1
SHORTAGE_TRIES_MAX: Final = 600
"""After this many tries the write has failed, and its log goes offline."""

_logger = logging.getLogger(__name__)

Action = Callable[[], object]
Start = Callable[[Action, Action], None]
"""`start(work, done)` runs `work` in a free thread of the directory, then `done` in the thread that owns the logs."""
Stored = dict["DeferredWrite", tuple[Exception | None, float]]
"""The writes of a share that were tried, each with its error and the seconds that it took."""


class WritableLog(Protocol):
    """A log whose writes may be deferred."""

    is_offline: bool


class DeferredWrite(Protocol):
    """One planned append."""

    @property
    def log(self) -> WritableLog: ...

    @property
    def size(self) -> int:
        """In bytes."""

    def begin(self) -> None:
        """Note that `store` follows. After this call the write does not change."""

    def store(self) -> None:
        """Write the batches; in a directory's thread. Raises OSError; may be called again after a ShortageError."""

    def finish(self, error: Exception | None) -> None:
        """Make the batches readable, or report `error`."""


class DirectoryWriter:
    """The writes to one log directory. `is_slow` is for reading; it stays False until `use` is called."""

    def __init__(
        self,
        path: str,
        *,
        now_s: Callable[[], float] = lambda: 0.0,
        undelayed_s: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = lambda seconds: None,
        on_shortage: Callable[[ShortageError], None] = lambda error: None,
        slow_paths: set[str] | None = None,
    ) -> None:
        """`sleep` waits before a write is repeated. By default no write takes any time.

        `undelayed_s` is `now_s` without the time for which the calling thread has waited for a processor, and takes
        longer. By default the two are the same.

        `slow_paths` contains `path` while the directory is slow; the writers of a broker share it.
        """
        self._path = path
        self._slow_paths = set() if slow_paths is None else slow_paths
        self._sleep = sleep
        self._on_shortage = on_shortage
        self._start: Start | None = None
        self._waiting: dict[WritableLog, deque[DeferredWrite]] = {}
        self._ready: deque[WritableLog] = deque()  # logs with writes that wait and none in progress; they take turns
        self._in_progress: dict[WritableLog, DeferredWrite] = {}
        self._free_count = THREADS
        self._is_completing = False  # a share: what is submitted now is handed over when that is done
        self._between: dict[WritableLog, list[Action]] = {}
        self._when_room: list[Action] = []
        self._when_idle: list[Action] = []
        self._slow_writes: deque[tuple[float, float]] = deque()  # (end, seconds) of the last WINDOW_S
        self._noting = threading.Lock()
        self._last_slow_s = -SLOW_AGAIN_S
        self._fast_count = 0
        self._fast_after_s = FAST_SECONDS_MIN
        self._now_s = now_s
        self._undelayed_s = now_s if undelayed_s is None else undelayed_s
        self._watched_until_s = 0.0
        self.clock_s = now_s
        """The clock for the next write; one write is measured by one clock."""
        self.is_slow = False
        self.pending_size = 0
        self.slow_count = 0
        """How often the directory has become slow."""
        self.fast_count = 0
        """How often the directory has become fast again."""

    def use(self, start: Start) -> None:
        """Allow writes in the directory's own threads from now on."""
        self._start = start

    def stop_using(self) -> None:
        """Write the directory directly from now on, however slow it is. Requires `is_idle`."""
        assert self.is_idle
        self._start = None
        self._become_fast()

    @property
    def has_room(self) -> bool:
        """Whether producers may append. Internal appends may always."""
        return not self.pending_size or self.pending_size < PENDING_SIZE_MAX

    def when_room(self, action: Action) -> None:
        """Call `action` once, the next time that `has_room` may have become true."""
        self._when_room.append(action)

    def announce_room(self) -> None:
        """Call the actions of `when_room`: a log accepts appends again for a reason outside the writer."""
        _call(self._when_room)

    @property
    def is_idle(self) -> bool:
        """Whether no write is pending or in progress."""
        return not self._in_progress and not self._waiting and not self._is_completing

    def when_idle(self, action: Action) -> None:
        """Call `action` once: now if the writer is idle, else as soon as it is."""
        if self.is_idle:
            action()
        else:
            self._when_idle.append(action)

    def is_writing(self, log: WritableLog) -> bool:
        """Whether a write of this log is in progress. Nothing else may change the files of the log until it ends."""
        return log in self._in_progress

    def run_between(self, log: WritableLog, action: Action) -> None:
        """Call `action`, which changes the files of `log`: now, or after the write of this log that is in progress."""
        if self.is_writing(log):
            self._between.setdefault(log, []).append(action)
        else:
            action()

    def note_slow_write(self, elapsed_s: float, measured_by: Callable[[], float]) -> None:
        """Note a direct write that took longer than SLOW_WRITE_S. Any thread.

        `measured_by` is the `clock_s` of the begin of the write.
        """
        with self._noting:
            now_s = self._now_s()
            may_have_waited = measured_by == self._now_s and self._undelayed_s != self._now_s
            self._watched_until_s = now_s + WINDOW_S
            self.clock_s = self._watching_clock_s
            writes = self._slow_writes
            if not may_have_waited or elapsed_s >= CERTAIN_S:
                writes.append((now_s, elapsed_s))
            while writes and writes[0][0] < now_s - WINDOW_S:
                writes.popleft()
            count, total_s = len(writes), sum(each for _, each in writes)
            if self._start is None or self.is_slow or total_s < SLOW_SECOND_S:
                return
            writes.clear()
            self.slow_count += 1
            is_again = now_s - self._last_slow_s < SLOW_AGAIN_S
            self._fast_after_s = min(2 * self._fast_after_s, FAST_SECONDS_MAX) if is_again else FAST_SECONDS_MIN
            self._last_slow_s = now_s
            self._fast_count = 0
            self.is_slow = True
            self._slow_paths.add(self._path)
        _logger.warning(
            "log directory %s has become slow: %d writes took %d ms within a second; "
            "separate threads write to it until it is fast again",
            self._path,
            count,
            total_s * 1000,
        )

    def _watching_clock_s(self) -> float:
        """The clock while slow writes are watched; after that time it replaces itself by the cheaper one."""
        if self._now_s() >= self._watched_until_s:
            self.clock_s = self._now_s
        return self._undelayed_s()

    def submit(self, write: DeferredWrite) -> None:
        """Queue `write` behind all that were submitted before. Requires `is_slow`."""
        assert self.is_slow
        waiting = self._waiting.setdefault(write.log, deque())
        waiting.append(write)
        if len(waiting) == 1 and not self.is_writing(write.log):
            self._ready.append(write.log)
        self.pending_size += write.size
        if not self._is_completing:
            self._hand_over()

    def grew(self, size: int) -> None:
        """Note that a pending write has become larger by `size` bytes."""
        self.pending_size += size

    def _hand_over(self) -> None:
        """Hand writes that wait to the free threads."""
        assert self._start is not None
        while self._free_count and (share := self._next_share()):
            self._free_count -= 1
            stored: Stored = {}
            self._start(partial(self._store, share, stored), partial(self._end, share, stored))

    def _next_share(self) -> list[DeferredWrite]:
        """Take the writes of the next share: the oldest one of each of some logs."""
        is_slow_now = not self._fast_count
        count_max = 1 if is_slow_now else min(-(-len(self._ready) // self._free_count), SHARE_WRITES_MAX)
        share: list[DeferredWrite] = []
        size = 0
        while self._ready and len(share) < count_max and size < SHARE_SIZE_MAX:
            log = self._ready.popleft()
            waiting = self._waiting[log]
            write = self._in_progress[log] = waiting.popleft()
            if not waiting:
                del self._waiting[log]
            write.begin()
            share.append(write)
            size += write.size
        return share

    def _store(self, share: Sequence[DeferredWrite], stored: Stored) -> None:
        """Store a share, up to a write that fails: that may take the directory offline. In a thread."""
        for write in share:
            started_s = self._undelayed_s()
            error = self._stored_with_retries(write)
            stored[write] = error, self._undelayed_s() - started_s
            if error is not None:
                return

    def _stored_with_retries(self, write: DeferredWrite) -> Exception | None:
        """Store a write, repeatedly if it meets a shortage; return why it failed."""
        error: Exception | None = None
        for _ in range(SHORTAGE_TRIES_MAX):
            if write.log.is_offline:
                break
            try:
                write.store()
            except ShortageError as shortage:
                error = shortage
                self._on_shortage(shortage)
                self._sleep(SHORTAGE_RETRY_S)
            except Exception as failure:
                return failure
            else:
                return None
        return error

    def _end(self, share: Sequence[DeferredWrite], stored: Stored) -> None:
        """Finish the writes of a share, call the actions that waited for its end, and hand over the next one."""
        self._free_count += 1
        self._is_completing = True
        for write, (error, elapsed_s) in stored.items():
            self.pending_size -= write.size
            self._count_write(elapsed_s)
            try:
                write.finish(error)
            except Exception:
                _logger.exception("a write to log directory %s could not be completed", self._path)
        for write in share:
            del self._in_progress[write.log]
            if write not in stored:
                self._waiting.setdefault(write.log, deque()).appendleft(write)
            if write.log in self._waiting:
                self._ready.append(write.log)
        _call([action for write in share for action in self._between.pop(write.log, ())])
        if self.has_room:
            _call(self._when_room)
        self._is_completing = False
        self._hand_over()
        if not self.is_idle:
            return
        if self._fast_count >= FAST_WRITES_MIN and self._now_s() - self._last_slow_s >= self._fast_after_s:
            self._become_fast()
            self.fast_count += 1
            _logger.info("log directory %s is fast again: its separate threads no longer write to it", self._path)
        _call(self._when_idle)

    def _become_fast(self) -> None:
        with self._noting:
            self.is_slow = False
            self._slow_paths.discard(self._path)

    def _count_write(self, elapsed_s: float) -> None:
        if elapsed_s > SLOW_WRITE_S:
            self._last_slow_s = self._now_s()
            self._fast_count = 0
        else:
            self._fast_count += 1


def _call(actions: list[Action]) -> None:
    """Call each action once. An action that is added by one of them is called the next time."""
    due = list(actions)
    actions.clear()
    for action in due:
        try:
            action()
        except Exception:
            _logger.exception("an action that waited for a write has failed")
