"""Which segments of a log are too old, too many or below its start.

Owns these decisions, as pure functions over plain values. Must not know files: the log deletes the segments.
"""

from collections.abc import Iterable
from typing import NamedTuple

NO_LIMIT = -1


class SegmentFacts(NamedTuple):
    """What retention needs of a segment. `next_offset` is the base offset of the following one, or the log's end.

    `size` is 0 if cleaning has kept no record.
    """

    next_offset: int
    size: int
    largest_timestamp_ms: int


class RetentionPolicy(NamedTuple):
    """The limits of a topic; NO_LIMIT keeps all segments."""

    retention_ms: int
    retention_bytes: int


def count_to_delete(
    segments: Iterable[SegmentFacts],
    policy: RetentionPolicy,
    *,
    total_size: int,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> int:
    """Return how many of the oldest segments to delete. It may be all of them.

    The count ends at the first segment to keep, and always at the high watermark. retention.bytes is a minimum: a
    segment is deleted only if at least so many bytes remain. `segments` is read no further than necessary, because the
    facts of a segment may have to be read from the disk. It must not contain an empty active segment.
    """
    count = 0
    for segment in segments:
        if segment.next_offset > high_watermark:
            break
        total_size -= segment.size
        is_below_start = segment.next_offset <= log_start_offset
        if not (is_below_start or _is_expired(segment, policy, now_ms) or _is_surplus(total_size, policy)):
            break
        count += 1
    return count


def _is_expired(segment: SegmentFacts, policy: RetentionPolicy, now_ms: int) -> bool:
    return policy.retention_ms >= 0 and now_ms - segment.largest_timestamp_ms > policy.retention_ms


def _is_surplus(bytes_kept: int, policy: RetentionPolicy) -> bool:
    return policy.retention_bytes >= 0 and bytes_kept >= policy.retention_bytes
