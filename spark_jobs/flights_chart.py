"""Draws the table that `flights_daily` wrote as one picture.

The upper part shows every row: one line per carrier, one column per day, the 95th percentile of the departure delay
as colour. The lower part shows the share of each day's cancelled flights, over all carriers. It reads only the Parquet
folder.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import dates as date_axis
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from spark_jobs.flights import carrier_names
from spark_jobs.flights_daily import read_table
from spark_jobs.skeleton.parameters import add_session_settings, bare_parser, session_settings
from spark_jobs.skeleton.programs import run_program
from spark_jobs.skeleton.session import spark_session

_INK = "#2b2f36"
_QUIET = "#8a9099"
_NO_FLIGHTS = "#eceef1"
_BAR = "#c2410c"
_COLOURS = "magma_r"
_COLOUR_LIMIT_MINUTES = 180
_LABELLED_DAYS = 4
_COMPANY_SUFFIXES = (" Inc.", " Co.", " Corporation", " Airlines", " Air Lines", " Airways")


class DailyDelay(NamedTuple):
    """One row of the table: a carrier's departures on one day."""

    carrier: str
    day: date
    flights: int
    cancelled: int
    departure_delay_mean_minutes: float | None
    departure_delay_p95_minutes: float | None


def render(rows: Sequence[DailyDelay], image: Path) -> None:
    """Write the chart as a PNG. `rows` must not be empty; their order does not matter."""
    first_day, last_day = min(row.day for row in rows), max(row.day for row in rows)
    days = [first_day + timedelta(days=n) for n in range((last_day - first_day).days + 1)]
    figure = Figure(figsize=(12, 7.6), dpi=150, layout="constrained", facecolor="white")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    _draw_delays(figure, upper, rows, days)
    _draw_cancellations(lower, rows, days)
    image.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(image)


def _draw_delays(figure: Figure, axes: Axes, rows: Sequence[DailyDelay], days: list[date]) -> None:
    flights = Counter[str]()
    for row in rows:
        flights[row.carrier] += row.flights
    carriers = [carrier for carrier, _ in flights.most_common()]
    names = carrier_names()
    mesh = axes.pcolormesh(
        _edges(days),
        np.arange(len(carriers) + 1) - 0.5,
        _percentiles(rows, carriers, days),
        cmap=_COLOURS,
        vmin=0,
        vmax=_COLOUR_LIMIT_MINUTES,
        rasterized=True,
    )
    axes.set_facecolor(_NO_FLIGHTS)
    axes.set_yticks(range(len(carriers)), [f"{_short(names.get(c, c))}  {c}" for c in carriers], color=_INK)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _title(axes, f"95th percentile of departure delay by carrier and day ({sum(flights.values()):,} flights)")
    bar = figure.colorbar(mesh, ax=axes, extend="max", pad=0.01, aspect=30, shrink=0.92)
    bar.set_label("minutes (grey: no departure)", color=_INK)
    bar.outline.set_visible(False)


def _draw_cancellations(axes: Axes, rows: Sequence[DailyDelay], days: list[date]) -> None:
    flights, cancelled = Counter[date](), Counter[date]()
    for row in rows:
        flights[row.day] += row.flights
        cancelled[row.day] += row.cancelled
    percent = {day: 100 * cancelled[day] / flights[day] for day in days if flights[day]}
    axes.bar(np.array(list(percent)), list(percent.values()), width=1.0, color=_BAR)
    for day in _peaks(percent):
        axes.annotate(
            f"{day:%-d %b}  {percent[day]:.0f} %",
            (date_axis.date2num(day), percent[day]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            color=_INK,
            fontsize=9,
        )
    _title(axes, "Flights cancelled, % of the day")
    axes.set_ylim(0, max(percent.values()) * 1.25 or 1)  # room for the labels
    months = date_axis.MonthLocator()
    axes.xaxis.set_major_locator(months)
    axes.xaxis.set_major_formatter(date_axis.ConciseDateFormatter(months))
    axes.tick_params(colors=_INK, length=3)
    axes.grid(axis="y", color=_NO_FLIGHTS)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(_QUIET)


def _percentiles(rows: Sequence[DailyDelay], carriers: list[str], days: list[date]) -> NDArray[np.float64]:
    """Return the percentiles by carrier and day; NaN for a carrier without a departure."""
    line = {carrier: number for number, carrier in enumerate(carriers)}
    grid = np.full((len(carriers), len(days)), np.nan)
    for row in rows:
        if row.departure_delay_p95_minutes is not None:
            grid[line[row.carrier], (row.day - days[0]).days] = row.departure_delay_p95_minutes
    return grid


def _edges(days: list[date]) -> NDArray[np.float64]:
    """Return the edges of the columns, so that each day is centred on its date like the bars below."""
    return np.append(date_axis.date2num(days), date_axis.date2num(days[-1]) + 1) - 0.5


def _peaks(percent: dict[date, float]) -> list[date]:
    """Return the worst days, without those next to a worse day."""
    named: list[date] = []
    for day in sorted(percent, key=percent.__getitem__, reverse=True):
        if all(abs((day - other).days) > 7 for other in named):
            named.append(day)
        if len(named) == _LABELLED_DAYS:
            break
    return named


def _short(name: str) -> str:
    for suffix in _COMPANY_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", color=_INK, fontsize=12, fontweight="bold", pad=8)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = bare_parser("flights_chart", "Draws the daily delays.")
    parser.add_argument("--parquet", type=Path, required=True, metavar="DIR", help="what flights_daily wrote")
    parser.add_argument("--image", type=Path, required=True, metavar="FILE", help="the PNG to write")
    add_session_settings(parser.add_argument)
    flags = parser.parse_args(arguments)
    if not any(flags.parquet.glob("batch=*")):
        parser.error(f"argument --parquet: {flags.parquet} has no batch of flights_daily")

    def prepare() -> SparkSession:
        return spark_session("flights_chart", session_settings(flags.master, flags.spark_conf))

    def work(spark: SparkSession) -> None:
        try:
            rows = [DailyDelay(**row.asDict()) for row in read_table(spark, str(flags.parquet)).collect()]
        finally:
            spark.stop()
        render(rows, flags.image)
        print(f"{len(rows)} rows are drawn in {flags.image}")

    return run_program("flights_chart", prepare, work)


if __name__ == "__main__":
    sys.exit(main())
