"""Customers are counted by country."""

import json

import pytest

from spark_jobs.country_count import JOB
from tests.spark_jobs.conftest import JobRunner, Topics, last_values, objects

pytestmark = pytest.mark.spark

CUSTOMERS = [
    {"name": "Ada", "country": "GB"},
    {"name": "Emmy", "country": "DE"},
    {"name": "Sofia", "country": "RU"},
    {"name": "Felix", "country": "DE"},
]


@pytest.mark.parametrize("flags", [[], ["--indent"]])
def test_the_last_value_of_a_country_is_its_number_of_customers(
    flags: list[str], topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("customers", 1), topics.create("countries", 1)
    topics.send(source, objects(*CUSTOMERS))
    job_runner.run(JOB, "--input", source, "--output", target, *flags)
    found = last_values(topics.read(target))
    assert {country: json.loads(str(value)) for country, value in found.items()} == {
        country: {"country": country, "customers": customers}
        for country, customers in (("GB", 1), ("DE", 2), ("RU", 1))
    }
    assert all(("\n" in str(value)) == bool(flags) for value in found.values())
