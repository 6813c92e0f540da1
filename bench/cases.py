"""The register of cases: one module per family, each with a table `CASES` and the functions that it names.

To add a family, write such a module and add it to `FAMILIES`; their order is that of the report.
"""

from __future__ import annotations

from bench import (
    application_cases,
    broker_cases,
    cleaner_cases,
    client_cases,
    cluster_cases,
    connect_cases,
    consumer_cases,
    figure_cases,
    group_cases,
    request_cases,
    spark_cases,
    storage_cases,
    transactions,
)
from bench.case import Case

FAMILIES = (
    broker_cases,
    consumer_cases,
    storage_cases,
    cleaner_cases,
    request_cases,
    client_cases,
    application_cases,
    group_cases,
    transactions,
    cluster_cases,
    spark_cases,
    connect_cases,
    figure_cases,
)
CASES: tuple[Case, ...] = tuple(case for family in FAMILIES for case in family.CASES)
