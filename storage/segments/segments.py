"""The segments of one log in the order of their base offsets.

Owns order and lookup only. Must not know files.

Invariant: every change replaces one tuple. So the result of `all()` or of one lookup stays a consistent set for a
reader in another thread.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from storage.segments.segment import Segment

_base_offset = attrgetter("base_offset")


def slot_of(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the segment that may hold `offset`, or 0 if the first segment begins above it."""
    return max(slot_above(segments, offset) - 1, 0)


def slot_above(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the first segment that begins above `offset`, or the number of segments if none does."""
    return bisect_right(segments, offset, key=_base_offset)


class Segments:
    """The segments of one log. There is at least one; the last is the active one."""

    __slots__ = ("_segments", "active")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments: tuple[Segment, ...] = tuple(sorted(segments, key=_base_offset))
        self.active: Segment = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def all(self) -> Sequence[Segment]:
        return self._segments

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size(self) -> int:
        """The size of all log files in bytes."""
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: int) -> Segment | None:
        """Return the only segment that may hold `offset`: the one with the greatest base offset at or below it."""
        active = self.active
        if active.base_offset <= offset:
            return active
        segments = self._segments
        slot = slot_above(segments, offset)
        return segments[slot - 1] if slot else None

    def covering(self, start_offset: int, end_offset: int) -> Sequence[Segment]:
        """Return the segments that may hold an offset from `start_offset` on and below `end_offset`."""
        segments = self._segments
        return segments[slot_of(segments, start_offset) : bisect_left(segments, end_offset, key=_base_offset)]

    def add(self, segment: Segment) -> None:
        assert segment.base_offset > self.active.base_offset
        self._segments = (*self._segments, segment)
        self.active = segment

    def replace(self, removed: Iterable[Segment], added: Iterable[Segment] = ()) -> None:
        """Replace segments in one step. At least one must remain."""
        dropped = set(removed)
        kept = [segment for segment in self._segments if segment not in dropped]
        self._segments = tuple(sorted([*kept, *added], key=_base_offset))
        self.active = self._segments[-1]
