"""The ranking holds exactly the highest gains, ties by symbol; its second phase can start alone."""

import json
import random
import shutil

import pytest

from spark_jobs.samples import START_MS
from spark_jobs.top10 import JOB
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values

pytestmark = pytest.mark.spark


def price(symbol: str, second: int, value: float) -> Sent:
    quote = {"symbol": symbol, "price": value}
    return Sent(json.dumps(quote).encode(), symbol.encode(), timestamp_ms=START_MS + second * 1000)


def test_ten_of_many_are_ranked_and_the_second_phase_starts_again_alone(topics: Topics, job_runner: JobRunner) -> None:
    source, gains, target = topics.create("prices", 1), topics.create("gains", 1), topics.create("top", 1)
    choose = random.Random(11)
    symbols = [f"S{number:02}" for number in range(15)]
    closing = {symbol: float(choose.choice((90, 100, 110, 120, 130))) for symbol in symbols}
    morning = [price(symbol, 0, 100.0) for symbol in symbols]
    noon = [price(symbol, 10, choose.uniform(50, 200)) for symbol in symbols]
    evening = [price(symbol, 20, closing[symbol]) for symbol in symbols]
    flags = ["--input", source, "--intermediate-topic", gains, "--output", target]
    for part in ([*morning, *noon], evening):
        topics.send(source, part)
        job_runner.run(JOB, *flags, "--phase", "gains")
    job_runner.run(JOB, *flags, "--phase", "ranks")
    ((day, ranking),) = last_values(topics.read(target)).items()
    assert day == "2023-11-14"
    best = sorted(symbols, key=lambda symbol: (-closing[symbol], symbol))[:10]
    rows = json.loads(str(ranking))
    assert [(row["rank"], row["symbol"]) for row in rows] == list(enumerate(best, 1))
    assert [row["gain"] for row in rows] == pytest.approx([closing[symbol] / 100 - 1 for symbol in best])
    shutil.rmtree(job_runner.folder / "checkpoint" / "ranks")
    again = topics.create("top", 1)
    job_runner.run(JOB, *flags[:-1], again, "--phase", "ranks", "--n", "3")
    assert [row["symbol"] for row in json.loads(str(last_values(topics.read(again))[day]))] == best[:3]
