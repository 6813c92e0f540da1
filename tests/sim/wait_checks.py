"""Watches what waits at the brokers for an event: a deadline may end a wait only if its event has not come.

Owns when a wait is judged, and what ends the wait of a fetch, derived from the request and the partitions alone. So a
broker that does not notice an event is noticed, although its clients receive all that they ask for, only later. Must
not know clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from broker.loop.promise import Promise
from broker.loop.purgatory import DelayedOperation, Purgatory
from broker.replica.delayed_fetch import DelayedFetch
from broker.replica.fetch_service import Fetch
from tests.sim.cluster import Machine
from tests.sim.history import History
from tests.sim.world import ProcessLoop

WOKEN: Final = "what waits ends with its event, not with its deadline"
GRACE_S: Final = 0.2
"""How long an operation may wait after its event: a broker wakes many of them in several turns."""


class WaitChecks:
    """Judges each operation whose deadline has passed at a broker.

    An operation that could have ended earlier gets a little more time: its event may just have come.
    """

    def __init__(self, history: History, note: Callable[[str, str], None]) -> None:
        self._history = history
        self._note = note

    def watch(self, machine: Machine) -> None:
        """Judge the operations of a broker that has started."""
        assert machine.process is not None
        manager: Any = machine.process.server._services.replica_manager  # type: ignore[union-attr]
        for purgatory in manager.purgatories:
            purgatory._expire = partial(self._expire, machine.host, machine.process.loop, manager, purgatory)

    def _expire(
        self, host: str, loop: ProcessLoop, manager: Any, purgatory: Purgatory, operation: DelayedOperation
    ) -> None:
        if operation.is_completed:
            return
        self._history.counts[f"{purgatory.name}: waits that ended with their deadline"] += 1
        if missed_event(operation, manager) is None:
            Purgatory._expire(purgatory, operation)
            return

        def expire() -> None:
            missed = None if operation.is_completed else missed_event(operation, manager)
            if missed is not None:
                self._note(WOKEN, f"{host}: {purgatory.name} was not woken, although {missed}")
            Purgatory._expire(purgatory, operation)

        loop.call_later(GRACE_S, expire)


def missed_event(operation: DelayedOperation, manager: Any) -> str | None:
    """Return why an operation that still waits could have ended, None if it has to wait."""
    if isinstance(operation, DelayedFetch):
        return next(_events_of_fetch(operation, manager), None)
    return "all that it waits for is decided" if operation.is_satisfied() else None


def _events_of_fetch(operation: DelayedFetch, manager: Any) -> Iterator[str]:
    """Yield what a response could contain. All clients of the simulator and all followers want one byte at least."""
    fetch = _fetch_of(operation)
    if fetch is None:
        return
    session = fetch._wanted.session
    if session is not None and session.is_closed:
        return  # by its client, on another connection; it no longer waits on this one
    for wanted in list((fetch._wanted if session is None else session).partitions.values()):
        name = f"{wanted.topic}-{wanted.partition}"
        partition = manager.find(wanted.topic, wanted.partition)
        if partition is None:
            yield f"{name} is not hosted any more"
            continue
        if wanted.topic_id.int and partition.topic_id != wanted.topic_id:
            yield f"{name} is another topic than {wanted.topic_id}"
        log = partition.log
        is_served = partition.is_leader or (fetch._limits.reads_followers and partition.is_follower)
        if not is_served or wanted.current_leader_epoch not in (-1, partition.leader_epoch):
            yield f"{name} has another leader or epoch than {wanted.current_leader_epoch}"
        if log.is_offline:
            yield f"the log of {name} is offline"
        if wanted.fetch_offset < log.log_start_offset:
            yield f"{name} begins at {log.log_start_offset}, behind {wanted.fetch_offset}"
        if fetch._is_follower:
            bound, what = log.log_end_offset, "log end"
            if _was_throttled(operation, partition, fetch._limits.replica_id):
                bound = wanted.fetch_offset
            if session is not None and log.high_watermark > wanted.sent_high_watermark:
                yield f"the high watermark of {name} is {log.high_watermark}, above {wanted.sent_high_watermark}"
        elif fetch._limits.read_committed:
            bound, what = log.last_stable_offset, "last stable offset"
        else:
            bound, what = log.high_watermark, "high watermark"
        if wanted.fetch_offset < bound:
            yield f"the {what} of {name} is {bound}, above {wanted.fetch_offset}"


def _was_throttled(operation: DelayedFetch, partition: Any, replica_id: int) -> bool:
    """Return whether there was a rate for followers when the fetch began to wait. In sync, a follower has none.

    Kafka, too, does not wake what waits when a rate is raised: the next fetch will get the records.
    """
    awaited = operation._partitions if operation._by_key is None else operation._by_key.values()
    has_rate = any(it.partition is partition and it.withholds is not None for it in awaited)
    return has_rate and replica_id not in partition.leadership.isr


def _fetch_of(operation: DelayedFetch) -> Any:
    """Return the fetch whose coroutine waits for an operation, None if it has something to compute before."""
    on_ready: Any = operation._on_ready
    (promise,) = (cell.cell_contents for cell in on_ready.__closure__ if type(cell.cell_contents) is Promise)
    if promise._callback is None:
        return None
    coroutine = promise._callback.__self__._coroutine
    while not isinstance(coroutine.cr_frame.f_locals.get("self"), Fetch):
        coroutine = coroutine.cr_await
    return coroutine.cr_frame.f_locals["self"]
