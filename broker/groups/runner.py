"""Performs what the machine of a group decides: append, respond, wake it up in time.

Owns: the clock and the timer of the machines, and the order of their effects. Must not know: which groups exist
(`broker.groups.hosted_groups`), membership rules (`broker.groups.machine.group`), or committed offsets.

Invariant: an append is issued in the same step as the decision, so that the log has the order of the decisions. Its
result goes back into the machine as an event of its own, which may find the group changed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from base.clock import Clock
from broker.coordination.coordinator_log import CoordinatorLog, append_now, when_appended
from broker.groups.batches import (
    CHANGE_APPEND_ERRORS,
    GROUP_APPEND_ERRORS,
    change_batches,
    conversion_batch,
    group_batch,
    tombstone_batches,
)
from broker.groups.machine.events import (
    AssignmentStored,
    Effect,
    Moment,
    Respond,
    RespondToJoin,
    RespondToSync,
    StoreChanges,
    StoreGroup,
)
from broker.groups.machine.group import Group
from broker.groups.machine.member import NEVER
from broker.groups.machine.records import GroupMetadataValue
from broker.groups.machine.states import GroupState
from broker.groups.partition import CoordinatedGroup, OffsetsPartition
from broker.groups.settings import CoordinatorSettings
from broker.loop.promise import Promise
from broker.loop.timer import Timer
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.groups.machine.consumer.membership import Membership

logger = logging.getLogger("kafka.coordinator.group.GroupCoordinator")

_new_tuple = tuple.__new__  # of a named tuple, at half the price of calling its class


class GroupRunner:
    """Runs the machines of all groups of one broker."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        log: CoordinatorLog,
        timer: Timer,
        clock: Clock,
        follow_up: Callable[[CoordinatedGroup], None],
    ) -> None:
        """`follow_up` is called after each event of a group of the consumer protocol that could be stored."""
        self._follow_up = follow_up
        self._settings = settings
        self._log = log
        self._timer = timer
        self._clock = clock
        self.completed_rebalance_count = 0

    def moment(self) -> Moment:
        """Return the time on both clocks."""
        return _new_tuple(Moment, (self._clock.monotonic_ms(), self._clock.now_ms()))

    def settle(self, group: CoordinatedGroup, reason: str) -> ErrorCode:
        """Perform the effects of the machine's last event. `reason` is for the log.

        Returns the error with which changes of a group of the consumer protocol were refused by the log, and undone.
        """
        machine = group.machine
        if not isinstance(machine, Group):
            return self._settle_changes(group, machine, reason)
        if machine.state is not group.last_logged:
            before = group.last_logged
            logger.info(
                "Group %s: %s to %s, generation %d, %d members (%s)",
                machine.group_id, before.value if isinstance(before, GroupState) else "new", machine.state.value,
                machine.generation_id, len(machine.members), reason,
            )  # fmt: skip
            group.last_logged = machine.state
        for effect in machine.take_effects():
            self._perform(group, machine, effect)
        self.arm(group)
        return ErrorCode.NONE

    def replace(self, group: CoordinatedGroup, machine: Group) -> None:
        """Continue as a classic group. The requests that wait in the present group fail."""
        before = group.machine
        group.replace(machine)
        self.give_way(before)

    def give_way(self, machine: Group | Membership) -> None:
        """Fail the requests that wait in a group that another one has replaced."""
        machine.give_way()
        if isinstance(machine, Group):
            for each in machine.take_effects():
                if isinstance(each, RespondToJoin | RespondToSync):
                    _resolve(each)
        elif (effect := machine.take_effects()) is not None:
            respond(effect.responses, ErrorCode.NONE)

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
        """Remove records from the log by their keys, also while too few replicas are in sync. No request waits for it.

        What is removed here and still in the log, because the append failed, expires once more after the next load.
        """

        def finish(error: ErrorCode) -> None:
            if error:
                logger.error("Partition %d: tombstones were not stored: %s", partition.number, error.name)

        for batch in tombstone_batches(keys, self._clock.now_ms(), self._settings.form.compression):
            self._append(partition, batch, finish, needs_isr=False)

    def _perform(self, group: CoordinatedGroup, machine: Group, effect: Effect) -> None:
        if isinstance(effect, RespondToJoin | RespondToSync):
            _resolve(effect)
        else:
            self._store(group, machine, effect)

    def _store(self, group: CoordinatedGroup, machine: Group, effect: StoreGroup) -> None:
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

    def _settle_changes(self, group: CoordinatedGroup, machine: Membership, reason: str) -> ErrorCode:
        """Append the changes of a group, and respond when all in-sync replicas have them and those before."""
        if machine.epoch != group.last_logged:
            logger.info("Group %s: epoch %d, %d members (%s)", machine.group_id, machine.epoch, len(machine.members),
                        reason)  # fmt: skip
            group.last_logged = machine.epoch
        effect = machine.take_effects()
        if effect is None:
            self.arm(group)
            self._follow_up(group)
            return ErrorCode.NONE
        error = self._append_changes(group, effect)
        machine.stored(error, self.moment())
        if error and (rest := machine.take_effects()) is not None:
            respond(rest.responses, ErrorCode.NONE)
        self.arm(group)
        if not error:
            self._follow_up(group)
        return error

    def store_conversion(self, group: CoordinatedGroup, value: GroupMetadataValue) -> ErrorCode:
        """Store a group of the consumer protocol as a classic one; return the error if the log refuses that."""
        machine, now_ms = group.machine, self._clock.now_ms()
        batch = conversion_batch(machine.record_keys(), machine.group_id, value, now_ms, self._settings.form)
        try:
            awaited = self._log.append(group.partition.number, bytearray(batch), self._settings.commit_timeout_ms)
        except KafkaError as error:
            return error.code
        if awaited is not None:
            when_appended(awaited, lambda _: None)  # the group goes on: what follows is appended after it
        return ErrorCode.NONE

    def _append_changes(self, group: CoordinatedGroup, effect: StoreChanges) -> ErrorCode:
        waiting: list[Respond] = [*effect.responses]
        awaited: Awaitable[None] | None = None
        compression = self._settings.form.compression
        for batch in change_batches(effect.removed, effect.changes, self._clock.now_ms(), compression):
            group.partition.take_order()
            try:
                awaited = self._log.append(group.partition.number, bytearray(batch), self._settings.commit_timeout_ms)
            except KafkaError as error:
                code = CHANGE_APPEND_ERRORS.get(error.code, error.code)
                logger.warning("Group %s: changes were not stored: %s", group.machine.group_id, error.code.name)
                respond(waiting, code)
                return code
        if awaited is not None:
            group.unstored.append(waiting)

            def finish(error: ErrorCode) -> None:
                group.unstored.remove(waiting)
                respond(waiting, CHANGE_APPEND_ERRORS.get(error, error))

            when_appended(awaited, finish)
        elif group.unstored:
            group.unstored[-1].extend(waiting)
        else:
            respond(waiting, ErrorCode.NONE)
        return ErrorCode.NONE

    def _wake(self, group: CoordinatedGroup) -> None:
        group.armed_ms = NEVER
        group.timer = None
        group.machine.advance(self.moment())
        self.settle(group, "time passed")

    def _append(
        self,
        partition: OffsetsPartition,
        batch: bytes,
        finish: Callable[[ErrorCode], None],
        *,
        needs_isr: bool = True,
    ) -> None:
        timeout_ms = self._settings.commit_timeout_ms
        append_now(self._log, partition.number, batch, timeout_ms, finish, needs_isr=needs_isr)


def _resolve(effect: RespondToJoin | RespondToSync) -> None:
    assert isinstance(effect.ticket, Promise)
    effect.ticket.set_result(effect.result)  # without effect if its client has disconnected


def respond(responses: Sequence[Respond], error: ErrorCode) -> None:
    """Resolve the tickets with their results, or fail them all with an error."""
    for ticket, result in responses:
        assert isinstance(ticket, Promise)
        if error:
            ticket.set_exception(KafkaError(error))
        elif isinstance(result, KafkaError):
            ticket.set_exception(result)
        else:
            ticket.set_result(result)
