"""How a log directory is written: by the thread that owns the logs, or, while the disk is slow, by one of its own.

Owns when a directory is slow, the order of the writes that wait, and what may not happen to a log while one of its
writes is under way. Must not know what a write contains, nor event loops: `start` is the port to the thread.

A write to the page cache takes microseconds. Where it takes milliseconds (the kernel holds back who dirties too many
pages, or the disk is remote and struggles) each append would stop the event loop, and with it the clients of all other
directories. So each write is timed. Once slow ones add up, the directory's appends are planned as always (checked,
numbered, taken into the state of their producers), and then wait here for the thread. Nothing of an append is readable
or acknowledged before it is written; so a failure, which takes the directory offline, has nothing to undo.

Threads: everything but `note_slow_write` and `DeferredWrite.store` is called by the thread that owns the logs.

Invariants:
- Writes reach the files in the order in which they were submitted, one at a time for the whole directory.
- A write that has begun is the only one that changes the files of its log; `run_between` waits for its end.
- A directory is written directly again only when nothing waits.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from storage.files import ShortageError

SLOW_WRITE_S: Final = 0.01
"""A write that takes longer is slow."""
SLOW_SECOND_S: Final = 0.05
"""A directory is slow once so much of a second went into slow writes."""
WINDOW_S: Final = 1.0
FAST_WRITES_MIN: Final = 20
FAST_SECONDS_MIN: Final = 5.0
"""It is fast again after so many writes in a row and so much time without a slow one."""
PENDING_SIZE_MAX: Final = 64 << 20
"""Bytes that may wait; above, `has_room` is false. Internal appends, which are small, are taken all the same."""
SHORTAGE_RETRY_S: Final = 0.1
SHORTAGE_TRIES_MAX: Final = 600
"""Then the write has failed, and its log is out of service."""

_logger = logging.getLogger(__name__)

Action = Callable[[], object]
Start = Callable[[Action, Action], None]
"""`start(work, done)` runs `work` in the directory's thread and then `done` in the one that owns the logs."""


class WritableLog(Protocol):
    """A log whose writes may wait here."""

    is_offline: bool


class DeferredWrite(Protocol):
    """One append that is planned."""

    @property
    def log(self) -> WritableLog: ...

    @property
    def size(self) -> int:
        """In bytes."""

    def begin(self) -> None:
        """From here on it does not change."""

    def store(self) -> None:
        """Write it; in the directory's thread. Raises OSError; after a ShortageError it can be called again."""

    def finish(self, error: Exception | None) -> None:
        """Make it readable, or report why it is not."""


