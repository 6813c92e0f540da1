"""The purgatory: operations that wait for data, replicas or a deadline, whichever comes first.

Owns: parked operations, the keys they are watched under, and the promise that each completes at most once: not at all
if its client leaves. Must not know: what an operation means, sockets, or clocks (deadlines go to the `Timer`).

The verbs are Kafka's (try, force once, expire, watch keys). All code runs on one event loop, so no event can happen
between the first try of an operation and its watch. One complication of Kafka's remains: `try_complete` may complete
other operations.

Invariants, which `check` tests:
* No key is listed without an operation.
* An operation has a deadline until it is completed, and none afterwards.
* `delayed_count` is at least the number of listed operations that wait.
* Completed operations do not stay listed longer than `purge_interval` or the number of waiting ones allows.
* `watched_count` is that of the entries.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from broker.loop.timer import Timer, TimerHandle

Postpone = Callable[[Callable[[], None]], object]

TRIED_TOGETHER_MAX = 64

logger = logging.getLogger("kafka.server.DelayedOperationPurgatory")


ENTRIES_KEPT = 10_000
"""Entries that may be of completed operations: about 100 KB."""


class DelayedOperation:
    """One parked operation. Subclasses define when it is satisfied and what completion does.

    An operation with many keys overrides `is_satisfied_after` and keeps its state per key. Otherwise every event of one
    key would check all of them.
    """

    __slots__ = ("_timer_handle", "is_completed")

    def __init__(self) -> None:
        self.is_completed = False
        self._timer_handle: TimerHandle | None = None

    def is_satisfied(self) -> bool:
        """Return whether the operation can complete now, by checking all its keys. Called on parking."""
        raise NotImplementedError

    def is_satisfied_after(self, key: Hashable) -> bool:
        """Return whether the operation can complete after an event of `key`. Its other keys had no event."""
        return self.is_satisfied()

    def on_complete(self) -> None:
        """Perform the effect. Called at most once, whether the operation is satisfied, forced or expired."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop what refers to the request. Called once, after the operation is completed or abandoned.

        The purgatory may list the operation under its other keys until their next event, which may never come.
        """
        raise NotImplementedError

    def expired_subjects(self) -> Iterable[Hashable]:
        """Return the subjects under which metrics count the expiration. Called after `release`."""
        return ("",)

    def try_complete(self) -> bool:
        """Complete if satisfied; return whether this call completed the operation."""
        return not self.is_completed and self.is_satisfied() and self.force_complete()

    def try_complete_after(self, key: Hashable) -> bool:
        """Complete if an event of `key` satisfies it; return whether this call completed the operation."""
        return not self.is_completed and self.is_satisfied_after(key) and self.force_complete()

    def force_complete(self) -> bool:
        """Complete now unless already completed; return whether this call completed the operation."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None
        try:
            self.on_complete()
        finally:
            self.release()
        return True

    def abandon(self) -> None:
        """Cancel the deadline and never complete: the client is disconnected."""
        self.is_completed = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None
        self.release()


