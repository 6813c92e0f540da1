"""Stock and balance equal a plain computation, also when the events are read again from the start."""

import json
import random
from collections import Counter
from decimal import Decimal

import pytest

from spark_jobs.inventory import JOB
from tests.spark_jobs.conftest import JobRunner, Topics, last_values, objects

pytestmark = pytest.mark.spark


def test_stock_balance_and_transactions_follow_from_the_events(topics: Topics, job_runner: JobRunner) -> None:
    source, target = topics.create("stock", 1), topics.create("inventory", 1)
    choose = random.Random(2)
    events, stock, balance = [], Counter[str](), Decimal()
    for _ in range(300):
        kind = choose.choice(("shipment", "sale", "sale", "return"))
        item, quantity, cents = choose.choice("abc"), choose.randrange(1, 9), choose.randrange(10_000)
        events.append({"type": kind, "item": item, "quantity": quantity, "price": cents / 100})
        sign = -1 if kind == "sale" else 1
        stock[item] += sign * quantity
        balance -= sign * quantity * Decimal(cents) / 100
    flags = ["--input", source, "--output", target]
    for part in (events[:100], events[100:]):
        topics.send(source, objects(*part))
        job_runner.run(JOB, *flags)
    expected = {f"item|{item}": {"stock": count} for item, count in stock.items()}
    found = {
        key: json.loads(str(value), parse_float=Decimal) for key, value in last_values(topics.read(target)).items()
    }
    assert found == {**expected, "bank": {"balance": balance, "transactions": 300}}
    again = topics.create("inventory", 1)
    job_runner.run(JOB, "--input", source, "--output", again, "--checkpoint", str(job_runner.folder / "again"))
    assert last_values(topics.read(again)) == last_values(topics.read(target))
