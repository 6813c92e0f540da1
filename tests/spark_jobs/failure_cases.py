"""The two jobs that every failure is tested with: input, and what the output has to be after any disturbance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spark_jobs import stock_stats, wordcount
from spark_jobs.samples import airport_lines, trades
from spark_jobs.skeleton.job import Job
from tests.spark_jobs.conftest import Sent, lines
from tests.spark_jobs.plain_results import plain_counts
from tests.spark_jobs.test_stock_stats import assert_equals_plain_statistics, sent

Values = Mapping[str | None, str | None]


@dataclass(frozen=True)
class FailureCase:
    """A job, the records of its input, all in partition 0, and a comparison with the last values of its output."""

    job: Job[Any]
    records: list[Sent]
    check: Callable[[Values], None]


def _wordcount(count: int) -> FailureCase:
    texts = list(islice(airport_lines(), count))

    def check(values: Values) -> None:
        assert values == plain_counts(texts, {"the"})

    return FailureCase(wordcount.JOB, lines(*texts), check)


def _stock_stats(count: int) -> FailureCase:
    rows = list(trades(count, seed=3))
    return FailureCase(stock_stats.JOB, sent(rows), lambda values: assert_equals_plain_statistics(values, rows))


FAILURE_CASES: Mapping[str, Callable[[int], FailureCase]] = {"wordcount": _wordcount, "stock_stats": _stock_stats}
"""By the job's name, what returns its case with so many records."""
