"""Replay of one partition of `__consumer_offsets` into groups and offsets. Pure.

Owns: the meaning of a record at its place in the log. The last record of a key wins, a tombstone removes the key, and
offsets of a transaction take effect with its commit marker. Must not know: how the log is read, or in which slices.
"""

from __future__ import annotations

from broker.groups.offsets import GroupOffsets
from broker.groups.records import (
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


class ReplayedPartition:
    """The groups of a partition as of the records replayed so far."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        """By group id. A group that only stores offsets is here, but not in `groups`."""
        self._groups_by_producer: dict[int, set[str]] = {}

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

    def group_ids(self) -> list[str]:
        """Return the ids of all groups that were not removed, in order of first appearance."""
        return list(
            dict.fromkeys((*self.groups, *(name for name, offsets in self.offsets.items() if not offsets.is_empty)))
        )

    def _replay_group(self, record: Record, group_id: str) -> None:
        if record.value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = read_group(record.value)

    def _replay_offset(self, batch: BatchHeader, record: Record, key: OffsetCommitKey) -> None:
        offsets = self.offsets.get(key.group)
        if offsets is None:
            offsets = self.offsets[key.group] = GroupOffsets()
        partition = (key.topic, key.partition)
        if record.value is None:
            offsets.remove([partition])
        elif batch.is_transactional:
            offsets.load_in_transaction(batch.producer_id, record.offset, partition, read_offset(record.value))
            self._groups_by_producer.setdefault(batch.producer_id, set()).add(key.group)
        else:
            offsets.load(record.offset, partition, read_offset(record.value))

    def _end_transaction(self, producer_id: int, record: Record) -> None:
        marker = read_marker(record)
        if marker is not None:
            for group_id in self._groups_by_producer.pop(producer_id, ()):
                self.offsets[group_id].end_transaction(
                    producer_id, is_committed=marker.control_type is ControlType.COMMIT
                )