class DirectoryWriter:
    """See the module. `is_slow` is for reading; without `start` it never becomes true."""

    def __init__(
        self,
        path: str,
        *,
        now_s: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        on_shortage: Callable[[ShortageError], None] = lambda error: None,
    ) -> None:
        self._path = path
        self._sleep = sleep
        self._on_shortage = on_shortage
        self._start: Start | None = None
        self._waiting: deque[DeferredWrite] = deque()
        self._under_way: DeferredWrite | None = None
        self._is_busy = False  # from the begin of a write until all that depends on its end has been called
        self._between: deque[Action] = deque()
        self._when_room: list[Action] = []
        self._when_idle: list[Action] = []
        self._slow_writes: deque[tuple[float, float]] = deque()  # (end, seconds) of the last WINDOW_S
        self._noting = threading.Lock()
        self._last_slow_s = 0.0
        self._fast_count = 0
        self._elapsed_s = 0.0
        self._error: Exception | None = None
        self.now_s = now_s
        self.is_slow = False
        self.pending_size = 0
        self.slow_count = 0
        """How often the directory has become slow."""
        self.fast_count = 0
        """How often it has become fast again."""

    def use(self, start: Start) -> None:
        """From now on the directory may be written by another thread."""
        self._start = start

    def stop_using(self) -> None:
        """From now on the directory is written directly, however slow it is. Only when nothing waits."""
        assert self.is_idle
        self._start = None
        self.is_slow = False

    @property
    def has_room(self) -> bool:
        """Whether producers may append. Internal appends may always."""
        return not self.pending_size or self.pending_size < PENDING_SIZE_MAX

    def when_room(self, action: Action) -> None:
        """Call `action` once, when there may be room that there was not."""
        self._when_room.append(action)

    def announce_room(self) -> None:
        """Some log has room again, for a reason of its own."""
        _call(self._when_room)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._is_busy and not self._waiting

    def when_idle(self, action: Action) -> None:
        """Call `action` once, when nothing waits; at once where nothing does."""
        if self.is_idle:
            action()
        else:
            self._when_idle.append(action)

    def is_writing(self, log: WritableLog) -> bool:
        """Whether a write of this log is under way, which must be left alone with its files."""
        return self._under_way is not None and self._under_way.log is log

    def run_between(self, log: WritableLog, action: Action) -> None:
        """Call `action`, which changes the files of `log`, while no write of that log is under way: now, or soon."""
        if self.is_writing(log):
            self._between.append(action)
        else:
            action()

    def note_slow_write(self, elapsed_s: float) -> None:
        """A direct write took longer than SLOW_WRITE_S. Any thread."""
        with self._noting:
            now_s = self.now_s()
            writes = self._slow_writes
            writes.append((now_s, elapsed_s))
            while writes[0][0] < now_s - WINDOW_S:
                writes.popleft()
            count, total_s = len(writes), sum(each for _, each in writes)
            if self._start is None or self.is_slow or total_s < SLOW_SECOND_S:
                return
            writes.clear()
            self.slow_count += 1
            self._last_slow_s = now_s
            self._fast_count = 0
            self.is_slow = True
        _logger.warning(
            "log directory %s has become slow: %d writes took %d ms within a second; "
            "a thread of its own writes it until it is fast again",
            self._path,
            count,
            total_s * 1000,
        )

    def submit(self, write: DeferredWrite) -> None:
        """Have `write` stored after all that were submitted before. Only while the directory is slow."""
        assert self.is_slow
        self._waiting.append(write)
        self.pending_size += write.size
        if not self._is_busy:
            self._store_next()

    def grew(self, size: int) -> None:
        """A write that waits has become larger."""
        self.pending_size += size

    def _store_next(self) -> None:
        assert self._start is not None
        self._is_busy = True
        self._under_way = self._waiting.popleft()
        self._under_way.begin()
        self._start(self._store, self._done)

    def _store(self) -> None:
        """In the directory's thread."""
        write = self._under_way
        assert write is not None
        self._error = None
        started_s = self.now_s()
        for _ in range(SHORTAGE_TRIES_MAX):
            if write.log.is_offline:
                break
            try:
                write.store()
            except ShortageError as error:
                self._error = error
                self._on_shortage(error)
                self._sleep(SHORTAGE_RETRY_S)
            except Exception as error:
                self._error = error
                break
            else:
                self._error = None
                break
        self._elapsed_s = self.now_s() - started_s

    def _done(self) -> None:
        write = self._under_way
        assert write is not None
        self.pending_size -= write.size
        self._judge(self._elapsed_s)
        try:
            write.finish(self._error)
        except Exception:
            _logger.exception("a write to log directory %s could not be finished", self._path)
        self._under_way = None
        _call(self._between)
        if self.has_room:
            _call(self._when_room)
        if self._waiting:
            self._store_next()
            return
        self._is_busy = False
        if self._fast_count >= FAST_WRITES_MIN and self.now_s() - self._last_slow_s >= FAST_SECONDS_MIN:
            self.is_slow = False
            self.fast_count += 1
            _logger.info("log directory %s is fast again and written directly", self._path)
        _call(self._when_idle)

    def _judge(self, elapsed_s: float) -> None:
        if elapsed_s > SLOW_WRITE_S:
            self._last_slow_s = self.now_s()
            self._fast_count = 0
        else:
            self._fast_count += 1


def _call(actions: deque[Action] | list[Action]) -> None:
    """Each once. One that is added meanwhile is called the next time."""
    due = list(actions)
    actions.clear()
    for action in due:
        try:
            action()
        except Exception:
            _logger.exception("what waited for a write has failed")
