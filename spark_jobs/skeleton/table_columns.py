"""The columns that objects need and a table does not have.

The types are those that the values declare in Connect's envelope, or else those that Spark infers from the values. A
field without a value in all objects needs no column yet.

Owns the types. Must not know how a table gets its columns.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_jobs.skeleton.errors import JobError
from spark_jobs.skeleton.parameters import is_sql_name

Types = Mapping[str, DataType | None]
"""By name of a field; None for a type that no column of a table has."""

_ENVELOPE = "json-envelope"
_PLAIN: Mapping[str, DataType] = {
    "int8": ShortType(), "int16": ShortType(), "int32": IntegerType(), "int64": LongType(), "float": FloatType(),
    "double": DoubleType(), "boolean": BooleanType(), "string": StringType(),
}  # fmt: skip
_PRECISION_MAX = 38
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
_STORABLE = (BooleanType, DecimalType, DoubleType, LongType, StringType)


def missing_columns(objects: DataFrame, known: Collection[str], value_format: str) -> StructType:
    """Return a column for each field that is not in `known`, in the order of their names.

    `objects` have the columns `payload`, the text of a JSON object, and `value`, that of the record. Names are compared
    without regard to case. Raises JobError, which names the field, if no column can store it.
    """
    keys = objects.select(f.explode(f.expr("json_object_keys(payload)")).alias("name")).distinct()
    lower = {name.lower() for name in known}
    names = sorted(row.name for row in keys.collect() if row.name.lower() not in lower)
    if not names:
        return StructType([])
    types = _declared(objects) if value_format == _ENVELOPE else _inferred(objects)
    found: dict[str, StructField] = {}
    for name in names:
        if name not in types:
            continue  # it is null in all objects
        kind = types[name]
        if kind is None or not is_sql_name(name):
            raise JobError(
                f"the field {name!r:.100} needs a column that the table cannot get: expected a name of letters, digits "
                "and '_', and a number, a text, a boolean or a time as its value"
            )
        found.setdefault(name.lower(), StructField(name, kind))
    return StructType(list(found.values()))


def _declared(objects: DataFrame) -> Types:
    """Return the types that the schemas of envelopes state. Raises JobError if they contradict each other."""
    schema = f.get_json_object(f.try_validate_utf8(f.col("value").cast("string")), "$.schema.fields")
    found: dict[str, DataType | None] = {}
    for row in objects.select(schema.alias("fields")).where("fields IS NOT NULL").distinct().collect():
        for field in json.loads(row.fields):
            name, kind = str(field.get("field")), _connect_type(field)
            if found.setdefault(name, kind) != kind:
                raise JobError(f"the field {name!r:.100} has two types in one batch: {found[name]} and {kind}")
    return found


def _connect_type(field: Mapping[str, Any]) -> DataType | None:
    logical = field.get("name")
    if logical == _DECIMAL:
        return DecimalType(_PRECISION_MAX, int(field.get("parameters", {}).get("scale", 0)))
    if logical == _TIMESTAMP:
        return TimestampType()
    return None if logical is not None else _PLAIN.get(str(field.get("type")))


def _inferred(objects: DataFrame) -> Types:
    texts = objects.where("json_object_keys(payload) IS NOT NULL").select("payload").rdd.map(lambda row: row.payload)
    reader = SparkSession.active().read.option("dropFieldIfAllNull", True)
    return {
        each.name: each.dataType if isinstance(each.dataType, _STORABLE) else None for each in reader.json(texts).schema
    }
