"""The purgatory: operations that wait for data, replicas or a deadline, whichever comes first.

Owns: parked operations, the keys they are watched under, and the promise that each completes exactly once. Must not
know: what an operation means, sockets, or clocks (deadlines go to the `Timer`).

The verbs are Kafka's (try, force once, expire, watch keys). Everything runs on one event loop, so an operation is
tried, watched and tried again without another event in between; what remains of Kafka's dance is that `try_complete`
may itself complete others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from broker.loop.timer import Timer, TimerHandle

Postpone = Callable[[Callable[[], None]], object]

TRIED_TOGETHER_MAX = 64

logger = logging.getLogger("kafka.server.DelayedOperationPurgatory")


class DelayedOperation:
    """One parked operation. Subclasses say when it is satisfied and what completing means.

    One that waits under many keys overrides `is_satisfied_after` and keeps what it found under each, or else every
    event of one key would cost a look at all of them.
    """

    __slots__ = ("_timer_handle", "is_completed")

    def __init__(self) -> None:
        self.is_completed = False
        self._timer_handle: TimerHandle | None = None

    def is_satisfied(self) -> bool:
        """Whether the operation can complete now, whatever has happened. Called on parking."""
        raise NotImplementedError

    def is_satisfied_after(self, key: Hashable) -> bool:
        """Whether the operation can complete now. Called at every event of a watched key; the others had none."""
        return self.is_satisfied()

    def on_complete(self) -> None:
        """The effect; called exactly once, whether satisfied, forced or expired."""
        raise NotImplementedError

    def try_complete(self) -> bool:
        """Complete if satisfied; True when this very call completed it."""
        return not self.is_completed and self.is_satisfied() and self.force_complete()

    def try_complete_after(self, key: Hashable) -> bool:
        """Complete if an event of `key` satisfies it; True when this very call completed it."""
        return not self.is_completed and self.is_satisfied_after(key) and self.force_complete()

    def force_complete(self) -> bool:
        """Complete now unless already completed; True when this very call completed it."""
        if self.is_completed:
            return False
        self.is_completed = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None
        self.on_complete()
        return True

    def abandon(self) -> None:
        """Nobody waits any more (the client is gone): never complete, release the deadline."""
        self.is_completed = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None


class Purgatory:
    """Watches operations under keys; an event on a key tries all operations of that key."""

    def __init__(self, name: str, timer: Timer, purge_interval: int = 1000, postpone: Postpone | None = None) -> None:
        """`purge_interval`: completed operations that are still listed are swept after so many completions, or as many
        as there are operations that wait.

        `postpone(callback)` calls back soon, when other work had its turn. With it, what thousands wait for is told to
        them in parts, so that they do not all go on in the same moment.
        """
        self.name = name
        self._timer = timer
        self._purge_interval = purge_interval
        self._postpone = postpone
        self.watched: dict[Hashable, list[DelayedOperation]] = {}  # for others a quick look whether anybody waits
        self._completed_since_purge = 0
        self.delayed_count = 0
        self.expired_count = 0

    @property
    def watched_count(self) -> int:
        """Watch entries, completed but unswept ones included (Kafka's PurgatorySize)."""
        return sum(map(len, self.watched.values()))

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
        self.delayed_count += 1
        operation._timer_handle = self._timer.schedule(deadline_ms, partial(self._expire, operation))
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Something happened to `key`: try its operations, return how many completed now."""
        watchers = self.watched.pop(key, None)
        if watchers is None:
            return 0
        if self._postpone is not None and len(watchers) > TRIED_TOGETHER_MAX:
            rest = deque(watchers[TRIED_TOGETHER_MAX:])
            del watchers[TRIED_TOGETHER_MAX:]
            self._try_later(key, rest)
        return self._try(key, watchers)

    def _try_later(self, key: Hashable, rest: deque[DelayedOperation]) -> None:
        """Try `rest` part by part. What happens to `key` meanwhile, each of them sees when it is tried."""

        def try_part() -> None:
            part = [rest.popleft() for _ in range(min(len(rest), TRIED_TOGETHER_MAX))]
            if rest:
                self._try_later(key, rest)
            self._try(key, part)

        assert self._postpone is not None
        self._postpone(try_part)

    def _try(self, key: Hashable, watchers: list[DelayedOperation]) -> int:
        """Try operations that are not listed under `key` now, and list those that go on waiting."""
        completed = 0
        waiting = []
        for operation in watchers:
            if _tried(operation, key):
                completed += 1
            elif not operation.is_completed:
                waiting.append(operation)
        if waiting:
            # Completing an operation may have parked others under this key meanwhile.
            self.watched.setdefault(key, []).extend(waiting)
        self._finished(completed)
        return completed

    def force_complete_all(self, key: Hashable) -> int:
        """The subject of `key` changed under the waiters (leader lost, partition gone): complete them with what is."""
        completed = sum(_forced(operation) for operation in self.watched.pop(key, ()))
        self._finished(completed)
        return completed

    def try_one(self, operation: DelayedOperation, key: Hashable) -> bool:
        """Something happened to `key`, of which this operation learns by other ways than a watch; True if it completed
        now."""
        is_completed = not operation.is_completed and _tried(operation, key)
        self._finished(is_completed)
        return is_completed

    def force_one(self, operation: DelayedOperation) -> bool:
        """As `try_one`, where nothing is left to wait for."""
        is_completed = not operation.is_completed and _forced(operation)
        self._finished(is_completed)
        return is_completed

    def abandon(self, operation: DelayedOperation) -> None:
        """Forget an operation whose client is gone; counts as finished, completes nothing."""
        if not operation.is_completed:
            operation.abandon()
            self._finished(1)

    def _expire(self, operation: DelayedOperation) -> None:
        if _forced(operation):
            self.expired_count += 1
            self._finished(1)

    def _finished(self, count: int) -> None:
        self.delayed_count -= count
        self._completed_since_purge += count
        # While many wait, to look at them all costs as much as many completions.
        if self._completed_since_purge >= max(self._purge_interval, self.delayed_count):
            self._completed_since_purge = 0
            self._purge()

    def _purge(self) -> None:
        for key, watchers in list(self.watched.items()):
            watchers[:] = [operation for operation in watchers if not operation.is_completed]
            if not watchers:
                del self.watched[key]


def _tried(operation: DelayedOperation, key: Hashable) -> bool:
    """Try `operation` after an event of `key`.

    One that fails is a bug of its own, and neither the others' nor of who caused the event.
    """
    try:
        return operation.try_complete_after(key)
    except Exception:
        logger.exception("%s failed unexpectedly; it is completed with what there is", type(operation).__name__)
    return operation.is_completed or _forced(operation)


def _forced(operation: DelayedOperation) -> bool:
    """Complete `operation` if it is not completed; one that fails at that is done with all the same."""
    try:
        return operation.force_complete()
    except Exception:
        logger.exception("%s could not be completed", type(operation).__name__)
        return True
