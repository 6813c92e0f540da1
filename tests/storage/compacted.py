"""Compacted logs for tests: a log manager with its cleaning, and what a consumer sees of a log."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from base.pause import Pause, never, whole
from base.topic_partition import TopicPartition
from protocol.records.batch import batches, records
from protocol.records.builder import RecordData, build_batch
from storage.cleaning.cleaner import clean
from storage.cleaning.cleaning_job import CleaningResult
from storage.cleaning.log_cleaning import CleanerSettings, Cleaning, LogCleaning
from storage.disk.files import Files
from storage.disk.meta_properties import MetaProperties
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.storage.builders import NAME, NOW_MS, QuickFiles, created, log_config, read_all
from tests.support.same_thread import SameThread

COMPACT = frozenset({"compact"})
CONFIG = log_config(
    cleanup_policy=COMPACT,
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=4096,
    index_interval_bytes=512,
    segment_index_bytes=4096,
    file_delete_delay_ms=0,
)

Kept = list[tuple[int, bytes | None, bytes | None]]


class Broker:
    """A log manager and its cleaning, over one directory."""

    def __init__(
        self,
        directory: Path,
        config: object = CONFIG,
        memory: int = 1 << 20,
        files: Files | None = None,
        before_cleaning: Callable[[LogManager], object] = lambda _: None,
    ) -> None:
        """`before_cleaning(manager)` is called once the logs are loaded: other parts of a broker start before it."""
        self.files = files or QuickFiles()
        self.manager = LogManager(
            [str(directory)],
            LogManagerSettings(),
            self.files,
            random=Random(),
            new_threads=SameThread,
            on_directory_failed=lambda *_: None,
        )
        self.manager.startup.open()
        self.manager.startup.claim(MetaProperties(1, "cluster"))
        self.manager.startup.load(lambda topic: config, now_ms=NOW_MS)  # type: ignore[arg-type, return-value]
        before_cleaning(self.manager)
        self.cleaning = LogCleaning(self.manager, self.files, CleanerSettings(dedupe_buffer_size=memory))
        self.cleaning.load()

    def log(self, name: TopicPartition = NAME) -> Log:
        return created(self.manager, *name, topic_id=None, config=CONFIG, now_ms=NOW_MS)

    def clean(self, now_ms: int = NOW_MS) -> bool:
        """One pass over the log that needs it most; False when none does."""
        picked = self.cleaning.pick(now_ms)
        if picked is None:
            return False
        result = clean(picked.job, self.files)
        self.cleaning.make_durable(picked)
        assert finish_pass(self.cleaning, picked, result, now_ms=now_ms)
        self.cleaning.write_checkpoints()
        self.manager.remove_deleted(now_ms)
        return True


def finish_pass(
    cleaning: LogCleaning, picked: Cleaning, result: CleaningResult, *, now_ms: int, pause: Pause = never
) -> bool:
    """Put what a pass has cleaned into service; `pause` is called after each segment."""

    async def at_once(_log: Log, change: Callable[[], bool]) -> bool:
        return change()

    return whole(cleaning.finish(picked, result, now_ms=now_ms, between_writes=at_once, pause=pause))


def keyed(*pairs: tuple[str, str | None], timestamp_ms: int = NOW_MS, **fields: object) -> memoryview:
    made = [
        RecordData(timestamp_ms + number, key.encode(), None if value is None else value.encode())
        for number, (key, value) in enumerate(pairs)
    ]
    return memoryview(bytearray(build_batch(made, **fields)))  # type: ignore[arg-type]


def kept_in(log: Log) -> Kept:
    """Every data record that a consumer would see."""
    found: Kept = []
    for _, content in read_all(log):
        for position, header in batches(content):
            if not header.is_control:
                found += [(r.offset, r.key, r.value) for r in records(content, position, size_max=1 << 30)]
    return found


def commit_and_roll(log: Log) -> None:
    log.advance_high_watermark(log.log_end_offset)
    log.appends.roll(NOW_MS)
