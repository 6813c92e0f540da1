"""Inputs of jobs, and their results by plain Python.

Owns: records that the tests of Spark jobs and those of Kafka Streams programs both send, and a short computation of the
result that both must have. Must not know Kafka, Spark, or how a program computes.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from spark_jobs.samples import START_MS, SampleObject, airport_lines, stock_prices, weather
from spark_jobs.skeleton.event_time import iso

HOUR_MS = 3_600_000
NOON_MS = START_MS // HOUR_MS * HOUR_MS
WEEK_DAYS = 7


class Row(NamedTuple):
    """A record; the time 0 is that of sending."""

    key: str | None
    value: str | None
    time_ms: int = 0


# -- wordcount --------------------------------------------------------------------------------------------------------


def word_lines(count: int) -> list[str]:
    """Return the first lines of the airports' names."""
    return list(islice(airport_lines(), count))


def plain_counts(texts: Iterable[str], stop_words: set[str]) -> dict[str, str]:
    words = (word for text in texts for word in re.split(r"\W+", text.lower()))
    return {word: str(count) for word, count in Counter(words).items() if word and word not in stop_words}


# -- stock_stats ------------------------------------------------------------------------------------------------------

Figures = tuple[float, int, float]
"""The lowest price, the number and the average price of asks."""


def plain_statistics(rows: Iterable[Mapping[str, Any]]) -> dict[str, Figures]:
    """Return the figures of the asks by ticker and window of five seconds."""
    prices: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["type"] == "ASK":
            second = row["time"] // 1000
            for start in range(second - 4, second + 1):
                prices[f"{row['ticker']}|{iso(start * 1000)}"].append(row["price"])
    return {key: (min(found), len(found), sum(found) / len(found)) for key, found in prices.items()}


# -- minmax -----------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """The lowest and highest price of a period, and the average of the last five at its end."""

    low: float
    high: float
    average: float


def yearly_prices() -> list[SampleObject]:
    """Return prices of stocks, and the highest temperature of a day of each week in Seattle as if it were a price."""
    days = islice(weather(), None, None, WEEK_DAYS)
    return [
        *stock_prices(),
        *({"symbol": "Seattle", "price": day["temp_max"], "time": day["time"]} for day in days),
    ]


def plain_ranges(prices: Iterable[Mapping[str, Any]]) -> dict[str, Range]:
    """Return the range of each symbol and year, by `symbol|year`."""
    last: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=5))
    ranges: dict[str, Range] = {}
    for row in prices:
        symbol, price = row["symbol"], row["price"]
        key = f"{symbol}|{datetime.fromtimestamp(row['time'] / 1000, UTC).year}"
        last[symbol].append(price)
        before = ranges.get(key, Range(price, price, price))
        average = sum(last[symbol]) / len(last[symbol])
        ranges[key] = Range(min(before.low, price), max(before.high, price), average)
    return ranges


# -- enrich_clicks ----------------------------------------------------------------------------------------------------


def click(user: str, page: str, second: int) -> Row:
    return Row(user, json.dumps({"page": page}), START_MS + second * 1000)


def profile(user: str, city: str | None, second: int) -> Row:
    return Row(user, None if city is None else json.dumps({"city": city}), START_MS + second * 1000)


PROFILES = (profile("ann", "Paris", 0), profile("bob", "Oslo", 5), profile("ann", "Rome", 20), profile("ann", None, 40))
"""The last one removes the profile."""
CLICKS = (
    click("bob", "/b", 1),
    click("eve", "/c", 2),
    click("ann", "/a", 10),
    click("ann", "/d", 21),
    click("ann", "/f", 50),
    click("bob", "/g", 60),
)
CITIES: Mapping[str, str | None] = {"/a": "Paris", "/b": None, "/c": None, "/d": "Rome", "/f": None, "/g": "Oslo"}
"""The city of the profile that each clicked page gets; None for a click without a profile."""


# -- click_search -----------------------------------------------------------------------------------------------------


def view(user: str, page: str, ms: int) -> Row:
    return Row(user, json.dumps({"user": user, "page": page}), START_MS + ms)


def search(user: str, terms: str, ms: int) -> Row:
    return Row(user, json.dumps({"user": user, "terms": terms}), START_MS + ms)


VIEWS = (
    view("u2", "other user", 10_000),
    view("u1", "inside", 10_000),
    view("u1", "edge", 10_500),
    view("u1", "outside", 12_000),
)
SEARCHES = (search("u1", "shoes", 9_500), search("u1", "boots", 10_200))
LATER_VIEWS = (view("u1", "much later", 60_000), view("u2", "much later", 60_000))
"""After them nothing can match the other views any more."""
LATER_SEARCHES = (search("u1", "much later", 60_001), search("u2", "much later", 60_001))
MATCHES = {("inside", "shoes"), ("inside", "boots"), ("edge", "shoes"), ("edge", "boots")}
"""The page and the terms of each match of the first views."""
ALONE = {("outside", None), ("other user", None)}


# -- country_count and late_events ------------------------------------------------------------------------------------


def page_view(country: str, hours: float) -> Row:
    """Return a view of a customer from a country, at a time after noon."""
    name = f"customer at {hours:g}"
    return Row(country, json.dumps({"name": name, "country": country}), NOON_MS + round(hours * HOUR_MS))


PAGE_VIEWS = (
    page_view("DE", 0),
    page_view("DE", 4),
    page_view("DE", 2),
    page_view("DE", -0.5),
    page_view("DE", 1),
    page_view("GB", 1.5),
)
TOO_LATE = 3
"""The position of the view that is more than three hours older than the newest one of its country."""


def plain_countries(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """Return the number of rows by country, as `country_count` writes it."""
    counted = Counter(str(row.key) for row in rows)
    return {country: {"country": country, "customers": count} for country, count in counted.items()}


def plain_hours(rows: Iterable[Row]) -> tuple[dict[str, int], int]:
    """Return the number of rows by `key|hour`, and how many were more than three hours late, for their key."""
    counted, newest_ms, late = Counter[str](), dict[str | None, int](), 0
    for row in rows:
        if row.time_ms < newest_ms.get(row.key, 0) - 3 * HOUR_MS:
            late += 1
            continue
        newest_ms[row.key] = max(newest_ms.get(row.key, 0), row.time_ms)
        counted[f"{row.key}|{iso(row.time_ms // HOUR_MS * HOUR_MS)}"] += 1
    return dict(counted), late
