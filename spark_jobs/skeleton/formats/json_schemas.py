"""The schema of JSON values whose fields become columns: declared in a file, or inferred once and pinned.

An inferred schema is stored in the folder of the checkpoint, as `value-schema.ddl`, before the first batch. Later
starts read it there, so that the columns stay the same whatever the topic has by then. `reset` removes it with the
checkpoint.

A schema is written in Spark's DDL, such as `id BIGINT, tags ARRAY<STRING>`. A value fits it if it is an object whose
fields have the types of the schema; a field may be absent, and a STRING accepts every value. Fields that the schema
does not have are dropped.

Owns the file of the pinned schema. Must not know any job.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from spark_jobs.skeleton.errors import JobError, cause_of
from spark_jobs.skeleton.folders import Folder
from spark_jobs.skeleton.formats.schemas import is_json_object, read_text, value_text
from spark_jobs.skeleton.parameters import EARLIEST, JobParameters
from spark_jobs.skeleton.records import InputRule

PINNED = "value-schema.ddl"
SAMPLED_RECORDS = 10_000
"""Records of each partition, from its beginning, that the schema is inferred from."""

_MISFIT = "_misfit"  # the field in which Spark stores an object that does not fit


def declared_schema(uri: str, flag: str) -> StructType:
    """Return the schema of a file. Raises JobError, which names the flag."""
    text = read_text(flag, uri)
    try:
        return StructType.fromDDL(text)
    except PySparkException as error:
        raise JobError(f"{flag}: {uri} is not a schema in Spark's DDL: {cause_of(error)}") from error


def pinned_schema(spark: SparkSession, parameters: JobParameters, flag: str) -> StructType:
    """Return the schema of the checkpoint; if the checkpoint is new, infer and store it.

    Raises JobError, which names the flag, if the topics have no objects, or the checkpoint began without a schema.
    """
    checkpoint = Folder(spark, parameters.checkpoint)
    if checkpoint.has(PINNED):
        return declared_schema(f"{parameters.checkpoint}/{PINNED}", flag)
    if not checkpoint.is_new_checkpoint():
        raise JobError(f"{flag}: checkpoint {parameters.checkpoint} began without a schema: name a new one")
    inferred = _infer(spark, parameters, flag)
    checkpoint.write_text(PINNED, inferred)
    return StructType.fromDDL(inferred)


def refuse_pinned(spark: SparkSession, parameters: JobParameters, flag: str) -> None:
    """Raise JobError if the checkpoint has a schema, which this start, without `flag`, would ignore."""
    if Folder(spark, parameters.checkpoint).has(PINNED):
        raise JobError(f"checkpoint {parameters.checkpoint} has the schema of {flag}: pass {flag}, or name a new one")


def columns_rule(parameters: JobParameters, schema: StructType) -> InputRule:
    """Return the rule that accepts objects that fit `schema`, and records without a value: the column `fields`."""
    parsed = StructType([*schema.fields]).add(_MISFIT, StringType())

    def read(records: DataFrame) -> DataFrame:
        texts = records.withColumn("text", value_text(parameters))
        rows = texts.withColumn("parsed", f.from_json("text", parsed, {"columnNameOfCorruptRecord": _MISFIT}))
        return rows.withColumn("fields", f.col("parsed").dropFields(_MISFIT))

    fits = f"json_object_keys(text) IS NOT NULL AND parsed IS NOT NULL AND parsed.{_MISFIT} IS NULL"
    return InputRule(read, f"value IS NULL OR ({fits})", "an object of the schema")


def _infer(spark: SparkSession, parameters: JobParameters, flag: str) -> str:
    """Return the schema, as DDL, of the first records of each partition. Raises JobError."""
    options = {**parameters.source_options(), "startingOffsets": EARLIEST}
    options.pop("maxOffsetsPerTrigger", None)  # batches refuse it
    records = spark.read.format("kafka").options(**options).load()
    texts = records.select(value_text(parameters).alias("text")).rdd.mapPartitions(_first_objects)
    frame = spark.read.json(texts)
    if not frame.columns:
        raise JobError(f"{flag}: {parameters.input} has no JSON object to infer a schema from")
    return str(frame._jdf.schema().toDDL())


def _first_objects(rows: Iterable[Any]) -> Iterator[str]:
    return (row.text for row in islice(rows, SAMPLED_RECORDS) if is_json_object(row.text))
