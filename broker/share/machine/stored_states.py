"""What is stored of a share group in one partition. Pure.

Owns: the state, and how an update changes it. Must not know: how it is read, or what a group does with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.share.machine.deliveries import StateBatch
from broker.share.machine.records import ShareSnapshotValue, StoredBatch

NO_START: Final = -1
"""The start offset of a partition from which nothing was delivered yet."""


class ShareState(NamedTuple):
    """How far a share group is in a partition."""

    state_epoch: int
    """Rises when an administrator moves the start."""
    start_offset: int = NO_START
    batches: Sequence[StateBatch] = ()
    """The records in flight, in order."""
    leader_epoch: int = 0
    snapshot_epoch: int = 0
    created_ms: int = 0

    def to_stored(self, now_ms: int) -> ShareSnapshotValue:
        """Return the value of the record that is written at `now_ms`."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            create_timestamp=self.created_ms,
            write_timestamp=now_ms,
            state_batches=[
                StoredBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in self.batches
            ],
        )


def overlaid(before: Sequence[StateBatch], later: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return states from `start_offset` on, in order: those of `later` where there are any, else those of `before`."""
    found = list(before)
    for new in later:
        kept: list[StateBatch] = []
        for old in found:
            if old.last_offset < new.first_offset or old.first_offset > new.last_offset:
                kept.append(old)
                continue
            if old.first_offset < new.first_offset:
                kept.append(old._replace(last_offset=new.first_offset - 1))
            if old.last_offset > new.last_offset:
                kept.append(old._replace(first_offset=new.last_offset + 1))
        found = sorted([*kept, new])
    return [
        each._replace(first_offset=max(each.first_offset, start_offset))
        for each in found
        if each.last_offset >= start_offset
    ]
