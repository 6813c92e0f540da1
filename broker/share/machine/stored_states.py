"""What is stored of a share group in one partition. Pure.

Owns: the state, and how an update changes it. Must not know: how it is read, or what a group does with it.

Within one state epoch a state only moves forward: its start rises, what is done stays done, and of two other states of
a record the one with more deliveries counts. So the order of updates does not matter, nor how often one is applied, and
a request that arrives late takes nothing back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from broker.share.machine.deliveries import DONE, StateBatch
from broker.share.machine.records import ShareSnapshotValue, StoredBatch

NO_START: Final = -1
"""The start offset of a partition from which nothing was delivered yet."""


class ShareState(NamedTuple):
    """How far a share group is in a partition."""

    state_epoch: int
    """Rises when an administrator moves the start. A state that has ended begins again in another epoch."""
    start_offset: int = NO_START
    batches: Sequence[StateBatch] = ()
    """The records in flight, in order."""
    leader_epoch: int = 0
    """The highest one of the leaders that have read or written it."""
    snapshot_epoch: int = 0
    created_ms: int = 0

    def advanced(self, start_offset: int, batches: Sequence[StateBatch], leader_epoch: int) -> ShareState:
        """Return the state after an update; `NO_START` as the start offset leaves that."""
        start_offset = max(self.start_offset, start_offset)
        return self._replace(
            start_offset=start_offset,
            batches=tuple(_merged(self.batches, batches, start_offset)),
            leader_epoch=max(self.leader_epoch, leader_epoch),
        )

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


def furthest(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return states from `start_offset` on, in order and without overlaps: of each record the furthest one.

    One pass over the offsets at which a batch begins or ends:

        given:      |-- available, 1 --|         |-- acknowledged, 1 --|
                            |-- available, 2 --|
        returned:   |-- 1 --|-- available, 2 --| |-- acknowledged, 1 --|
    """
    waiting = sorted(batches, reverse=True)  # the last one comes first
    begun: list[tuple[bool, int, int, int]] = []  # a heap: the furthest batch on top; it may hold some that have ended
    found: list[StateBatch] = []
    offset = start_offset
    while waiting or begun:
        while waiting and waiting[-1].first_offset <= offset:
            _, last, state, count = waiting.pop()
            heappush(begun, (state not in DONE, -count, -state, last))
        while begun and begun[0][3] < offset:
            heappop(begun)
        if not begun:
            offset = waiting[-1].first_offset if waiting else offset
            continue
        _, count, state, last = begun[0]
        if waiting:
            last = min(last, waiting[-1].first_offset - 1)
        _append(found, StateBatch(offset, last, -state, -count))
        offset = last + 1
    return found


def _merged(known: Sequence[StateBatch], update: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return what `furthest` returns of both; `known` is in order and has no overlaps.

    A leader writes all records in flight, and few of them have changed. Those before and after these are kept:

        known:      |-- as in update --|-- changed --|-- as in update --|
        returned:   |-- as they are ---|- furthest --|--- as they are --|
    """
    kept = [each for each in known if each.last_offset >= start_offset]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    begin = _equal_count(kept, update)
    following = min(_equal_count(reversed(kept), reversed(update)), len(kept) - begin, len(update) - begin)
    before, end = kept[:begin], len(kept) - following
    changed = [*kept[begin:end], *update[begin : len(update) - following]]
    after = kept[end:]
    if changed and (
        (before and min(changed).first_offset <= before[-1].last_offset)
        or (after and max(map(_last, changed)) >= after[0].first_offset)
    ):
        return furthest([*kept, *update], start_offset)
    found = before
    for each in furthest(changed, start_offset):
        _append(found, each)
    if after:
        _append(found, after[0])
        found += after[1:]
    return found


def _equal_count(one: Iterable[StateBatch], other: Iterable[StateBatch]) -> int:
    """Return how many batches are equal before the first ones that differ."""
    count = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        count += 1
    return count


def _last(batch: StateBatch) -> int:
    return batch.last_offset


def _append(found: list[StateBatch], new: StateBatch) -> None:
    """Append a batch, or extend the last one if it has the same state and ends before it."""
    if found and found[-1].last_offset == new.first_offset - 1 and found[-1][2:] == new[2:]:
        new = found.pop()._replace(last_offset=new.last_offset)
    found.append(new)
