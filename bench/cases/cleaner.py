"""Cases about compaction: the rate and memory of one cleaning process, and its effect on clients.

Owns: logs to clean. Half of their records are superseded, at random, so that nearly every batch has to
be rewritten: the most expensive kind of log.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from base.pause import never, whole
from bench import machine
from bench.admin import alter_topic
from bench.case import HIGHER, LOWER, Case
from bench.client import ProduceStream, closed_loop, produce_to_consume
from bench.frames import Batch, batch_of_one
from bench.measures import Measure, Values, absolute, percentile
from bench.processes import MIB
from bench.scale import Scale
from bench.servers import Server
from bench.subject import KIB_16, MB, PRODUCE_TO_CONSUME_RATE, Subject, closing_all, now_ms, running
from config.broker import BrokerConfig
from config.log_config import LogConfig
from protocol.records.builder import RecordData, build_batch
from storage.cleaning.cleaner import clean
from storage.cleaning.cleaning_job import CleaningJob, CleaningResult
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.disk import names
from storage.disk.checkpoints import read_offsets
from storage.disk.files import OsFiles
from storage.disk.meta_properties import MetaProperties
from storage.log.log import Log
from storage.manager.log_creation import NewLog
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import LogManagerSettings

KEYS_PER_RECORD = 0.625  # with so many random keys half of the records are retained
SHARE_OF_MEMORY = 10  # the part of `memory_bytes` that is cleaned without a server
RECORD_OVERHEAD = 21  # of a record of 100 bytes or more: its own fields, and a key of 12 bytes
SEGMENT_BYTES = 256 * MIB
CLEANING_TIMEOUT_S = 300.0


class Pass(NamedTuple):
    result: CleaningResult
    wall_s: float
    peak_mib: float


async def _in_this_thread(work: Callable[[], Any]) -> Any:
    return work()


def clean_records(folder: Path, scale: Scale, *, record_size: int) -> Values:
    """Measure one pass over a log that was never cleaned, in its own process, until it is synced to the disk."""
    byte_count = scale.memory_bytes // SHARE_OF_MEMORY
    files = OsFiles()
    config = LogConfig.from_overrides(
        BrokerConfig.from_properties({}, {}), {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    )
    manager = LogManager(
        [str(folder / "logs")],
        LogManagerSettings(),
        files,
        random=Random(),
        new_threads=ThreadPoolExecutor,
        on_directory_failed=lambda *_: None,
    )
    manager.startup.open()
    manager.startup.claim(MetaProperties(1, "bench"))
    manager.startup.load(lambda topic: config, now_ms=now_ms())
    new = NewLog(("bench", 0), None, config)
    whole(manager.creation.create([new], never, _in_this_thread, now_ms=now_ms()))
    log = manager.get("bench", 0)
    assert log is not None
    for batch in superseding_batches(byte_count, KIB_16, record_size):
        log.appends.append_as_leader(memoryview(bytearray(batch.data)), leader_epoch=0, now_ms=now_ms())
    log.advance_high_watermark(log.log_end_offset)
    log.appends.roll(now_ms())
    machine.settle(byte_count, MIB)
    cleaning = LogCleaning(manager, files, CleanerSettings())
    picked = cleaning.pick(now_ms())
    assert picked is not None
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        done = pool.submit(_measured_pass, picked.job).result()
    size = sum(source.size for source in picked.job.segments)
    finish = cleaning.finish(picked, done.result, now_ms=now_ms(), between_writes=_at_once, pause=never)
    assert whole(finish)
    manager.directories.unlock()
    return {"throughput": size / MB / done.wall_s, "memory": done.peak_mib}


async def _at_once(_log: Log, change: Callable[[], bool]) -> bool:
    return change()


def clean_while_serving(server: Server, scale: Scale) -> Values:
    """Measure produce to consume at 500/s, at rest and while the broker cleans a log of `memory_bytes`."""
    with running(server):
        subject = Subject("", server)
        with subject.topic() as topic:
            # A ratio that is never exceeded, until everything is written.
            alter_topic(
                server.port,
                topic,
                {
                    "cleanup.policy": "compact",
                    "min.cleanable.dirty.ratio": "1",
                    "segment.bytes": str(min(SEGMENT_BYTES, scale.memory_bytes // 8)),
                },
            )
            for batch in superseding_batches(scale.memory_bytes, MIB - KIB_16, 1000):
                with closing_all([ProduceStream(server.port, topic, 0, batch, in_flight=1)]) as streams:
                    closed_loop(streams, requests=1)
            machine.settle()
            at_rest = _latencies(subject, scale)
            alter_topic(server.port, topic, {"min.cleanable.dirty.ratio": "0"})
            deadline = time.monotonic() + CLEANING_TIMEOUT_S
            cleaning: list[int] = []
            while not _is_cleaned(server, topic):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"nothing was cleaned within {CLEANING_TIMEOUT_S:g} s")
                cleaning += _latencies(subject, scale)
            cleaning.sort()
            return {
                "p99 at rest": percentile(sorted(at_rest), 0.99) / 1e6,
                "p99": percentile(cleaning, 0.99) / 1e6,
                "p99.9": percentile(cleaning, 0.999) / 1e6,
            }


def superseding_batches(byte_count: int, batch_size: int, record_size: int) -> Iterator[Batch]:
    """Yield `byte_count` in batches of about `batch_size`, with random keys."""
    random = Random(1)
    key_count = int(byte_count / record_size * KEYS_PER_RECORD)
    count = batch_size // record_size
    value = bytes(record_size - RECORD_OVERHEAD)
    for _ in range(byte_count // batch_size):
        # As if a producer needed milliseconds to fill a batch.
        records = [
            RecordData(now_ms() + place * 10 // count, b"key-%08d" % random.randrange(key_count), value)
            for place in range(count)
        ]
        yield Batch(build_batch(records), count)


def _measured_pass(job: CleaningJob) -> Pass:
    begin = time.perf_counter()
    result = clean(job)
    wall_s = time.perf_counter() - begin
    return Pass(result, wall_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _latencies(subject: Subject, scale: Scale) -> list[int]:
    with subject.topic() as topic:
        batch = batch_of_one(100, now_ms())
        section = produce_to_consume(subject.port, topic, batch, rate=PRODUCE_TO_CONSUME_RATE, seconds=scale.section_s)
        return list(section.latencies_ns)


def _is_cleaned(server: Server, topic: str) -> bool:
    checkpoint = server.log_dir / names.CLEANER_CHECKPOINT
    return checkpoint.exists() and (topic, 0) in read_offsets(OsFiles(), str(checkpoint))


CASES = (
    Case(
        "clean-100-byte-records",
        "cleaning, records of 100 bytes",
        (
            Measure("throughput", "MB/s", HIGHER, absolute(30)),
            Measure("memory", "MiB", LOWER),
        ),
        in_process=partial(clean_records, record_size=100),
    ),
    Case(
        "clean-1k-records",
        "cleaning, records of 1 KB",
        (
            Measure("throughput", "MB/s", HIGHER, absolute(200)),
            Measure("memory", "MiB", LOWER),
        ),
        in_process=partial(clean_records, record_size=1000),
    ),
    Case(
        "clean-while-serving",
        "produce to consume, while 2 GB are cleaned",
        (
            Measure("p99 at rest", "ms", LOWER, decimals=2),
            Measure("p99", "ms", LOWER, absolute(10), decimals=2),
            Measure("p99.9", "ms", LOWER, decimals=2),
        ),
        on_new=clean_while_serving,
        settings={"log.cleaner.backoff.ms": "100"},
    ),
)
