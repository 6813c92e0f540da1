"""Metrics of logs, log directories and the log cleaner.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from broker.metrics.histogram import Histogram
from broker.metrics.metric import Kind, Metric, Sample, Value, alone, gauges
from broker.replica.log_cleaner import LogCleaner
from storage.batches.damaged_batches import MetBy
from storage.cleaning.cleaning_metrics import CleanerMetrics, Uncleanable
from storage.directories.log_directory import LogDirectory
from storage.disk.directory_writer import DirectoryWriter
from storage.log.log import Log
from storage.manager.log_manager import LogManager

DIRECTORY = ("logDirectory",)

PER_LOG: tuple[tuple[str, str, Callable[[Log], int]], ...] = (
    ("Size", "Bytes of all segments.", lambda log: log.size),
    ("NumLogSegments", "Segments.", lambda log: log.segment_count),
    ("LogStartOffset", "First offset that may be read.", lambda log: log.log_start_offset),
    ("LogEndOffset", "Offset of the next record.", lambda log: log.log_end_offset),
)

CLEANER: tuple[tuple[str, str, Callable[[CleanerMetrics], int]], ...] = (
    (
        "max-buffer-utilization-percent",
        "How full the offset map was, in the fullest of the cleaners' last passes.",
        lambda figures: figures.max_buffer_utilization_percent,
    ),
    (
        "cleaner-recopy-percent",
        "Share of bytes that the cleaners' last passes kept.",
        lambda figures: figures.cleaner_recopy_percent,
    ),
    (
        "max-clean-time-secs",
        "Duration of the longest of the cleaners' last passes.",
        lambda figures: figures.max_clean_time_secs,
    ),
    (
        "max-compaction-delay-secs",
        "The longest time by which a record has exceeded max.compaction.lag.ms.",
        lambda figures: figures.max_compaction_delay_secs,
    ),
)

CLEANER_MANAGER: tuple[tuple[str, str, Callable[[CleanerMetrics], int]], ...] = (
    (
        "max-dirty-percent",
        "Share of bytes not cleaned yet, in the dirtiest log.",
        lambda figures: figures.max_dirty_percent,
    ),
    (
        "time-since-last-run-ms",
        "Time since a cleaner last checked for logs to clean, in milliseconds.",
        lambda figures: figures.time_since_last_run_ms,
    ),
)


UNCLEANABLE: tuple[tuple[str, str, Callable[[Uncleanable], int]], ...] = (
    (
        "uncleanable-partitions-count",
        "Partitions that are not cleaned until the next start.",
        lambda found: found.partitions_count,
    ),
    ("uncleanable-bytes", "Bytes of these partitions that could be cleaned.", lambda found: found.bytes),
)


def log_metrics(logs: LogManager, flush_times: Histogram) -> Iterator[Metric]:
    """`flush_times` in milliseconds."""
    of_each = partial(_per_log, logs)
    yield from gauges("kafka.log:type=Log", PER_LOG, of_each, ("topic", "partition"), is_per_partition=True)
    yield Metric(
        Kind.TIMER,
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        "Time to sync a log.",
        alone(flush_times.distribution),
    )
    yield Metric(
        Kind.GAUGE,
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        "Log directories that have failed.",
        alone(lambda: sum(directory.is_offline for directory in logs.directories)),
    )
    yield Metric(
        Kind.METER,
        "kafka.log:type=LogManager,name=ResourceShortagesPerSec",
        "Calls of the operating system that failed for lack of file descriptors or memory.",
        alone(lambda: logs.shortages.count),
    )
    of_writers: tuple[tuple[Kind, str, str, Callable[[DirectoryWriter], int]], ...] = (
        (
            Kind.GAUGE,
            "LogDirectorySlow",
            "1 while a thread of its own writes the log directory because writes take long.",
            lambda writer: int(writer.is_slow),
        ),
        (
            Kind.METER,
            "LogDirectoryBecameSlowPerSec",
            "How often a log directory has become slow.",
            lambda writer: writer.slow_count,
        ),
        (
            Kind.METER,
            "LogDirectoryBecameFastPerSec",
            "How often a slow log directory has become fast again.",
            lambda writer: writer.fast_count,
        ),
        (
            Kind.GAUGE,
            "LogDirectoryPendingWriteBytes",
            "Bytes that wait to be written to a slow log directory.",
            lambda writer: writer.pending_size,
        ),
    )
    for kind, name, text, of_writer in of_writers:
        yield Metric(kind, f"kafka.log:type=LogManager,name={name}", text, _per_writer(logs, of_writer), DIRECTORY)
    yield Metric(
        Kind.METER,
        "",
        "Damaged batches that reads, the recovery at the start and the log cleaner have met, each batch once.",
        lambda: (((met_by.value,), logs.damaged_batches.count(met_by)) for met_by in MetBy),
        ("met_by",),
        own_name="kafka_python_damaged_batches",
    )
    per_directory: tuple[tuple[str, str, Callable[[LogDirectory], int]], ...] = (
        ("LogDirectoryOffline", "1 if the log directory has failed.", lambda directory: int(directory.is_offline)),
        ("remainingLogsToRecover", "Logs that are not loaded yet during a start.", logs.startup.remaining_logs_in),
    )
    for name, text, of_directory in per_directory:
        tags = DIRECTORY if name == "LogDirectoryOffline" else ("dir",)
        bean = f"kafka.log:type=LogManager,name={name}"
        yield Metric(Kind.GAUGE, bean, text, _per_directory(logs, of_directory), tags)

    yield Metric(
        Kind.GAUGE,
        "kafka.log:type=LogManager,name=remainingSegmentsToRecover",
        "Segments of its present log that a thread is still to scan, during a start after an unclean stop.",
        partial(_segments_left, logs),
        ("dir", "threadNum"),
    )


def cleaner_metrics(logs: LogManager, cleaner: Callable[[], LogCleaner | None]) -> Iterator[Metric]:
    """Without a cleaner they exist and have no values."""
    bean, manager = "kafka.log:type=LogCleaner", "kafka.log:type=LogCleanerManager"
    figures = partial(_of_figures, cleaner)
    yield from gauges(bean, CLEANER, figures)
    yield from gauges(manager, CLEANER_MANAGER, figures)
    yield Metric(
        Kind.GAUGE,
        f"{bean},name=DeadThreadCount",
        "Cleaners whose last round an unexpected error has ended; they try again.",
        _of_cleaner(cleaner, lambda it: it.dead_thread_count),
    )
    yield Metric(
        Kind.METER,
        "kafka.utils:type=Throttler,name=cleaner-io",
        "Bytes that log cleaners have read and written.",
        figures(lambda it: it.io_size),
        event_type="bytes",
    )
    yield from gauges(manager, UNCLEANABLE, partial(_uncleanable, logs, cleaner), DIRECTORY)


def _per_log(logs: LogManager, fact: Callable[[Log], int]) -> Callable[[], Iterator[Sample]]:
    return lambda: (((log.topic, str(log.partition)), fact(log)) for log in logs.logs())


def _per_directory(logs: LogManager, fact: Callable[[LogDirectory], int]) -> Callable[[], Iterator[Sample]]:
    return lambda: (((directory.path,), fact(directory)) for directory in logs.directories)


def _segments_left(logs: LogManager) -> Iterator[Sample]:
    for directory in logs.directories:
        for number, count in logs.startup.remaining_segments_in(directory).items():
            yield (directory.path, str(number)), count


def _per_writer(logs: LogManager, fact: Callable[[DirectoryWriter], int]) -> Callable[[], Iterator[Sample]]:
    return lambda: (((path,), fact(writer)) for path, writer in logs.writers.items())


def _of_figures(
    cleaner: Callable[[], LogCleaner | None], figure: Callable[[CleanerMetrics], int]
) -> Callable[[], list[Sample]]:
    return _of_cleaner(cleaner, lambda running: figure(running.metrics()))


def _of_cleaner(
    cleaner: Callable[[], LogCleaner | None], fact: Callable[[LogCleaner], Value]
) -> Callable[[], list[Sample]]:
    def read() -> list[Sample]:
        running = cleaner()
        return [] if running is None else [((), fact(running))]

    return read


def _uncleanable(
    logs: LogManager, cleaner: Callable[[], LogCleaner | None], fact: Callable[[Uncleanable], int]
) -> Callable[[], list[Sample]]:
    def read() -> list[Sample]:
        running = cleaner()
        if running is None:
            return []
        return [((directory.path,), fact(running.uncleanable_in(directory))) for directory in logs.directories.live]

    return read
