"""Counts customers by country.

Input: `{"name": "...", "country": "DE"}`. Output: key the country, value `{"country": "DE", "customers": 2}`, on one
line or, with `--indent`, on several. Each batch emits the countries whose count it changed.

Delivery: I. The last value of a country is valid.
"""

import argparse
import json
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import start_topic_query
from spark_jobs.skeleton.job import COMPACTED, Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.pictures import Picture, Values
from spark_jobs.skeleton.records import object_rule, read_input, start_dead_letters


@dataclass(frozen=True, slots=True, kw_only=True)
class CountryCountParameters(JobParameters):
    indent: bool


def build(spark: SparkSession, parameters: CountryCountParameters) -> list[StreamingQuery]:
    rule = object_rule(parameters, "country string", "body.country IS NOT NULL", "a customer with a country")
    counts = count_customers(read_input(spark, parameters, rule), is_indented=parameters.indent)
    return [
        start_topic_query(counts, parameters, output_mode="update"),
        *start_dead_letters(spark, parameters, rule),
    ]


def count_customers(records: DataFrame, *, is_indented: bool) -> DataFrame:
    counted = records.groupBy(f.col("body.country").alias("country")).agg(f.count("*").alias("customers"))
    value = f.to_json(f.struct("country", "customers"), {"pretty": str(is_indented).lower()})
    return counted.select(f.col("country").alias("key"), value.alias("value"))


def draw(values: Values) -> Picture:
    counts = {country: json.loads(value)["customers"] for country, value in values.items()}
    return Picture("Customers by country", "customers", bars=counts)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--indent", action="store_true", help="write the JSON on several lines")


JOB = Job(
    name="country_count",
    doc=__doc__,
    parameters=CountryCountParameters,
    build=build,
    input="customers",
    output="customer-countries",
    output_config=COMPACTED,
    add_flags=_add_flags,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
