"""The register of cases: one module per family, each with a table `CASES` and the functions that it names.

To add a family, write such a module and add it to `FAMILIES`; their order is that of the report.
"""

from __future__ import annotations

from bench.case import Case
from bench.cases import (
    application,
    broker,
    cleaner,
    clients,
    clusters,
    connect,
    consumers,
    figures,
    groups,
    requests,
    spark,
    storage,
    transactions,
)

FAMILIES = (
    broker,
    consumers,
    storage,
    cleaner,
    requests,
    clients,
    application,
    groups,
    transactions,
    clusters,
    spark,
    connect,
    figures,
)
CASES: tuple[Case, ...] = tuple(case for family in FAMILIES for case in family.CASES)
