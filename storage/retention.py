"""Which segments of a log are too old, too many or below its start.

Owns these decisions, as pure functions over plain values. Must not know files: the log deletes what they name.
"""

from collections.abc import Iterable
from typing import NamedTuple

NO_LIMIT = -1


class SegmentFacts(NamedTuple):
    """`next_offset` is the base offset of the following segment, or the log's end.

    `size` is 0 where cleaning has kept no record.
    """

    next_offset: int
    size: int
    largest_timestamp_ms: int


class RetentionPolicy(NamedTuple):
    """NO_LIMIT keeps for ever."""

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
    """How many segments, oldest first, have to go; all may, the last one too. An empty active segment is not in there.

    Deleting stops at the first segment that must stay, and at the high watermark whatever the rules say. The size rule
    is a minimum kept: a segment goes only if what remains is still large enough. No more segments are looked at than
    it takes, because the facts of one may have to be read from the disk.
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
