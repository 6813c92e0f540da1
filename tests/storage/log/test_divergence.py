"""Where a follower truncates: every pair of small logs that can come about, against the longest common prefix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest

from storage.disk.checkpoints import EpochStart
from storage.log.divergence import TruncationPoint, truncation_point
from storage.segments.leader_epochs import EpochEnd, LeaderEpochs

Records = tuple[int, ...]
"""The epoch of each record, by offset."""

LENGTH_MAX = 5
EPOCHS = range(5)


def epochs_of(records: Records) -> LeaderEpochs:
    entries = [
        EpochStart(epoch, offset) for offset, epoch in enumerate(records) if offset == 0 or records[offset - 1] != epoch
    ]
    return LeaderEpochs(entries, lambda entries: None)


def logs() -> Iterator[Records]:
    for length in range(LENGTH_MAX + 1):
        yield from combinations_with_replacement(EPOCHS, length)


def common_prefix(one: Records, other: Records) -> int:
    for offset, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return offset
    return min(len(one), len(other))


def can_coexist(one: Records, other: Records) -> bool:
    """One leader writes all records of an epoch: logs with the same epoch at an offset agree on all before it."""
    common = common_prefix(one, other)
    return all(here != there for here, there in list(zip(one, other, strict=False))[common:]) and not (
        set(one[common:]) & set(other[common:])
    )


def test_follower_keeps_exactly_what_it_has_in_common_with_its_leader() -> None:
    count = second_questions = 0
    for leader in logs():
        for follower in logs():
            if not can_coexist(leader, follower):
                continue
            kept, questions = follower, 0
            epochs = epochs_of(leader)
            if not leader or leader[-1] != 5:
                epochs.begin(5, len(leader))  # the leader's own epoch, without a record
            while kept:
                questions += 1
                own = epochs_of(kept)
                response = epochs.end_offset_for(own.latest, len(leader))
                if response.epoch == own.latest and response.end_offset >= len(kept):
                    break  # the leader finds no divergence
                point = truncation_point(response, own, log_end_offset=len(kept), high_watermark=0)
                assert point.offset < len(kept), "each response brings the follower closer"
                kept = kept[: point.offset]
                second_questions += not point.is_final
            assert len(kept) == common_prefix(leader, follower), (leader, follower)
            count += 1
    assert count > 5_000
    assert second_questions > 100


@pytest.mark.parametrize(
    ("response", "own", "expected"),
    [
        (EpochEnd(-1, -1), (0, 0, 1), TruncationPoint(1, True)),
        (EpochEnd(-1, 2), (0, 0, 1), TruncationPoint(2, True)),
        (EpochEnd(-1, 9), (0, 0, 1), TruncationPoint(3, True)),
        (EpochEnd(1, 2), (0, 0, 1), TruncationPoint(2, True)),
        (EpochEnd(1, 9), (0, 0, 1), TruncationPoint(3, True)),
        (EpochEnd(0, 1), (0, 0, 1), TruncationPoint(1, True)),
        (EpochEnd(0, 9), (0, 0, 1), TruncationPoint(2, True)),
        (EpochEnd(2, 2), (0, 1, 1, 3), TruncationPoint(3, False)),
        (EpochEnd(4, 2), (0, 0, 1), TruncationPoint(3, False)),
        (EpochEnd(0, 5), (2, 2), TruncationPoint(0, True)),
        (EpochEnd(0, 0), (), TruncationPoint(0, True)),
    ],
    ids=[
        "no end: the high watermark",
        "no epoch: the leader's end",
        "no epoch: not beyond the log",
        "same epoch: the lower end, the leader's",
        "same epoch: not beyond the log",
        "older epoch: the lower end, the leader's",
        "older epoch: the lower end, the follower's",
        "epoch that the follower lacks: the end of the one below, and ask again",
        "newer epoch than the follower's: keep all, and ask again",
        "epoch before all of the follower's: where these begin",
        "empty log",
    ],
)
def test_truncation_point_follows_from_the_epochs_of_both_logs(
    response: EpochEnd, own: Records, expected: TruncationPoint
) -> None:
    assert (
        truncation_point(response, epochs_of(own), log_end_offset=len(own), high_watermark=1 if own else 0) == expected
    )


def test_truncation_that_docs_replication_draws() -> None:
    leader, follower = epochs_of((0, 0, 0, 2, 2, 4)), (0, 0, 1, 1, 1, 3)
    for expected, is_final in ((5, False), (2, True)):
        own = epochs_of(follower)
        response = leader.end_offset_for(own.latest, 6)
        point = truncation_point(response, own, log_end_offset=len(follower), high_watermark=0)
        assert point == (expected, is_final)
        follower = follower[: point.offset]
