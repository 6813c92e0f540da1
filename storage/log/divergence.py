"""Where a follower's log diverges from its leader's.

Owns the decision of KIP-101 with the second question of KIP-279. Pure: it compares what the leader says about an epoch
with the follower's own epochs. Must not know how a log is truncated, nor how the leader is asked.

Two logs that both have records of an epoch agree up to the lower of the two ends of that epoch, because one leader
wrote all records of it. So the leader is asked where the follower's latest epoch ends:

    leader     |--- 0 ---|--- 2 -----------|        asked for the end of epoch 1: (0, end of epoch 0)
    follower   |--- 0 ---|-- 1 --|                  truncates to the end of epoch 0, which both have: done

If the leader's response names an epoch that the follower does not have, the follower truncates to the end of its own
largest epoch below it and asks again for that one, since the leader may have less of it:

    leader     |- 0 -|-- 2 --|--- 4 ---|            asked for the end of epoch 3: (2, end of epoch 2)
    follower   |- 0 -|------ 1 -----|- 3 -|         has no epoch 2: truncates to the end of epoch 1, asks for epoch 1
                                                    the leader returns (0, end of epoch 0)
"""

from typing import NamedTuple

from storage.segments.leader_epochs import NO_EPOCH, EpochEnd, LeaderEpochs


class TruncationPoint(NamedTuple):
    """The end offset that the follower's log may keep; unless `is_final`, the leader has to be asked again."""

    offset: int
    is_final: bool


def truncation_point(
    leaders: EpochEnd, own_epochs: LeaderEpochs, *, log_end_offset: int, high_watermark: int
) -> TruncationPoint:
    """Return where to truncate a follower's log, given what the leader says about the follower's latest epoch.

    A leader that knows no end leaves only the high watermark, below which all replicas agreed once. Without epochs to
    compare, the shorter log counts.
    """
    epoch, end_offset = leaders
    if end_offset < 0:
        return TruncationPoint(min(high_watermark, log_end_offset), is_final=True)
    own = own_epochs.end_offset_for(min(epoch, own_epochs.latest), log_end_offset)
    if epoch == NO_EPOCH or own.epoch == NO_EPOCH:
        return TruncationPoint(min(end_offset, log_end_offset), is_final=True)
    if own.epoch < epoch:
        return TruncationPoint(min(own.end_offset, log_end_offset), is_final=False)
    return TruncationPoint(min(end_offset, own.end_offset, log_end_offset), is_final=True)
