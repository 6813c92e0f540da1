"""Replay of one partition of `__consumer_offsets` into groups and offsets. Pure.

Owns: the meaning of a record at its place in the log, and of records that could not be read. The last record of a key
wins, a tombstone removes the key, and offsets of a transaction take effect with its commit marker. Must not know: how
the log is read, or in which slices.

If the last commit of an offset is lost, the one before it is served: consumers then read records again and skip none.
Of a group whose metadata is lost, no older members are restored. If a marker may be lost, the offsets of the
transactions that were open then count as aborted, because a later marker must not commit them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.replay import Damage
from broker.groups.machine.offsets import GroupOffsets
from broker.groups.machine.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    read_group,
    read_key,
    read_offset,
)
from protocol.errors import Malformed
from protocol.records.batch import BatchHeader, Record
from protocol.records.control import ControlType, read_marker

if TYPE_CHECKING:
    from broker.groups.machine.consumer.records import Change, Key


class ReplayedPartition:
    """The groups of a partition as of the records replayed so far."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        """By group id. A group that only stores offsets is here, but not in `groups`."""
        self.changes: dict[str, dict[bytes, Change]] = {}
        """By group id: the last record of each key of a group of the consumer protocol. A group is not in `groups` too:
        a record of one protocol takes the place of all earlier ones of the other."""
        self._groups_by_producer: dict[int, set[str]] = {}
        self._lost_offsets: dict[tuple[str, str, int], None] = {}
        """Group, topic and partition."""
        self._lost_members: dict[str, None] = {}
        self._lost_transactions: dict[str, None] = {}
        """Ids of the groups with offsets in transactions whose markers may be lost."""

    def replay(self, batch: BatchHeader, record: Record) -> None:
        """Apply the next record of the log. Raises Malformed if a record of a known kind cannot be decoded."""
        if batch.is_control:
            self._end_transaction(batch.producer_id, record)
            return
        if record.key is None:
            raise Malformed(f"record {record.offset} has no key")
        key = read_key(record.key)
        if isinstance(key, OffsetCommitKey):
            self._replay_offset(batch, record, key)
        elif isinstance(key, GroupMetadataKey):
            self._replay_group(record, key.group)
        elif key is not None:
            self._replay_change(record.key, key, record.value)

    def skip(self, damage: Damage) -> None:
        """See `Contents`."""
        keys = None if damage.keys is None else [_key_or_none(key) for key in damage.keys]
        if keys is None or (None in keys and not damage.is_as_written):
            self._forget_open_transactions()
        for key in keys or ():
            if isinstance(key, OffsetCommitKey):
                self._lost_offsets[key.group, key.topic, key.partition] = None
            elif isinstance(key, GroupMetadataKey):
                self.groups.pop(key.group, None)
                self._lost_members[key.group] = None
            elif key is not None:
                self._lost_members[key.group_id] = None

    def lost(self) -> list[str]:
        """See `Contents`."""
        return [
            *(self._shown_offset(*key) for key in self._lost_offsets),
            *(f"the members of group {group} are lost and join again" for group in self._lost_members),
            *(
                f"offsets that a transaction committed for group {group} may be lost, older ones are served"
                for group in self._lost_transactions
            ),
        ]

    def _shown_offset(self, group: str, topic: str, partition: int) -> str:
        offsets = self.offsets.get(group)
        older = None if offsets is None else offsets.get((topic, partition))
        served = "no offset is served" if older is None else f"offset {older.offset} of an older commit is served"
        return f"the last commit of group {group} for {topic}-{partition} is lost, {served}"

    def _forget_open_transactions(self) -> None:
        for producer_id, groups in self._groups_by_producer.items():
            for group_id in groups:
                self.offsets[group_id].end_transaction(producer_id, is_committed=False)
                self._lost_transactions[group_id] = None
        self._groups_by_producer.clear()

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that were not removed, in order of first appearance."""
        return list(
            dict.fromkeys(
                (
                    *self.groups,
                    *self.changes,
                    *(name for name, offsets in self.offsets.items() if not offsets.is_empty),
                )
            )
        )

    def has_lost_members(self, group_id: str) -> bool:
        """Whether records of the members of a group could not be read."""
        return group_id in self._lost_members

    def _replay_group(self, record: Record, group_id: str) -> None:
        if record.value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = read_group(record.value)
            self.changes.pop(group_id, None)
        self._lost_members.pop(group_id, None)

    def _replay_change(self, data: bytes, key: Key, value: bytes | None) -> None:
        of_group = self.changes.setdefault(key.group_id, {})
        if value is not None:
            from broker.groups.machine.consumer.records import Change, read_value  # few brokers have such groups

            of_group[data] = Change(key, read_value(key, value))
            self.groups.pop(key.group_id, None)
            return
        of_group.pop(data, None)
        if not of_group:
            del self.changes[key.group_id]
            self._lost_members.pop(key.group_id, None)

    def _replay_offset(self, batch: BatchHeader, record: Record, key: OffsetCommitKey) -> None:
        value = None if record.value is None else read_offset(record.value)
        offsets = self.offsets.get(key.group)
        if offsets is None:
            offsets = self.offsets[key.group] = GroupOffsets()
        partition = (key.topic, key.partition)
        if value is not None and batch.is_transactional:
            offsets.load_in_transaction(batch.producer_id, record.offset, partition, value)
            self._groups_by_producer.setdefault(batch.producer_id, set()).add(key.group)
            return
        if value is None:
            offsets.remove([partition])
        else:
            offsets.load(record.offset, partition, value)
        if self._lost_offsets:
            self._lost_offsets.pop((key.group, key.topic, key.partition), None)

    def _end_transaction(self, producer_id: int, record: Record) -> None:
        marker = read_marker(record)
        if marker is not None:
            for group_id in self._groups_by_producer.pop(producer_id, ()):
                self.offsets[group_id].end_transaction(
                    producer_id, is_committed=marker.control_type is ControlType.COMMIT
                )


def _key_or_none(data: bytes | None) -> OffsetCommitKey | GroupMetadataKey | Key | None:
    """Return the key if it is of a known kind and can be decoded."""
    try:
        return None if data is None else read_key(data)
    except Malformed:
        return None