class Purgatory:
    """Watches operations under keys; an event on a key tries all operations of that key."""

    def __init__(self, name: str, timer: Timer, purge_interval: int = 1000, postpone: Postpone | None = None) -> None:
        """Completed operations that are still listed are purged after `purge_interval` completions, or after as many
        completions as operations wait, whichever is more; and once there are `ENTRIES_KEPT` more entries than the last
        purge has left, and twice as many: an operation may have thousands.

        `postpone(callback)` calls `callback` in a later turn of the event loop. If it is given, an event for which
        thousands of operations wait tries them in parts, so that they do not all complete in one turn.
        """
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._postpone = postpone
        self.watched: dict[Hashable, list[DelayedOperation]] = {}  # callers test it before they call a method
        self._completed_since_purge = 0
        self._entry_count = 0
        self._entries_max = ENTRIES_KEPT
        """The number of entries from which on they are purged at the next completion."""
        self.delayed_count = 0
        self.expired_counts: Counter[Hashable] = Counter()
        """Operations whose deadline has passed, by subject (`DelayedOperation.expired_subjects`)."""

    @property
    def watched_count(self) -> int:
        """Watch entries, completed but unswept ones included (Kafka's PurgatorySize)."""
        return self._entry_count

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable], deadline_ms: int) -> bool:
        """Complete `operation` now if it is satisfied, else park it under `keys` until `deadline_ms` (monotonic)."""
        if operation.try_complete():
            return True
        for key in keys:
            watchers = self.watched.get(key)
            if watchers is None:
                self.watched[key] = [operation]
            else:
                watchers.append(operation)
            self._entry_count += 1
        self.delayed_count += 1
        operation._timer_handle = self._timer.schedule(deadline_ms, partial(self._expire, operation))
        return False

    def watch_also(self, operation: DelayedOperation, key: Hashable) -> None:
        """Watch a parked operation under one more key. Whether it is satisfied now is for `try_one`."""
        self.watched.setdefault(key, []).append(operation)
        self._entry_count += 1

    def check_and_complete(self, key: Hashable) -> int:
        """Try the operations of `key` after an event; return how many completed now."""
        watchers = self.watched.pop(key, None)
        if watchers is None:
            return 0
        self._entry_count -= len(watchers)
        if self._postpone is not None and len(watchers) > TRIED_TOGETHER_MAX:
            rest = deque(watchers[TRIED_TOGETHER_MAX:])
            del watchers[TRIED_TOGETHER_MAX:]
            self._try_later(key, rest)
        return self._try(key, watchers)

    def _try_later(self, key: Hashable, rest: deque[DelayedOperation]) -> None:
        """Try `rest` in parts, in later turns. Each operation sees the state of `key` at the time when it is tried."""

        def try_part() -> None:
            part = [rest.popleft() for _ in range(min(len(rest), TRIED_TOGETHER_MAX))]
            if rest:
                self._try_later(key, rest)
            self._try(key, part)

        assert self._postpone is not None
        self._postpone(try_part)

    def _try(self, key: Hashable, watchers: list[DelayedOperation]) -> int:
        """Try operations that are not listed under `key` now, and list those that still wait."""
        completed = 0
        waiting = []
        for operation in watchers:
            if _tried(operation, key):
                completed += 1
            elif not operation.is_completed:
                waiting.append(operation)
        if waiting:
            # Completing an operation may have parked others under this key.
            self.watched.setdefault(key, []).extend(waiting)
            self._entry_count += len(waiting)
        self._finished(completed)
        return completed

    def try_one(self, operation: DelayedOperation, key: Hashable) -> bool:
        """Try one operation after an event of `key` that it does not watch here; return whether it completed now."""
        is_completed = not operation.is_completed and _tried(operation, key)
        self._finished(is_completed)
        return is_completed

    def force_one(self, operation: DelayedOperation) -> bool:
        """Complete one operation without a check; return whether it completed now."""
        is_completed = not operation.is_completed and _forced(operation)
        self._finished(is_completed)
        return is_completed

    def abandon(self, operation: DelayedOperation) -> None:
        """Drop an operation whose client is disconnected. It counts as finished but is not completed."""
        if not operation.is_completed:
            operation.abandon()
            self._finished(1)

    def _expire(self, operation: DelayedOperation) -> None:
        if _forced(operation):
            self.expired_counts.update(operation.expired_subjects())
            self._finished(1)

    def _finished(self, count: int) -> None:
        self.delayed_count -= count
        self._completed_since_purge += count
        # A purge checks all waiting operations, so it runs after at least as many completions, or as many new entries.
        if self._completed_since_purge >= max(self._purge_interval, self.delayed_count) or (
            self._entry_count >= self._entries_max and count
        ):
            self._completed_since_purge = 0
            self._purge()

    def check(self) -> None:
        """Raise AssertionError with the invariant that does not hold between two events."""
        assert all(self.watched.values()), "No key is listed without an operation"
        operations = {operation for watchers in self.watched.values() for operation in watchers}
        for operation in operations:
            assert (operation._timer_handle is None) == operation.is_completed, (
                "An operation has a deadline until it is completed, and none afterwards"
            )
        waiting_count = sum(not operation.is_completed for operation in operations)
        assert waiting_count <= self.delayed_count, (
            "`delayed_count` is at least the number of listed operations that wait"
        )
        assert self._completed_since_purge < max(self._purge_interval, self.delayed_count), (
            "Completed operations do not stay listed longer than `purge_interval` or the number of waiting ones allows"
        )
        assert self._entry_count == sum(map(len, self.watched.values())), "`watched_count` is that of the entries"

    def _purge(self) -> None:
        for key, watchers in list(self.watched.items()):
            watchers[:] = [operation for operation in watchers if not operation.is_completed]
            if not watchers:
                del self.watched[key]
        self._entry_count = sum(map(len, self.watched.values()))
        self._entries_max = self._entry_count + max(ENTRIES_KEPT, self._entry_count)


def nothing() -> None:
    """Do nothing: in place of the callback that an operation has released."""


def _tried(operation: DelayedOperation, key: Hashable) -> bool:
    """Try `operation` after an event of `key`.

    An exception is a bug of this operation; it must affect neither other operations nor the cause of the event.
    """
    try:
        return operation.try_complete_after(key)
    except Exception:
        logger.exception("%s failed unexpectedly; it is completed with what it has", type(operation).__name__)
    return operation.is_completed or _forced(operation)


def _forced(operation: DelayedOperation) -> bool:
    """Complete `operation` unless it is completed; return whether it completed now, also if that raised."""
    try:
        return operation.force_complete()
    except Exception:
        logger.exception("%s could not be completed", type(operation).__name__)
        return True
