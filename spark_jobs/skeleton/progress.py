"""What a job reports about its batches: one line each, and a summary at its end.

Owns the figures that Spark's progress of a batch contains, and their wording. Must not know where they are shown.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.commits import Offsets, spark_offsets

_LOG = logging.getLogger(__name__)


GAUGES, COUNTERS = "gauges", "counters"
"""Observations of a query whose columns are metrics of its job: values of the newest batch that has them, and sums."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The figures of one batch of one query."""

    query: str
    number: int
    records: int
    duration_ms: int
    lag: int  # records that the topics had beyond the end of the batch
    state_rows: int
    late: int
    malformed: int
    end_offsets: Offsets = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def records_per_second(self) -> int:
        return round(self.records * 1000 / max(self.duration_ms, 1))


def to_batch(query: str, progress: Any) -> Batch:
    """Convert Spark's progress of a batch."""
    operators = progress["stateOperators"]
    ends: dict[str, dict[int, int]] = {}
    lag = 0
    for source in progress["sources"]:
        end, newest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for topic, partitions in end.items():
            ends.setdefault(topic, {}).update(partitions)
            lag += sum(
                max(newest.get(topic, {}).get(partition, 0) - offset, 0) for partition, offset in partitions.items()
            )
    return Batch(
        query=query,
        number=progress["batchId"],
        records=progress["numInputRows"],
        duration_ms=progress["durationMs"].get("triggerExecution", 0),
        lag=lag,
        state_rows=sum(operator["numRowsTotal"] for operator in operators),
        late=sum(operator["numRowsDroppedByWatermark"] for operator in operators) + observed(progress, "late"),
        malformed=observed(progress, "malformed"),
        end_offsets=ends,
        gauges=job_metrics(progress, GAUGES),
        counters=job_metrics(progress, COUNTERS),
    )


def observed(progress: Any, metric: str) -> int:
    """Return the sum of the query's observations named `metric`."""
    return sum(row[metric] for row in progress["observedMetrics"].values() if metric in row)


def job_metrics(progress: Any, observation: str) -> dict[str, float]:
    """Return the columns of an observation that have values."""
    row = progress["observedMetrics"].get(observation)
    values = {} if row is None else row.asDict()
    return {name: float(value) for name, value in values.items() if value is not None}


def _offsets(text: Any) -> Offsets:
    if isinstance(text, str):
        try:
            text = json.loads(text.replace("'", '"'))  # Python's progress holds the repr of a mapping
        except ValueError:
            return {}
    return spark_offsets(text)


class NewBatches:
    """Finds the batches of queries that were not seen before."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, query: StreamingQuery) -> list[Batch]:
        """Return the finished batches since the last call, in order."""
        name = query.name or str(query.id)
        found = []
        for progress in query.recentProgress:
            if progress["batchId"] > self._seen.get(name, -1):
                self._seen[name] = progress["batchId"]
                found.append(to_batch(name, progress))
        return found


class ProgressLines:
    """Logs each batch with records once, and the totals at the end."""

    def __init__(self, app_id: str, checkpoint: str) -> None:
        self._app_id = app_id
        self._checkpoint = checkpoint
        self._started_s = time.monotonic()
        self._batches = 0
        self._totals: Mapping[str, int] = {"records": 0, "late": 0, "malformed": 0}

    def on_batch(self, batch: Batch) -> None:
        self._totals = {name: total + getattr(batch, name) for name, total in self._totals.items()}
        if batch.records:
            self._batches += 1
            state = f", state {batch.state_rows:,} rows" if batch.state_rows else ""
            _LOG.info(
                "%s: batch %d: %s records in %s ms (%s/s), lag %s%s",
                batch.query, batch.number, f"{batch.records:,}", f"{batch.duration_ms:,}",
                f"{batch.records_per_second:,}", f"{batch.lag:,}", state,
            )  # fmt: skip
        if batch.late:
            _LOG.warning(
                "%s: batch %d: %d rows arrived later than the watermark allows and are not counted",
                batch.query, batch.number, batch.late,
            )  # fmt: skip
        if batch.malformed:
            _LOG.warning("%s: batch %d: %d malformed records", batch.query, batch.number, batch.malformed)

    def close(self) -> None:
        seconds = time.monotonic() - self._started_s
        batches = "1 batch" if self._batches == 1 else f"{self._batches:,} batches"
        _LOG.info(
            "%s: %s records in %s, %.1f s; %d late, %d malformed; continues from %s",
            self._app_id, f"{self._totals['records']:,}", batches, seconds,
            self._totals["late"], self._totals["malformed"], self._checkpoint,
        )  # fmt: skip
