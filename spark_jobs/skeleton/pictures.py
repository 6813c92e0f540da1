"""What a job draws: the last value of each key of its output topic, as bars or lines.

A job states how its values become a `Picture`; `plots` draws it. Every Python worker of Spark imports this module with
the job, so it imports no library for drawing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

Values = Mapping[str, str]
Series = Mapping[str, Sequence[tuple[datetime, float]]]
Bands = Mapping[str, Sequence[tuple[datetime, float, float]]]  # time, low and high


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn: bars by name; or for each name a line over time, or a band between two values."""

    title: str
    unit: str
    bars: Mapping[str, float] | None = None
    lines: Series | None = None
    bands: Bands | None = None
    is_ranked: bool = True  # whether bars are sorted by their value


Draw = Callable[[Values], Picture]


def time_of(text: str) -> datetime:
    """Parse a time of a job's output; a year or a month stands for its start."""
    return datetime.fromisoformat({4: f"{text}-01-01", 7: f"{text}-01"}.get(len(text), text)).replace(tzinfo=UTC)
