"""Records that a job cannot read fail it, are counted, or become dead letters, as the flags demand."""

import logging
from typing import Any

import pytest

from spark_jobs import audit, big_txn, click_search, inventory, minmax, stock_stats
from spark_jobs.country_count import JOB
from spark_jobs.skeleton.job import DEAD_LETTER_CONFIG, Job
from tests.spark_jobs.conftest import JobRunner, Sent, Topics, last_values, objects, records

pytestmark = pytest.mark.spark

GOOD = Sent(b'{"country":"DE"}', b"k1", headers=[("trace", b"1")])
BAD = [
    Sent(b"{", b"k2", headers=[("trace", b"2")]),
    Sent(b'{"country":5e}', b"k3"),
    Sent(b"[1]", None),
    Sent(None, b"k4"),
    Sent(b'{"name":"x"}', b"k5"),
]
ONE_CUSTOMER = {"DE": '{"country":"DE","customers":1}'}


@pytest.fixture
def source(topics: Topics) -> str:
    topic = topics.create("mixed", 1)
    topics.send(topic, [GOOD, *BAD])
    return topic


def test_an_unreadable_record_fails_the_job_by_default_with_its_place(
    source: str, topics: Topics, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    assert job_runner.supervise(JOB, "--input", source, "--output", topics.create("countries")) == 1
    (failure,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert failure == f"query failed: record at {source}-0 offset 1 is not a customer with a country"


def test_skipped_records_are_counted_and_dropped(
    source: str, topics: Topics, job_runner: JobRunner, caplog: pytest.LogCaptureFixture
) -> None:
    target = topics.create("countries")
    caplog.set_level(logging.INFO, "spark_jobs")
    assert job_runner.supervise(JOB, "--input", source, "--output", target, "--on-error", "skip") == 0
    assert last_values(topics.read(target)) == ONE_CUSTOMER
    assert "country_count: batch 0: 5 malformed records" in caplog.text
    assert "country_count: batch 0: 6 records in " in caplog.text
    assert "lag 0, state 1 rows" in caplog.text
    assert "country_count: 6 records in 1 batch," in caplog.text


def test_a_record_of_the_largest_size_becomes_a_dead_letter(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("large", 1), topics.create("countries")
    dead = topics.create("dead", 1, dict(DEAD_LETTER_CONFIG))
    value = b"{" + b"x" * 1_048_450
    topics.send(source, [Sent(value)], {"message.max.bytes": "2000000"})
    job_runner.run(JOB, "--input", source, "--output", target, "--dead-letter", dead)
    assert [message.value() for message in topics.read(dead)] == [value]


SALE = {"type": "sale", "item": "chair", "quantity": 1, "price": 1}
REPORT = {"side": "producer", "topic": "orders", "time": 1_700_000_000_000, "count": 1}
TRADE = {"type": "ASK", "ticker": "IBM", "symbol": "IBM", "price": 1.0, "size": 1}


@pytest.mark.parametrize(
    ("job", "good", "field", "unreadable"),
    [
        (inventory.JOB, SALE, "quantity", 2**62),
        (audit.JOB, REPORT, "count", 2**62),
        (minmax.JOB, TRADE, "price", "NaN"),
        (stock_stats.JOB, TRADE, "price", "Infinity"),
        (big_txn.JOB, {"amount": 1}, "amount", "NaN"),
    ],
    ids=["inventory", "audit", "minmax", "stock_stats", "big_txn"],
)
def test_numbers_that_would_spoil_later_results_are_unreadable(
    job: Job[Any], good: dict[str, object], field: str, unreadable: object, topics: Topics, job_runner: JobRunner
) -> None:
    source = topics.create("numbers", 1)
    topics.send(source, objects(good, *[{**good, field: unreadable}] * 3))
    flags = ["--input", source, "--output", topics.create("results"), "--on-error", "skip"]
    assert sum(batch.malformed for batch in job_runner.run(job, *flags)) == 3


@pytest.mark.parametrize("is_dead_letter_wanted", [False, True])
def test_unreadable_records_of_both_inputs_of_a_join_are_counted(
    is_dead_letter_wanted: bool, topics: Topics, job_runner: JobRunner
) -> None:
    views, searches, dead = topics.create("views", 1), topics.create("searches", 1), topics.create("dead", 1)
    topics.send(views, [Sent(b'{"user":"u","page":"p"}'), Sent(b"{")])
    topics.send(searches, [Sent(b'{"user":"u","terms":"t"}'), Sent(b"[]"), Sent(None)])
    flags = ["--input", views, "--searches", searches, "--output", topics.create("joined", 1)]
    flags += ["--dead-letter", dead] if is_dead_letter_wanted else ["--on-error", "skip"]
    batches = job_runner.run(click_search.JOB, *flags)
    assert sum(batch.malformed for batch in batches) == 3
    letters = {message.value() for message in topics.read(dead)}
    assert letters == ({b"{", b"[]", None} if is_dead_letter_wanted else set())


def test_dead_letters_keep_the_record_and_name_its_place_and_the_error(
    source: str, topics: Topics, job_runner: JobRunner
) -> None:
    target, dead = topics.create("countries"), topics.create("dead", 1)
    flags = ["--input", source, "--output", target, "--dead-letter", dead]
    for _ in range(2):
        job_runner.run(JOB, *flags)
    letters = topics.read(dead)
    assert records(letters) == records(topics.read(source))[1:]
    assert letters[0].headers() == [
        ("trace", b"2"),
        ("dead-letter.topic", source.encode()),
        ("dead-letter.partition", b"0"),
        ("dead-letter.offset", b"1"),
        ("dead-letter.error", f"record at {source}-0 offset 1 is not a customer with a country".encode()),
    ]
    assert last_values(topics.read(target)) == ONE_CUSTOMER
