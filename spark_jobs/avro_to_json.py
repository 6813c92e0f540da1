"""Copies a topic, with the values converted from Avro to JSON.

`--value-format avro` with `--schema FILE` reads plain Avro; `avro-registry` with `--schema-registry URL` reads the
registry's framing, each record with the schema that it was written with; `--schema` is then the reader's schema. Bytes
become base64, decimals texts, times ISO 8601. With `--envelope FILE`, a Connect schema, values get Connect's envelope.
Tombstones stay tombstones. Key, headers and partition stay.

Delivery: U. Each record has the header `record-id`.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, same_partition, start_topic_query
from spark_jobs.skeleton.formats.schemas import envelope, read_text, value_text
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroToJsonParameters(JobParameters):
    envelope: str | None


def build(spark: SparkSession, parameters: AvroToJsonParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if a schema is missing."""
    text = value_text(parameters)

    def read(records: DataFrame) -> DataFrame:
        return records.withColumn("json", f.when(f.col("value").isNotNull(), text))

    rule = InputRule(read, "value IS NULL OR json IS NOT NULL", "a value of the schema")
    json = f.col("json")
    if parameters.envelope is not None:
        json = f.when(json.isNotNull(), envelope(json, read_text("--envelope", parameters.envelope)))
    rows = read_input(spark, parameters, rule).select(
        "key",
        json.alias("value"),
        same_partition(parameters, parameters.output).alias("partition"),
        record_id_headers().alias("headers"),
    )
    return [start_topic_query(rows, parameters), *start_dead_letters(spark, parameters, rule)]


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--envelope", metavar="FILE", help="Connect schema (JSON): write values in Connect's envelope")
    parser.set_defaults(value_format="avro")


JOB = Job(
    name="avro_to_json",
    doc=__doc__,
    parameters=AvroToJsonParameters,
    build=build,
    input="events-avro",
    output="events-json",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
