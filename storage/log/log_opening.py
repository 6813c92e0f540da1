"""Creates the `Log` of a partition: a new, empty one, or one from the files of an earlier run.

Owns the files of a log before it is in service. Must not know which log directory is chosen, nor what the
checkpoints say beyond the offsets that it is given. Any thread.
"""

import contextlib
from uuid import UUID

from base.topic_partition import TopicPartition, partition_name
from config.log_config import LogConfig
from storage.disk import checkpoints, names
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.log_state import LogOptions
from storage.log.segment_rolls import roll_jitter_ms
from storage.producers.producer_snapshots import ProducerSnapshots
from storage.producers.producer_state import ProducerState
from storage.recovery.log_loader import LoadedLog, LoadProgress, LogLoader, epochs_writer
from storage.segments.leader_epochs import LeaderEpochs
from storage.segments.segment import Segment
from storage.segments.segments import Segments


def create(
    options: LogOptions[Log],
    directory: str,
    name: TopicPartition,
    config: LogConfig,
    *,
    topic_id: UUID | None,
    now_ms: int,
) -> Log:
    """Create an empty log in `directory`, which must not exist. Raises OSError; then nothing is left of it."""
    files = options.files
    files.make_directory(directory)
    try:
        return _create_in(options, directory, name, config, topic_id, now_ms)
    except OSError:
        _remove_unfinished(files, directory)
        raise


def _create_in(
    options: LogOptions[Log],
    directory: str,
    name: TopicPartition,
    config: LogConfig,
    topic_id: UUID | None,
    now_ms: int,
) -> Log:
    files = options.files
    segment = Segment(
        files,
        directory,
        0,
        now_ms=now_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_size_max=config.segment_index_bytes,
        roll_jitter_ms=roll_jitter_ms(config, options.random),
    )
    segment.create(preallocate_size=config.segment_bytes if config.preallocate else 0)
    segment.release()
    if topic_id is not None:
        checkpoints.write_partition_metadata(files, f"{directory}/{names.PARTITION_METADATA}", topic_id)
    loaded = LoadedLog(
        segments=Segments([segment]),
        producer_state=ProducerState(partition_name(name)),
        snapshots=ProducerSnapshots(files, directory, ()),
        leader_epochs=LeaderEpochs((), epochs_writer(files, directory)),
        topic_id=topic_id,
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
    )
    return Log(options, directory, name, config, loaded, now_ms)


def _remove_unfinished(files: Files, directory: str) -> None:
    """Remove what a failed creation left, as far as the disk allows, so that another try succeeds.

    Needs no descriptor: the creation may have failed for lack of one.
    """
    with contextlib.suppress(OSError):
        for name in (names.segment_file(0, names.LOG), names.PARTITION_METADATA):
            files.unlink_if_exists(f"{directory}/{name}")
            files.unlink_if_exists(f"{directory}/{name}{names.TEMPORARY}")
        files.remove_directory(directory)


def load(
    options: LogOptions[Log],
    directory: str,
    name: TopicPartition,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    high_watermark: int,
    is_clean: bool,
    now_ms: int,
    progress: LoadProgress,
    gaps_below: int = 0,
) -> Log:
    """Open the log in `directory` and repair it where needed.

    Args:
        log_start_offset: checkpointed, like the next two; 0 if the checkpoint does not name the log.
        is_clean: whether the last stop was clean; otherwise the log is scanned from its recovery point.
        progress: receives what the load reads and repairs.
        gaps_below: below this offset, and below the recovery point, offsets may be missing between two segments.

    Raises:
        OSError: the files cannot be read or repaired.
    """
    loader = LogLoader(
        options.files,
        directory,
        config,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        is_clean=is_clean,
        gaps_below=gaps_below,
        now_ms=now_ms,
        progress=progress,
    )
    log = Log(options, directory, name, config, loader.load(), now_ms)
    for segment in log.segments.all():
        segment.set_roll_jitter(roll_jitter_ms(config, options.random))
        segment.release()
    log.advance_high_watermark(high_watermark)
    return log
