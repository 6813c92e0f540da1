"""The quick read of a consumer that goes on where it stopped, against the careful one that it stands for."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from protocol.errors import KafkaError
from protocol.records.batch import HEADER_SIZE, MAGIC_POSITION, batches
from storage.files import FileSlice, OpenFile
from storage.log import Log
from storage.log_reader import SLICE_SIZE_MIN
from tests.storage.builders import NOW_MS, QuickFiles, append, batch, create_log, log_config, log_options

HEAD, TAIL = 7, 3


def quickly(log: Log, offset: int, size_max: int, bound: int | None = None, *, size_min: int = 0) -> bytes | None:
    bound = log.log_end_offset if bound is None else bound
    answer = log.read_on(offset, size_min, size_max, bound, HEAD, TAIL)
    if answer is None:
        return None
    assert (answer[:HEAD], answer[-TAIL:]) == (bytes(HEAD), bytes(TAIL))
    return bytes(answer[HEAD:-TAIL])


def carefully(log: Log, offset: int, size_max: int, bound: int | None = None) -> bytes | None:
    bound = log.log_end_offset if bound is None else bound
    fetched = log.read(offset, size_max, upper_bound_offset=bound, min_one_batch=True, nowait=True, may_slice=True)
    if fetched is None:
        return None
    return fetched.records.read() if isinstance(fetched.records, FileSlice) else bytes(fetched.records)


def next_offset(records: bytes) -> int:
    """Where a consumer goes on: behind the last batch that it has got as a whole."""
    return max(header.next_offset for _, header in batches(records))


def logs_alike(directory: Path, batch_sizes: list[tuple[int, int]]) -> tuple[Log, Log]:
    logs = [create_log(directory / name, log_config(segment_bytes=90_000)) for name in ("one", "other")]
    for log in logs:
        for count, size in batch_sizes:
            append(log, batch(count, size=size))
    return logs[0], logs[1]


@pytest.mark.parametrize("size_max", [0, 1, 64, 300, 1000, 4096, 20_000, 64 * 1024, 1 << 20])
@pytest.mark.parametrize("below_end", [0, 3, 150])
def test_it_finds_what_the_careful_way_finds(tmp_path: Path, size_max: int, below_end: int) -> None:
    """Over several segments and batches of all sizes, from offsets between and within them."""
    random = Random(size_max)
    one, other = logs_alike(
        tmp_path, [(random.randint(1, 4), random.choice([0, 50, 200, 1000, 1000, 9000])) for _ in range(200)]
    )
    assert one.segment_count > 3
    bound = one.log_end_offset - below_end
    quick_count = 0
    for start, size_min in ((0, 0), (1, 0), (2, 500), (bound - 20, 0), (0, 1), (bound // 2, 0)):
        offset = start
        while offset < bound:
            expected = carefully(other, offset, size_max, bound)
            records = quickly(one, offset, size_max, bound, size_min=size_min)
            if records is None:
                records = carefully(one, offset, size_max, bound)
            else:
                quick_count += 1
                assert len(records) >= size_min
            assert records == expected
            if not records:
                break
            offset = next_offset(records)
        assert quickly(one, offset, size_max, bound, size_min=1) is None
    assert bool(quick_count) == (below_end == 0 and 300 <= size_max < SLICE_SIZE_MIN)


def test_a_consumer_needs_the_careful_way_but_once(tmp_path: Path) -> None:
    log = create_log(tmp_path)
    size = len(batch(3, size=100))
    for _ in range(200):
        append(log, batch(3, size=100))
    assert carefully(log, 0, size) is not None
    offset = 3
    for size_max in [size, size + 1, 2 * size - 1, 2 * size, 5 * size + 70, 16 * size] * 6:
        records = quickly(log, offset, size_max)
        assert records is not None
        assert len(records) == size_max
        offset = next_offset(records)
    records = quickly(log, offset, 60_000, size_min=100)
    assert records is not None
    assert len(records) == (600 - offset) // 3 * size
    for count in (1, 2, 3):
        offset = log.log_end_offset
        assert quickly(log, offset, 60_000) is None
        append(log, batch(count))
        assert quickly(log, offset, 60_000, size_min=200) is None
        assert quickly(log, offset, 60_000) == carefully(log, offset, 60_000)


@pytest.fixture
def known(tmp_path: Path) -> Log:
    """A log of six batches, the beginnings of which are remembered."""
    log = create_log(tmp_path)
    for count in (2, 1, 3, 1, 2, 1):
        append(log, batch(count, size=20))
    for offset in (0, 2, 3, 6, 7, 9):
        carefully(log, offset, 1)
    return log


def test_damage_is_left_to_the_careful_way(known: Log) -> None:
    """It raises nothing, and gives nothing that the other would not give."""
    path = known.directory / f"{0:020d}.log"
    whole = path.read_bytes()
    assert quickly(known, 3, 400) is not None
    starts = {header.base_offset: position for position, header in batches(whole)}
    random, refused_count = Random(1), 0
    descriptor = os.open(path, os.O_RDWR)
    for offset in (3, 6, 7):
        for _ in range(1500):
            position = starts[offset] + random.choice(
                [random.randrange(HEADER_SIZE), random.randrange(300), MAGIC_POSITION]
            )
            os.pwrite(descriptor, random.randbytes(random.choice([1, 1, 4])), min(position, len(whole) - 4))
            size_max = random.choice([64, 100, 120, 200, 400])
            records = quickly(known, offset, size_max)
            try:
                expected = carefully(known, offset, size_max)
            except KafkaError:
                expected = None
            refused_count += records is None
            assert records is None or records == expected
            os.pwrite(descriptor, whole, 0)
            for start in (3, 6, 7, 9):
                carefully(known, start, 1)
    os.close(descriptor)
    assert 1000 < refused_count < 4000


def test_what_is_gone_is_not_found(known: Log) -> None:
    assert quickly(known, 2, 400) is not None
    known.advance_high_watermark(10)
    known.delete_records_before(3)
    assert quickly(known, 2, 400) is None
    assert quickly(known, 3, 400) is not None
    assert known.truncate_to(7, now_ms=NOW_MS)
    for offset in (3, 6, 7, 9):
        assert quickly(known, offset, 400, 10) is None
    known.take_offline()
    assert quickly(known, 6, 400) is None


class ForgetfulFiles(QuickFiles):
    """A page cache that holds less than it should, or a disk that fails."""

    cached_size_max = 1 << 20
    error: int | None = None

    def read_cached_into(self, file: OpenFile, buffer: bytearray | memoryview, position: int) -> int:
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return super().read_cached_into(file, memoryview(buffer)[: self.cached_size_max], position)


def test_a_read_that_would_wait_or_fails_is_left_to_the_careful_way(tmp_path: Path) -> None:
    failed: list[OSError] = []
    files = ForgetfulFiles()
    log = create_log(tmp_path, options=log_options(files, on_io_error=failed.append))
    for _ in range(3):
        append(log, batch(1, size=200))
    carefully(log, 0, 1)
    assert quickly(log, 1, 400) is not None
    for size in (0, 100, 399):
        files.cached_size_max = size
        assert quickly(log, 1, 400) is None
    files.error = errno.EIO
    assert quickly(log, 1, 400) is None
    assert not failed, "who tries in full reports it"
