"""Copies a topic, with the values converted from JSON to Avro.

`--output-schema` names the Avro schema. With `--output-registry` it is registered under `TOPIC-value`, and values
have the registry's framing; otherwise they are plain Avro. Fields that the schema does not have are dropped; a value
that does not fit the schema is an unreadable record (`--on-error`). Bytes are base64, decimals texts or numbers, dates
and times ISO 8601 or the numbers that Avro stores: what `avro_to_json` writes can be read back. Tombstones stay
tombstones. Key, headers and partition stay.

Delivery: U. Each record has the header `record-id`.
"""

import argparse
import sys
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from spark_jobs.skeleton.delivery import record_id_headers, same_partition, start_topic_query
from spark_jobs.skeleton.formats.schemas import encode, read_schema, value_text
from spark_jobs.skeleton.job import Job
from spark_jobs.skeleton.parameters import JobParameters, web_url
from spark_jobs.skeleton.records import InputRule, read_input, start_dead_letters


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonToAvroParameters(JobParameters):
    output_schema: str
    output_registry: str | None


def build(spark: SparkSession, parameters: JsonToAvroParameters) -> list[StreamingQuery]:
    """Start the query. Raises JobError if the schema is missing, or the registry refuses it."""
    schema = read_schema(parameters.output_schema, "--output-schema")
    avro = encode(value_text(parameters), schema, parameters.output_registry, f"{parameters.output}-value")

    def read(records: DataFrame) -> DataFrame:
        return records.withColumn("avro", f.when(f.col("value").isNotNull(), avro))

    rule = InputRule(read, "value IS NULL OR avro IS NOT NULL", "an object of the schema")
    rows = read_input(spark, parameters, rule).select(
        "key",
        f.col("avro").alias("value"),
        same_partition(parameters, parameters.output).alias("partition"),
        record_id_headers().alias("headers"),
    )
    return [start_topic_query(rows, parameters), *start_dead_letters(spark, parameters, rule)]


def _add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("this job").add_argument
    add("--output-schema", required=True, metavar="FILE", help="Avro schema to write, a file or URI")
    add(
        "--output-registry",
        type=web_url,
        metavar="URL",
        help="registry for the schema (default: plain Avro without framing)",
    )


JOB = Job(
    name="json_to_avro",
    doc=__doc__,
    parameters=JsonToAvroParameters,
    build=build,
    input="events-json",
    output="events-avro",
    add_flags=_add_flags,
)

if __name__ == "__main__":
    sys.exit(JOB.main())
