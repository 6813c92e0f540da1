"""The figures of the cleaner for its metrics: how full its maps are, how long its passes take, how late they are.

Owns the figures of the last pass of each worker and of the last `LogCleaning.pick`. Must not know which code exports
them.
"""

from typing import NamedTuple

from storage.cleaning.cleaning_job import CleaningResult


class CleanerMetrics(NamedTuple):
    """The cleaner's metrics as Kafka defines them, as whole numbers.

    A maximum is taken over the last passes of all workers; the recopy rate is computed from the sum of their bytes.
    """

    max_buffer_utilization_percent: int
    cleaner_recopy_percent: int
    max_clean_time_secs: int
    max_compaction_delay_secs: int
    max_dirty_percent: int
    time_since_last_run_ms: int
    io_size: int
    """Bytes that all passes have read and written."""


class Uncleanable(NamedTuple):
    """The partitions of one log directory that are not cleaned until the next start, and their cleanable bytes."""

    partitions_count: int
    bytes: int


class CleaningFigures:
    """The figures that `LogCleaning` reports. Times are wall-clock milliseconds."""

    __slots__ = ("_delays_ms", "_dirtiest_ratio", "_io_size", "_last_passes", "_last_run_ms")

    def __init__(self) -> None:
        self._last_passes: dict[int, CleaningResult] = {}
        self._delays_ms: dict[int, int] = {}
        self._dirtiest_ratio = 0.0
        self._last_run_ms = 0
        self._io_size = 0

    def picked(self, worker: int, *, dirtiest_ratio: float, delay_ms_max: int, now_ms: int) -> None:
        """Note one `LogCleaning.pick`.

        `delay_ms_max` is the longest time since a record exceeded max.compaction.lag.ms without being compacted.
        """
        self._dirtiest_ratio = dirtiest_ratio
        self._delays_ms[worker] = delay_ms_max
        self._last_run_ms = now_ms

    def cleaned(self, worker: int, result: CleaningResult) -> None:
        self._last_passes[worker] = result
        self._io_size += result.io_size

    def at(self, now_ms: int) -> CleanerMetrics:
        passes = self._last_passes.values()
        bytes_read = sum(each.bytes_read for each in passes)
        return CleanerMetrics(
            max_buffer_utilization_percent=int(100 * max((each.map_utilization for each in passes), default=0)),
            cleaner_recopy_percent=100 * sum(each.bytes_kept for each in passes) // bytes_read if bytes_read else 0,
            max_clean_time_secs=int(max((each.map_seconds + each.copy_seconds for each in passes), default=0)),
            max_compaction_delay_secs=max(self._delays_ms.values(), default=0) // 1000,
            max_dirty_percent=int(100 * self._dirtiest_ratio),
            time_since_last_run_ms=now_ms - self._last_run_ms,
            io_size=self._io_size,
        )
