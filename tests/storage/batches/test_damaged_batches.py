"""The count of damaged batches, and each way in which a broker meets one."""

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from protocol.errors import KafkaError
from storage.batches import damaged_batches
from storage.batches.damaged_batches import DamagedBatches, MetBy
from storage.cleaning.cleaner import clean
from storage.disk.meta_properties import MetaProperties
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings
from tests.storage.builders import NOW_MS, QuickFiles, append, batch, created, log_config
from tests.storage.compacted import Broker, commit_and_roll, keyed

SIZE = len(batch(1, size=100))


def counts(counted: DamagedBatches) -> tuple[int, int, int]:
    return counted.count(MetBy.READ), counted.count(MetBy.RECOVERY), counted.count(MetBy.CLEANING)


def start(directory: Path) -> LogManager:
    manager = LogManager(
        [str(directory)],
        LogManagerSettings(),
        QuickFiles(),
        random=Random(),
        new_threads=ThreadPoolExecutor,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(MetaProperties(1, "cluster"))
    manager.startup.load(lambda topic: log_config(), now_ms=NOW_MS)
    return manager


def filled(manager: LogManager) -> Log:
    log = created(manager, "topic", 0, topic_id=None, config=log_config(), now_ms=NOW_MS)
    for _ in range(10):
        append(log, batch(1, size=100))
    return log


def overwrite(log: Log, position: int) -> None:
    path = log.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[position : position + 4] = b"\xff" * 4
    path.write_bytes(content)


def test_damaged_batch_counts_once_for_each_way_to_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damaged_batches, "_REMEMBERED_MAX", 3)
    counted = DamagedBatches()
    for _ in range(3):
        counted.add(MetBy.READ, ValueError("at 1"), "/a/topic-0")
        counted.add(MetBy.READ, ValueError("at 1"), "/a/topic-1")
        counted.add(MetBy.CLEANING, ValueError("at 1"), "/a/topic-0")
    assert counts(counted) == (2, 0, 1)
    for _ in range(2):
        counted.add(MetBy.READ, ValueError("one too many to be remembered"), "/a/topic-0")
    assert counts(counted) == (4, 0, 1)


def test_repeated_reads_of_a_damaged_batch_count_once(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = filled(manager)
    overwrite(log, 5 * SIZE + 8)
    for _ in range(3):
        with contextlib.suppress(KafkaError):
            log.reader.read(5, 1000, upper_bound_offset=10, min_one_batch=True)
    assert counts(manager.damaged_batches) == (1, 0, 0)


def test_wrong_index_entry_counts_no_damaged_batch(tmp_path: Path) -> None:
    manager = start(tmp_path)
    log = filled(manager)
    log.reconfigure(log_config(index_interval_bytes=1))
    append(log, batch(1, size=100))
    append(log, batch(1, size=100))
    index = log.directory / f"{0:020d}.index"
    index.write_bytes(b"\x00\x00\x00\x01\x00\x00\x00\x09" + index.read_bytes()[8:])
    assert log.reader.read(11, 1000, upper_bound_offset=12, min_one_batch=True) is not None
    assert counts(manager.damaged_batches) == (0, 0, 0)


@pytest.mark.parametrize("position", [5 * SIZE + 8, 5 * SIZE + 100])
def test_recovery_counts_the_batch_at_which_it_truncates(tmp_path: Path, position: int) -> None:
    manager = start(tmp_path)
    overwrite(filled(manager), position)
    manager.directories.unlock()
    manager = start(tmp_path)
    assert counts(manager.damaged_batches) == (0, 1, 0)


def test_cleaning_counts_the_batch_with_a_wrong_crc(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    append(log, keyed(("a", "1")))
    commit_and_roll(log)
    append(log, keyed(("a", "2")))
    commit_and_roll(log)
    path = log.directory / f"{0:020d}.log"
    overwrite(log, os.stat(path).st_size - 4)
    picked = broker.cleaning.pick(NOW_MS)
    assert picked is not None
    with pytest.raises(Exception, match="CRC") as raised:
        clean(picked.job, broker.files)
    broker.cleaning.fail(picked, raised.value)
    assert counts(broker.manager.damaged_batches) == (0, 0, 1)
