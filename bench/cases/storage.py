"""Cases about the logs on disk: appends and reads, recovery after a crash, start and memory with many partitions.

Recovery and start compare whole servers. Both have the same log format, so the benchmark writes a log to recover into
the folder of a stopped server, with the same bytes for both. The cases `produce-*` and `fetch-*` append and read over
the wire; here Milena's log is called without a server, which measures storage alone.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

from bench import machine
from bench.admin import create_topic, produce_to_each
from bench.case import HIGHER, LOWER, Case
from bench.frames import Batch, batch_of_one
from bench.measures import Measure, Values, absolute, moved_bytes, times
from bench.processes import MIB, anonymous_mib, open_files
from bench.scale import Scale
from bench.servers import Server
from bench.subject import GB, KIB_16, MB, bulk_batch, now_ms, running
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.records.batch import BASE_OFFSET, set_offset_and_epoch
from storage.disk import names
from storage.disk.files import OsFiles
from storage.log import log_opening
from storage.log.log import Log
from storage.log.log_state import LogOptions

TOPIC = "bench"
SMALL_VALUE = 100
KIB_1 = 1024
READ_SIZE = MIB
RECOVERED_PARTITIONS = 2
RECOVERED_BYTES = 1024 * MIB
RECOVERED_BYTES_IN_SMALL_BATCHES = 256 * MIB
PARTITION_COUNTS = (10, 100, 1_000, 4_000)
PARTITIONS_OF_TOPIC = 1_000
PARTITIONS_WITH_SEGMENTS = 2_000
PARTITIONS_FOR_MEMORY = 4_000
SEGMENTS = 3
ONE_BATCH_A_SEGMENT = {"log.segment.bytes": "200"}
FORGOTTEN_AFTER_S = 65.0
"""Longer than any server needs to release the resources of an idle partition."""


def append(folder: Path, scale: Scale, *, size: int) -> Values:
    """Measure appends of batch after batch to one log with default settings, as a leader."""
    batch = bulk_batch(size)
    with _new_log(folder) as log:
        machine.settle(scale.bulk_bytes, size)
        return _timed(lambda: _append(log, batch, scale.bulk_bytes))


def read(folder: Path, scale: Scale, *, size: int) -> Values:
    """Measure reads of the same log from start to end, 1 MB per read, all of it in the page cache."""
    batch = bulk_batch(size)
    with _new_log(folder) as log:
        _append(log, batch, scale.fetch_bytes)
        machine.settle()
        return _timed(lambda: _read_all(log, batch))


def recovery(
    server: Server, scale: Scale, *, new_batch: Callable[[], Batch], byte_count: int, threads: int = 1
) -> Values:
    """Measure a start after a crash with logs to scan completely, minus a start after a crash without them."""
    with running(server):
        create_topic(server.port, TOPIC, RECOVERED_PARTITIONS)
    seconds_without = _start_after_crash(server)
    batch, scanned = new_batch(), 0
    for partition in range(RECOVERED_PARTITIONS):
        path = server.log_dir / f"{TOPIC}-{partition}" / names.segment_file(0, names.LOG)
        scanned += _write_batches(path, batch, scale.count(byte_count) // RECOVERED_PARTITIONS)
    seconds = _start_after_crash(server)
    return {"recovery": scanned / MB / max(seconds - seconds_without, 0.001) / threads, "start": seconds}


def start_by_partitions(server: Server, scale: Scale) -> Values:
    """Measure clean starts of one broker with increasing numbers of partitions, each with one record."""
    seconds: dict[int, float] = {}
    made = 0
    for wanted in PARTITION_COUNTS:
        with running(server):
            _make_partitions(server, made, scale.count(wanted), batches=1)
        made = scale.count(wanted)
        seconds[wanted] = _start(server)
    few, _, many, most = PARTITION_COUNTS
    cost_of_many = (seconds[many] - seconds[few]) / (many - few)
    cost_of_most = (seconds[most] - seconds[few]) / (most - few)
    return {
        **{f"with {wanted:,}": seconds[wanted] for wanted in PARTITION_COUNTS},
        "growth": max(0.0, cost_of_most / cost_of_many) if cost_of_many > 0 else 1.0,
    }


def clean_start_with_segments(server: Server, scale: Scale) -> Values:
    """Measure a clean start with segments of one batch: every batch is longer than the rest of a segment."""
    partitions = scale.count(PARTITIONS_WITH_SEGMENTS)
    with running(server):
        _make_partitions(server, 0, partitions, batches=SEGMENTS)
    found = len(list(server.log_dir.glob(f"{TOPIC}-*/*{names.LOG}")))
    if found != SEGMENTS * partitions:
        raise RuntimeError(f"{found} segments, expected {SEGMENTS} in each of {partitions} partitions")
    return {"start": _start(server)}


def idle_partitions(server: Server, scale: Scale) -> Values:
    """Measure memory and open files of partitions that were written to once and then idle for a minute."""
    partitions = scale.count(PARTITIONS_FOR_MEMORY)
    with running(server):
        time.sleep(scale.idle_s)
        memory_mib, files = anonymous_mib(server.pid), open_files(server.pid)
        _make_partitions(server, 0, partitions, batches=1)
        time.sleep(FORGOTTEN_AFTER_S * scale.part)
        return {
            "memory": max(0.0, anonymous_mib(server.pid) - memory_mib) * 1024 / partitions,
            "open files": max(0, open_files(server.pid) - files) / partitions,
        }


@contextmanager
def _new_log(folder: Path) -> Iterator[Log]:
    config = LogConfig.from_overrides(BrokerConfig.from_properties({}, {}), {})
    name = (TOPIC, 0)
    options: LogOptions[Log] = LogOptions(OsFiles(), Random(1))
    yield log_opening.create(options, str(folder / "log"), name, config, topic_id=None, now_ms=now_ms())


def _append(log: Log, batch: Batch, byte_count: int) -> int:
    records, append_time_ms = memoryview(bytearray(batch.data)), now_ms()
    for _ in range(byte_count // len(records)):
        BASE_OFFSET.pack_into(records, 0, 0)  # as a client sends it: the last append has written its own offset into it
        log.appends.append_as_leader(records, leader_epoch=0, now_ms=append_time_ms)
    return log.size


def _read_all(log: Log, batch: Batch) -> int:
    offset = read_bytes = 0
    end_offset = log.log_end_offset
    while offset < end_offset:
        fetched = log.reader.read(offset, READ_SIZE, upper_bound_offset=end_offset, min_one_batch=True)
        assert fetched is not None
        size = len(fetched.records) - len(fetched.records) % len(batch.data)
        read_bytes += size
        offset += size // len(batch.data) * batch.record_count
    return read_bytes


def _timed(work: Callable[[], int]) -> Values:
    """Time `work`, which returns the number of bytes that it has moved."""
    start, cpu = time.perf_counter(), time.process_time()
    byte_count = work()
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    return {"throughput": byte_count / MB / seconds, "CPU": cpu_s / (byte_count / GB)}


def _write_batches(path: Path, batch: Batch, byte_count: int) -> int:
    """Write a log file of equal batches, at offsets from 0 on; return its size."""
    size = len(batch.data)
    total = max(1, byte_count // size)
    piece = bytearray(batch.data * max(1, min(total, MIB // size)))
    at_once = len(piece) // size
    with path.open("wb") as file:
        for first in range(0, total, at_once):
            several = min(at_once, total - first)
            for number in range(several):
                set_offset_and_epoch(piece, number * size, (first + number) * batch.record_count, 0)
            file.write(memoryview(piece)[: several * size])
    return total * size


def _make_partitions(server: Server, made: int, wanted: int, *, batches: int) -> None:
    """Create topics until `wanted` partitions exist, of which `made` exist already; each new one gets its batches."""
    batch = batch_of_one(SMALL_VALUE, now_ms())
    while made < wanted:
        topic, partitions = f"{TOPIC}-{made}", min(PARTITIONS_OF_TOPIC, wanted - made)
        create_topic(server.port, topic, partitions)
        for _ in range(batches):
            produce_to_each(server.port, topic, partitions, batch)
        made += partitions


def _start(server: Server) -> float:
    """Return the seconds from the process start to its first response. Then stops the server cleanly."""
    machine.settle()
    begin = time.perf_counter()
    with running(server):
        return time.perf_counter() - begin


def _start_after_crash(server: Server) -> float:
    """Return the seconds of a start as if the stopped broker had been killed before its first checkpoint."""
    (server.log_dir / names.CLEAN_SHUTDOWN).unlink()
    (server.log_dir / names.RECOVERY_POINT_CHECKPOINT).unlink()
    return _start(server)


RECOVERY_START = Measure("start", "s", LOWER, decimals=2)
RECOVERY = (Measure("recovery", "MB/s", HIGHER, absolute(400)), RECOVERY_START)

CASES = (
    Case(
        "append-16k-batches",
        "log alone, append 16 KB batches",
        moved_bytes(),
        in_process=partial(append, size=KIB_16),
    ),
    Case(
        "append-1m-batches",
        "log alone, append 1 MB batches",
        moved_bytes(),
        in_process=partial(append, size=MIB),
    ),
    Case(
        "read-16k-batches",
        "log alone, read 16 KB batches",
        moved_bytes(),
        in_process=partial(read, size=KIB_16),
    ),
    Case(
        "read-1m-batches",
        "log alone, read 1 MB batches",
        moved_bytes(),
        in_process=partial(read, size=MIB),
    ),
    Case(
        "recovery-16k-batches",
        "recovery, 16 KB batches",
        RECOVERY,
        on_new=partial(recovery, new_batch=partial(bulk_batch, KIB_16), byte_count=RECOVERED_BYTES),
    ),
    Case(
        "recovery-16k-batches-2-threads",
        "recovery, 16 KB batches, 2 threads",
        (Measure("recovery", "MB/s a thread", HIGHER, absolute(400)), RECOVERY_START),
        on_new=partial(recovery, new_batch=partial(bulk_batch, KIB_16), byte_count=RECOVERED_BYTES, threads=2),
        settings={"num.recovery.threads.per.data.dir": "2"},
    ),
    Case(
        "recovery-1k-batches",
        "recovery, 1 KB batches",
        RECOVERY,
        on_new=partial(recovery, new_batch=partial(bulk_batch, KIB_1), byte_count=RECOVERED_BYTES_IN_SMALL_BATCHES),
    ),
    Case(
        "recovery-one-record-batches",
        "recovery, records of 100 bytes one by one",
        (Measure("recovery", "MB/s", HIGHER), RECOVERY_START),
        on_new=partial(
            recovery, new_batch=lambda: batch_of_one(SMALL_VALUE, now_ms()), byte_count=RECOVERED_BYTES_IN_SMALL_BATCHES
        ),
    ),
    Case(
        "start-by-partitions",
        "start by number of partitions",
        (
            *(Measure(f"with {number:,}", "s", LOWER, decimals=2) for number in PARTITION_COUNTS[:-1]),
            Measure(f"with {PARTITION_COUNTS[-1]:,}", "s", LOWER, times(1.0), decimals=2),
            Measure("growth", "x", LOWER, absolute(1.5), decimals=2),
        ),
        on_new=start_by_partitions,
        rounds_max=2,
    ),
    Case(
        "start-with-segments",
        f"start, {PARTITIONS_WITH_SEGMENTS:,} partitions of {SEGMENTS} segments",
        (Measure("start", "s", LOWER, absolute(3), decimals=2),),
        on_new=clean_start_with_segments,
        settings=ONE_BATCH_A_SEGMENT,
        rounds_max=2,
    ),
    Case(
        "idle-partitions",
        f"{PARTITIONS_FOR_MEMORY:,} idle partitions",
        (
            Measure("memory", "KiB a partition", LOWER, absolute(20), decimals=1),
            Measure("open files", "a partition", LOWER, absolute(0.01), decimals=2),
        ),
        on_new=idle_partitions,
        rounds_max=2,
    ),
)
