"""Which segments of a log are too old, too many or below its start. Pure decisions over plain values."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

NO_LIMIT = -1


class SegmentFacts(NamedTuple):
    """`next_offset` is the base offset of the following segment, or the log's end. Empty only where it is the last."""

    next_offset: int
    size: int
    largest_timestamp_ms: int


class RetentionPolicy(NamedTuple):
    """NO_LIMIT keeps for ever."""

    retention_ms: int
    retention_bytes: int


def count_to_delete(
    segments: Sequence[SegmentFacts],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """How many segments, oldest first, have to go.

    Deleting stops at the first segment that must stay, and at the high watermark whatever the rules say. The size rule
    is a minimum kept: a segment goes only if what remains is still large enough. All may go, the last one too.
    """
    deletable = list(takewhile(lambda segment: segment.next_offset <= high_watermark and segment.size > 0, segments))
    total = sum(segment.size for segment in segments)
    return max(
        _count(segment.next_offset <= log_start_offset for segment in deletable),
        _count(_is_expired(segment, policy, now_ms) for segment in deletable),
        _count(_is_surplus(kept, policy) for kept in _bytes_kept_without(deletable, total)),
    )


def _is_expired(segment: SegmentFacts, policy: RetentionPolicy, now_ms: int) -> bool:
    return policy.retention_ms >= 0 and now_ms - segment.largest_timestamp_ms > policy.retention_ms


def _is_surplus(bytes_kept: int, policy: RetentionPolicy) -> bool:
    return policy.retention_bytes >= 0 and bytes_kept >= policy.retention_bytes


def _bytes_kept_without(segments: Iterable[SegmentFacts], total: int) -> Iterable[int]:
    for segment in segments:
        total -= segment.size
        yield total


def _count(answers: Iterable[bool]) -> int:
    return sum(1 for _ in takewhile(bool, answers))
