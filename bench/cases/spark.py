"""Cases about Spark: a scan, an aggregation with a watermark and a mirror of one topic of eight partitions.

The records are produced beforehand, in batches of 16 KB. Spark runs in a process of its own with the jobs' settings,
and is the same for both servers; on two cores it limits the rate more than the server does.

Owns the cases and their table. Must not know which server is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench import machine
from bench.case import HIGHER, LOWER, Case
from bench.client import ProduceStream, closed_loop
from bench.frames import batch_of_size
from bench.measures import Measure, Values, absolute, times
from bench.processes import anonymous_mib, cpu_seconds
from bench.scale import Scale
from bench.spark_loads import LOADS, PARTITIONS
from bench.subject import KIB_16, Subject, closing_all, now_ms

QUICK_PART = 0.1
SMALL, LARGE = 100, 1000


def loads(subject: Subject, scale: Scale, *, record_size: int, records: int, growth_from: int | None = None) -> Values:
    """Run the three loads over `records` records; with `growth_from`, over as many before, to compare the costs."""
    part = min(1.0, scale.part) * (1.0 if scale.rounds > 1 else QUICK_PART)
    values = dict(_measured(subject, record_size, max(PARTITIONS * 100, int(records * part))))
    if growth_from is not None:
        before = _measured(subject, record_size, max(PARTITIONS * 100, int(growth_from * part)))
        values["growth"] = values["scan CPU"] / before["scan CPU"] if before["scan CPU"] else 0.0
    return values


def _measured(subject: Subject, record_size: int, records: int) -> Values:
    values: dict[str, float] = {}
    with subject.topic(PARTITIONS) as topic, subject.topic(PARTITIONS) as target:
        stored = _fill(subject.port, topic, record_size, records)
        machine.settle()
        command = [sys.executable, "-P", "-m", "bench.spark_loads", f"127.0.0.1:{subject.port}", topic, target]
        root = Path(__file__).parents[2]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root, env=_environment(root)
        ) as spark:
            assert spark.stdout is not None
            cpu = start = 0.0
            for line in spark.stdout:
                kind, load, *count = line.split()
                if kind == "begin":
                    cpu, start = cpu_seconds(subject.pid), time.perf_counter()
                    continue
                seconds, cpu_s = time.perf_counter() - start, cpu_seconds(subject.pid) - cpu
                if int(count[0]) != stored:
                    raise RuntimeError(f"Spark read {count[0]} of {stored} records")
                values[f"{load} rate"] = stored / seconds
                values[f"{load} CPU"] = cpu_s / stored * 1e6
        if spark.returncode or len(values) != 2 * len(LOADS):
            raise RuntimeError(f"Spark ended with exit code {spark.returncode} after {sorted(values)}")
        values["memory"] = anonymous_mib(subject.pid)
    return values


def _environment(root: Path) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    return {**own, "PYTHONPATH": str(root)}


def _fill(port: int, topic: str, record_size: int, records: int) -> int:
    """Produce about `records` records evenly; return their number."""
    batch = batch_of_size(KIB_16, record_size, now_ms())
    per_partition = max(1, records // PARTITIONS // batch.record_count)
    streams: Sequence[ProduceStream] = [
        ProduceStream(port, topic, each, batch, in_flight=5) for each in range(PARTITIONS)
    ]
    with closing_all(streams):
        done = closed_loop(streams, requests=per_partition * PARTITIONS).requests
    return done * batch.record_count


def _measures(*, with_growth: bool) -> tuple[Measure, ...]:
    of_loads = [
        measure
        for load in LOADS
        for measure in (
            Measure(f"{load} rate", "records/s", HIGHER, times(1.0)),
            Measure(f"{load} CPU", "µs a record", LOWER, times(0.5), decimals=2),
        )
    ]
    growth = (Measure("growth", "x", LOWER, absolute(1.15), decimals=2),) if with_growth else ()
    return (*of_loads, Measure("memory", "MiB", LOWER, absolute(100)), *growth)


CASES = (
    Case(
        "spark",
        "Spark, 20,000,000 records of 100 B",
        _measures(with_growth=True),
        on_running=partial(loads, record_size=SMALL, records=20_000_000, growth_from=2_000_000),
        rounds_max=2,
    ),
    Case(
        "spark-1k",
        "Spark, 2,000,000 records of 1 KB",
        _measures(with_growth=False),
        on_running=partial(loads, record_size=LARGE, records=2_000_000),
        rounds_max=2,
    ),
)
