"""Performs what the machine of a group decides: append, respond, wake it up in time.

Owns: the clock and the timer of the machines, and the order of their effects. Must not know: which groups exist
(`broker.groups.hosted_groups`), membership rules (`broker.groups.machine.group`), or committed offsets.

Invariant: an append is issued in the same step as the decision, so that the log has the order of the decisions. Its
result goes back into the machine as an event of its own, which may find the group changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from base.clock import Clock
from broker.coordination.coordinator_log import CoordinatorLog, append_now
from broker.groups.batches import GROUP_APPEND_ERRORS, group_batch, tombstone_batches
from broker.groups.machine.events import AssignmentStored, Effect, Moment, RespondToJoin, RespondToSync, StoreGroup
from broker.groups.machine.member import NEVER
from broker.groups.partition import CoordinatedGroup, OffsetsPartition
from broker.groups.settings import CoordinatorSettings
from broker.loop.promise import Promise
from broker.loop.timer import Timer
from protocol.errors import ErrorCode

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class GroupRunner:
    """Runs the machines of all groups of one broker."""

    def __init__(self, settings: CoordinatorSettings, log: CoordinatorLog, timer: Timer, clock: Clock) -> None:
        self._settings = settings
        self._log = log
        self._timer = timer
        self._clock = clock
        self.completed_rebalance_count = 0

    def moment(self) -> Moment:
        """Return the time on both clocks."""
        return _new_tuple(Moment, (self._clock.monotonic_ms(), self._clock.now_ms()))

    def settle(self, group: CoordinatedGroup, reason: str) -> None:
        """Perform the effects of the machine's last event. `reason` is for the log."""
        machine = group.machine
        if machine.state is not group.last_state:
            logger.info(
                "Group %s: %s to %s, generation %d, %d members (%s)",
                machine.group_id, group.last_state.value, machine.state.value, machine.generation_id,
                len(machine.members), reason,
            )  # fmt: skip
            group.last_state = machine.state
        for effect in machine.take_effects():
            self._perform(group, effect)
        self.arm(group)

    def arm(self, group: CoordinatedGroup) -> None:
        """Schedule `advance` for the time at which the machine has to be woken up.

        A timer that has become too early is kept: `advance` finds nothing due.
        """
        wake_at_ms = group.machine.wake_at_ms
        if wake_at_ms < group.armed_ms:
            group.disarm()
            group.armed_ms = wake_at_ms
            group.timer = self._timer.schedule(wake_at_ms, lambda: self._wake(group))

    def append_tombstones(self, partition: OffsetsPartition, keys: Sequence[bytes]) -> None:
        """Remove records from the log by their keys. No request waits for it.

        What is removed here and still in the log, because the append failed, expires once more after the next load.
        """

        def finish(error: ErrorCode) -> None:
            if error:
                logger.error("Partition %d: tombstones were not stored: %s", partition.number, error.name)

        for batch in tombstone_batches(keys, self._clock.now_ms(), self._settings.form.compression):
            self._append(partition, batch, finish)

    def _perform(self, group: CoordinatedGroup, effect: Effect) -> None:
        if isinstance(effect, RespondToJoin | RespondToSync):
            assert isinstance(effect.ticket, Promise)
            effect.ticket.set_result(effect.result)  # without effect if its client has disconnected
        else:
            self._store(group, effect)

    def _store(self, group: CoordinatedGroup, effect: StoreGroup) -> None:
        machine = group.machine
        batch = group_batch(machine.group_id, effect.value, self._clock.now_ms(), self._settings.form)

        def finish(error: ErrorCode) -> None:
            if error:
                logger.warning("Group %s: generation %d was not stored: %s", machine.group_id,
                               effect.value.generation_id, error.name)  # fmt: skip
            machine.stored(effect.outcome, GROUP_APPEND_ERRORS.get(error, error), self.moment())
            self.settle(group, f"generation stored: {error.name}")

        if isinstance(effect.outcome, AssignmentStored):
            self.completed_rebalance_count += 1
        group.partition.take_order()
        self._append(group.partition, batch, finish)

    def _wake(self, group: CoordinatedGroup) -> None:
        group.armed_ms = NEVER
        group.timer = None
        group.machine.advance(self.moment())
        self.settle(group, "time passed")

    def _append(self, partition: OffsetsPartition, batch: bytes, finish: Callable[[ErrorCode], None]) -> None:
        append_now(self._log, partition.number, batch, self._settings.commit_timeout_ms, finish)
