"""Transforms do what Kafka 3.9's do; see golden/record.py."""

from typing import Any

from tests.spark_jobs.connect.golden.compare import check, parameters


@parameters("transform")
def test_records_become_those_of_kafka(case: dict[str, Any], recorded: dict[str, Any]) -> None:
    check(case, recorded)
