"""Customers are counted by country."""

import json

import pytest

from spark_jobs.country_count import JOB
from tests.spark_jobs.conftest import JobRunner, Topics, last_values, rows
from tests.spark_jobs.plain_results import PAGE_VIEWS, plain_countries

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("flags", [[], ["--indent"]])
def test_the_last_value_of_a_country_is_its_number_of_customers(
    flags: list[str], topics: Topics, job_runner: JobRunner
) -> None:
    source, target = topics.create("customers", 1), topics.create("countries", 1)
    topics.send(source, rows(*PAGE_VIEWS))
    job_runner.run(JOB, "--input", source, "--output", target, *flags)
    found = last_values(topics.read(target))
    assert {country: json.loads(str(value)) for country, value in found.items()} == plain_countries(PAGE_VIEWS)
    assert all(("\n" in str(value)) == bool(flags) for value in found.values())
