"""The active segment of one log: its limits, and the next one.

Owns when a segment is complete and what a roll writes. Must not know what is appended. A roll runs in the thread that
owns the log, or, for planned appends, in the directory's threads.
"""

from random import Random

from config.log_config import LogConfig
from storage.log.log_state import LogState
from storage.log.planned_appends import PlannedAppends
from storage.producers.producer_snapshots import encode
from storage.producers.producer_state import ProducerState
from storage.segments.segment import Segment


class SegmentRolls:
    """Begins the segments of one log."""

    __slots__ = ("_planned", "_state")

    def __init__(self, state: LogState, planned: PlannedAppends) -> None:
        self._state = state
        self._planned = planned

    def activate(self, segment: Segment) -> None:
        """Apply the present configuration to the active segment."""
        config = self._state.config
        age_ms_max = config.segment_ms
        if "compact" in config.cleanup_policy:
            age_ms_max = min(age_ms_max, config.max_compaction_lag_ms)
        segment.set_limits(
            size_max=config.segment_bytes, age_ms_max=age_ms_max, index_interval_bytes=config.index_interval_bytes
        )

    def roll(self, base_offset: int, now_ms: int, snapshot: bytes | None = None) -> Segment:
        """Begin a new segment at `base_offset` with a producer snapshot, unless the active one is empty; return it.

        `snapshot` is the encoded state of the producers up to `base_offset`. Without it the present state is written,
        unless appends are planned: then the state is ahead of the segment, and no snapshot is written. A start after a
        crash then replays more of the log.

        Raises OSError.
        """
        state = self._state
        active = state.segments.active
        if active.size == 0 and active.base_offset == base_offset:
            return active
        self.seal_active()
        if snapshot is not None or not self._planned.count:
            self.write_snapshot(base_offset, state.producer_state, snapshot)
        segment = self.new_segment(base_offset, now_ms)
        state.segments.add(segment)
        state.segment_reader.end = (state.log_end_offset, segment, 0)
        state.options.on_flush_wanted(state)
        return segment

    def seal_active(self) -> None:
        """Cut the indexes of the active segment to their length, and its file to its size. Raises OSError."""
        state = self._state
        active = state.segments.active
        active.seal()
        if state.config.preallocate:
            active.cut_preallocation()

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create the files of a segment that is to be the active one. Raises OSError."""
        state = self._state
        config = state.config
        segment = Segment(
            state.files,
            state.folder.path,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            index_size_max=config.segment_index_bytes,
            roll_jitter_ms=roll_jitter_ms(config, state.options.random),
        )
        segment.create(preallocate_size=config.segment_bytes if config.preallocate else 0)
        self.activate(segment)
        return segment

    def write_snapshot(self, offset: int, producers: ProducerState, content: bytes | None = None) -> None:
        """Write the state of the producers up to `offset`, or `content`, unless a later snapshot exists.

        Raises OSError.
        """
        state = self._state
        if offset > (state.snapshots.latest or state.log_start_offset):
            state.snapshots.write_encoded(offset, encode(producers.producers.values()) if content is None else content)


def roll_jitter_ms(config: LogConfig, random: Random) -> int:
    """Return a random part of segment.jitter.ms, which spreads the rolls of logs created together."""
    return random.randrange(min(config.segment_jitter_ms, config.segment_ms)) if config.segment_jitter_ms > 0 else 0
