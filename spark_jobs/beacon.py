"""Reports a host that contacts an address which it has not contacted before.

Input: `{"host": "web1", "address": "10.0.0.7"}`. During the first `--learn` of a host, counted from its first event,
its addresses are learned silently. Later a new address raises one alarm and is learned too. An address that the host
has not contacted for `--forget` is new again. Such addresses, and hosts without events for as long, leave the state.

Output: key `host|address`, value `{"host", "address", "time"}`, the time of the contact.

Delivery: I. The last value of a host and address is valid.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.event_time import iso
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters, interval, interval_ms
from spark_jobs.skeleton.records import read_input, start_dead_letters, timed_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BeaconParameters(JobParameters):
    learn: str
    forget: str


def build(spark: SparkSession, parameters: BeaconParameters) -> list[StreamingQuery]:
    rule = timed_rule(
        parameters, "host string, address string", "body.host IS NOT NULL AND body.address IS NOT NULL", "a contact"
    )
    alarms = new_addresses(read_input(spark, parameters, rule), parameters)
    return [
        start_topic_query(alarms, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def new_addresses(contacts: DataFrame, parameters: BeaconParameters) -> DataFrame:
    """Return the alarms, as key and value."""
    processor = _Addresses(interval_ms(parameters.learn), interval_ms(parameters.forget))
    return (
        contacts.withWatermark("time", parameters.watermark)
        .select("body.host", "body.address", "time", f.unix_millis("time").alias("time_ms"), "partition", "offset")
        .groupBy("host")
        .transformWithStateInPandas(processor, "key string, value string", "update", "eventTime")
    )


class _Addresses(StatefulProcessor):  # type: ignore[misc]
    """Knows the addresses of one host, with the time of the last contact, and when the host was first seen."""

    def __init__(self, learn_ms: int, forget_ms: int) -> None:
        self._learn_ms = learn_ms
        self._forget_ms = forget_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._first = handle.getValueState("first", "ms bigint")
        self._contacts = handle.getMapState("contacts", "address string", "last_ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        host = key[0]
        contacts = {address: last for (address,), (last,) in self._known()}
        first = self._first.get()[0] if self._first.exists() else None
        alarms = []
        for row in pd.concat(rows).sort_values(["partition", "offset"]).itertuples():
            time_ms, address = int(row.time_ms), str(row.address)
            first = time_ms if first is None else first
            last = contacts.get(address)
            if time_ms >= first + self._learn_ms and (last is None or time_ms - last > self._forget_ms):
                alarms.append((f"{host}|{address}", _alarm(host, address, time_ms)))
            contacts[address] = max(time_ms, last or time_ms)
            self._contacts.updateValue((address,), (contacts[address],))
        # Events before the watermark do not come, so these addresses are new again for every event.
        for address, last in contacts.items():
            if last + self._forget_ms < timerValues.getCurrentWatermarkInMs():
                self._contacts.removeKey((address,))
        self._first.update((first,))
        self._set_timer(max(contacts.values()) + self._forget_ms)
        yield pd.DataFrame(alarms, columns=["key", "value"])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        self._first.clear()
        self._contacts.clear()
        yield pd.DataFrame([], columns=["key", "value"])

    def close(self) -> None: ...

    def _known(self) -> list[Any]:
        return list(self._contacts.iterator()) if self._contacts.exists() else []

    def _set_timer(self, expiry_ms: int) -> None:
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(expiry_ms)


def _alarm(host: str, address: str, time_ms: int) -> str:
    return json.dumps({"host": host, "address": address, "time": iso(time_ms)})


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--learn", type=interval, default="1 day", help="time in which a host's addresses are learned (default 1 day)")
    add("--forget", type=interval, default="30 days", help="time after which a contact is forgotten (default 30 days)")


JOB = Job(
    name="beacon",
    doc=__doc__,
    parameters=BeaconParameters,
    build=build,
    input="contacts",
    output="beacon-alarms",
    output_config=COMPACTED,
    watermark="1 hour",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
