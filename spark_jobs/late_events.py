"""Counts events per key and window of time, and corrects a window when events arrive late.

An event is late by the time that it is older than the newest event of its key. Up to `--lateness` it still counts,
and its window is emitted again. Beyond that it is only counted as late, and reported to `--late-topic`. Windows that
no event can reach any more leave the state.

Output: key `key|start of the window`, value `{"key", "window", "events"}`. Late reports: key the place of the record
(`topic/partition/offset`), value `{"key", "time", "newest"}`.

Lateness does not depend on how records are cut into batches, so any run over the same records has the same result.

Delivery: I, for both outputs. The last value of a window, and of a place, is valid.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.event_time import event_time, iso
from spark_jobs.skeleton.formats.schemas import value_text
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, interval, interval_ms
from spark_jobs.skeleton.pictures import Picture, Values, time_of
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters

_OUTPUT = "topic string, key string, value string"


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEventsParameters(JobParameters):
    window: str
    lateness: str
    late_topic: str


def build(spark: SparkSession, parameters: LateEventsParameters) -> list[StreamingQuery]:
    rule = InputRule(
        lambda records: records.withColumn("event_key", f.try_validate_utf8(f.col("key").cast("string"))).withColumn(
            "time_ms", f.unix_millis(event_time(value_text(parameters), parameters.time_field))
        ),
        "event_key IS NOT NULL AND time_ms IS NOT NULL",
        "an event with a key and a time",
    )
    counts = count_events(read_input(spark, parameters, rule), parameters)
    return [
        start_topic_query(counts, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def count_events(events: DataFrame, parameters: LateEventsParameters) -> DataFrame:
    """Return changed windows and late reports: the topic, key and value of each."""
    counter = _Counter(
        parameters.output,
        parameters.late_topic,
        interval_ms(parameters.window),
        interval_ms(parameters.lateness),
    )
    place = f.concat_ws("/", "topic", "partition", "offset").alias("place")
    rows = (
        events.select("event_key", "time_ms", "partition", "offset", place)
        .groupBy("event_key")
        .transformWithStateInPandas(counter, _OUTPUT, "update", "none")
    )
    return rows.observe("late", f.count_if(f.col("topic") == parameters.late_topic).alias("late"))


class _Counter(StatefulProcessor):  # type: ignore[misc]
    """Counts the events of one key per window. The state: the newest time, and the count of each open window."""

    def __init__(self, output: str, late_topic: str, window_ms: int, lateness_ms: int) -> None:
        self._output = output
        self._late_topic = late_topic
        self._window_ms = window_ms
        self._lateness_ms = lateness_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._newest = handle.getValueState("newest", "ms bigint")
        self._counts = handle.getMapState("counts", "start_ms bigint", "events bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        newest: int | None = self._newest.get()[0] if self._newest.exists() else None
        changed: dict[int, int] = {}
        late = []
        for event in pd.concat(rows).sort_values(["partition", "offset"]).itertuples():
            time_ms = int(event.time_ms)
            if newest is not None and time_ms < newest - self._lateness_ms:
                report = {"key": key[0], "time": iso(time_ms), "newest": iso(newest)}
                late.append((self._late_topic, event.place, json.dumps(report)))
                continue
            newest = time_ms if newest is None else max(newest, time_ms)
            start_ms = time_ms // self._window_ms * self._window_ms
            if start_ms not in changed:
                changed[start_ms] = self._counts.getValue((start_ms,))[0] if self._is_open(start_ms) else 0
            changed[start_ms] += 1
        assert newest is not None  # the first event of a key is never late
        self._newest.update((newest,))
        for start_ms, events in changed.items():
            self._counts.updateValue((start_ms,), (events,))
        self._close_windows(newest)
        windows = [self._window(key[0], start_ms, events) for start_ms, events in sorted(changed.items())]
        yield pd.DataFrame([*windows, *late], columns=["topic", "key", "value"])

    def close(self) -> None: ...

    def _is_open(self, start_ms: int) -> bool:
        return bool(self._counts.exists()) and bool(self._counts.containsKey((start_ms,)))

    def _close_windows(self, newest_ms: int) -> None:
        """Forget the windows that no event in time can reach any more."""
        for (start_ms,) in list(self._counts.keys()):
            if start_ms + self._window_ms <= newest_ms - self._lateness_ms:
                self._counts.removeKey((start_ms,))

    def _window(self, key: str, start_ms: int, events: int) -> tuple[str, str, str]:
        start = iso(start_ms)
        return self._output, f"{key}|{start}", json.dumps({"key": key, "window": start, "events": events})


def draw(values: Values) -> Picture:
    lines = defaultdict(list)
    for value in map(json.loads, values.values()):
        lines[value["key"]].append((time_of(value["window"]), value["events"]))
    return Picture("Events per key and window", "events", lines=lines)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--window", type=interval, default="1 hour", help="length of a window (default %(default)s)")
    add("--lateness", type=interval, default="3 hours", help="how late an event may be (default %(default)s)")
    add("--late-topic", default="late-events", metavar="TOPIC", help="topic of late reports (default %(default)s)")
    add("--time-field", metavar="NAME", help="JSON field with the event time (default: the record's timestamp)")


JOB = Job(
    name="late_events",
    doc=__doc__,
    parameters=LateEventsParameters,
    build=build,
    input="events",
    output="event-counts",
    output_config=COMPACTED,
    add_flags=_add_flags,
    further_topics=lambda parameters: [parameters.topic(parameters.late_topic, COMPACTED)],
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
