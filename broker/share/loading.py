"""Replay of one partition of `__share_group_state`. Pure.

Owns: the meaning of a record at its place in the log, and of records that could not be read. Must not know: how the log
is read, or what a group does with its state.

If the last state of a partition is lost, the one before it counts: records are then delivered again, and none is
skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.coordination.replay import Damage
from broker.share.machine.deliveries import StateBatch
from broker.share.machine.records import (
    Key,
    ShareKey,
    ShareSnapshotKey,
    StoredBatch,
    read_key,
    read_snapshot,
    read_update,
)
from broker.share.machine.stored_states import ShareState
from protocol.errors import Malformed
from protocol.records.batch import BatchHeader, Record


class ReplayedStates:
    """The states of a partition as of the records replayed so far."""

    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self._lost: dict[ShareKey, None] = {}

    def replay(self, batch: BatchHeader, record: Record) -> None:
        """Apply the next record of the log. Raises Malformed if it cannot be decoded."""
        if batch.is_control:
            return
        if record.key is None:
            raise Malformed(f"record {record.offset} has no key")
        key = read_key(record.key)
        if isinstance(key, ShareSnapshotKey):
            self._replay_snapshot(_place(key), record.value)
        elif key is not None and record.value is not None:
            self._replay_update(_place(key), record.value)

    def skip(self, damage: Damage) -> None:
        """See `Contents`."""
        for data in damage.keys or ():
            try:
                found = None if data is None else read_key(data)
            except Malformed:
                continue
            if found is not None:
                self._lost[_place(found)] = None

    def lost(self) -> list[str]:
        """See `Contents`."""
        return [
            f"the last state of share group {key.group_id} in partition {key.partition} of topic {key.topic_id} is "
            f"lost, records are delivered again"
            for key in self._lost
        ]

    def _replay_snapshot(self, key: ShareKey, data: bytes | None) -> None:
        if data is None:
            self.states.pop(key, None)
        else:
            value = read_snapshot(data)
            self.states[key] = ShareState(
                value.state_epoch,
                value.start_offset,
                _batches(value.state_batches),
                value.leader_epoch,
                value.snapshot_epoch,
                value.create_timestamp,
            )
        self._lost.pop(key, None)

    def _replay_update(self, key: ShareKey, data: bytes) -> None:
        before, value = self.states.get(key), read_update(data)
        if before is not None:
            self.states[key] = before.advanced(value.start_offset, _batches(value.state_batches), value.leader_epoch)


def _batches(stored: Iterable[StoredBatch]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in stored
    ]


def _place(key: Key) -> ShareKey:
    return ShareKey(key.group_id, key.topic_id, key.partition)
