"""HdfsSink: the Spark job `lake_load` writes topics to files of a data lake, on HDFS or any other file system of Spark.

The files of a topic are in folders by topic, partition or time, under `topics.dir`. Delivery: exactly once for readers
of Spark, see the job.

Owns the translation of settings. Must not know how files are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.connect.base.connector_settings import SINK_SETTINGS, TOPICS, VALUE_CONVERTER
from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    invalid,
    not_empty,
    one_of,
)
from spark_jobs.connect.connectors.spark_settings import (
    NOT_OF_SINKS,
    Command,
    Errors,
    check_format,
    check_start,
    format_flags,
    format_of,
    problems,
    refusals,
    sink_command,
)
from spark_jobs.connect.connectors.spark_task import SparkSinkConnector, SparkTask

_JOB: Final = "lake_load"
_VALUES: Final = ("text", "bytes", "json", "json-envelope", "avro-registry")
_FILES: Final[Mapping[str, str]] = {"AvroFormat": "avro", "ParquetFormat": "parquet", "JsonFormat": "json",
                                    "OrcFormat": "orc"}  # fmt: skip
"""By the last part of the name of `format.class`."""
_FOLDERS: Final[Mapping[str, str]] = {
    "DefaultPartitioner": "topic,partition",
    "DailyPartitioner": "topic,date",
    "HourlyPartitioner": "topic,date,hour",
}
_BY_TIME: Final = "TimeBasedPartitioner"
_OF_DURATION: Final[Mapping[int, str]] = {
    24 * 3_600_000: _FOLDERS["DailyPartitioner"],
    3_600_000: _FOLDERS["HourlyPartitioner"],
}
_URLS: Final = ("store.url", "hdfs.url")
_REFUSED: Final[Mapping[str, str]] = {
    **NOT_OF_SINKS,
    "path.format": "folders are named topic=T/date=D/hour=H",
    "partition.field.name": "folders are by topic, partition or time",
    "hive.metastore.uris": "the job writes files only",
    "timestamp.field": "folders are by the time of the record",
}


def _check_class(known: Sequence[str]) -> Any:
    def check(name: str, value: Any) -> None:
        if value.rpartition(".")[2] not in known:
            raise invalid(name, value, f"Expected a class named {', '.join(known)}")

    return check


_SETTINGS: Final = Definition(
    [
        Setting("store.url", Kind.STRING, None, Importance.HIGH, "The file system, such as hdfs://host:9000."),
        Setting("hdfs.url", Kind.STRING, None, Importance.HIGH, "The old name of store.url."),
        Setting("topics.dir", Kind.STRING, "topics", Importance.HIGH, "The folder in it.", not_empty),
        Setting(
            "format.class", Kind.STRING, "io.confluent.connect.hdfs.avro.AvroFormat", Importance.HIGH,
            "The format of the files.", _check_class(tuple(_FILES)),
        ),
        Setting(
            "flush.size", Kind.INT, REQUIRED, Importance.HIGH, "The most records of one batch of files.", at_least(1)
        ),
        Setting(
            "rotate.interval.ms", Kind.LONG, 60_000, Importance.HIGH, "How often files are written.", at_least(1)
        ),
        Setting(
            "partitioner.class", Kind.STRING, "DefaultPartitioner", Importance.HIGH, "Which folders there are.",
            _check_class((*_FOLDERS, _BY_TIME)),
        ),
        Setting("partition.duration.ms", Kind.LONG, None, Importance.MEDIUM, "With TimeBasedPartitioner: 3600000, or "
                "86400000."),
        Setting("timezone", Kind.STRING, "UTC", Importance.MEDIUM, "The zone of days and hours.", one_of("UTC")),
        Setting(
            "timestamp.extractor", Kind.STRING, "Record", Importance.MEDIUM, "Whose time counts: the record's.",
            one_of("Record"),
        ),
        Setting("hive.integration", Kind.BOOLEAN, False, Importance.LOW, "The job writes files only: false."),
    ]
)  # fmt: skip


class HdfsSinkTask(SparkTask):
    """Runs the job for all topics."""

    version = "1.0"

    def command(self, config: Mapping[str, str]) -> Command:
        parsed = _SETTINGS.parse(config)
        flags = [
            "--path", f"{_url(parsed).rstrip('/')}/{parsed['topics.dir'].strip('/')}",
            "--format", _FILES[parsed["format.class"].rpartition(".")[2]],
            "--partition-by", _folders(parsed),
            "--max-offsets-per-trigger", str(parsed["flush.size"]),
            "--trigger", f"{parsed['rotate.interval.ms']} milliseconds",
            *_value_flags(config),
        ]  # fmt: skip
        return sink_command(_JOB, self.context, config, SINK_SETTINGS.parse(config)[TOPICS], flags, {})


class HdfsSinkConnector(SparkSinkConnector):
    """Writes by one job."""

    version = "1.0"
    definition = _SETTINGS
    task = HdfsSinkTask

    def validate(self, config: Mapping[str, str]) -> Errors:
        return problems(
            refusals(config, _REFUSED),
            check_start(config),
            check_format(config, VALUE_CONVERTER, _JOB, _VALUES),
            _check_together(_SETTINGS.parse(config)),
        )


def _url(parsed: Mapping[str, Any]) -> str:
    return next((str(parsed[name]) for name in _URLS if parsed[name]), "")


def _folders(parsed: Mapping[str, Any]) -> str:
    partitioner = parsed["partitioner.class"].rpartition(".")[2]
    return _OF_DURATION[parsed["partition.duration.ms"]] if partitioner == _BY_TIME else _FOLDERS[partitioner]


def _value_flags(config: Mapping[str, str]) -> Sequence[str]:
    match format_of(config, VALUE_CONVERTER):
        case "text":
            return []
        case "bytes":
            return ["--binary"]
        case _:
            return ["--infer-schema", *format_flags(config)]


def _check_together(parsed: Mapping[str, Any]) -> Errors:
    found: Errors = {}
    if not _url(parsed):
        found["store.url"] = ['Missing required configuration "store.url" which has no default value.']
    duration = parsed["partition.duration.ms"]
    if parsed["partitioner.class"].rpartition(".")[2] == _BY_TIME and duration not in _OF_DURATION:
        why = f"Expected one of {', '.join(map(str, sorted(_OF_DURATION)))}"
        found["partition.duration.ms"] = [str(invalid("partition.duration.ms", duration, why))]
    if parsed["hive.integration"]:
        found["hive.integration"] = [str(invalid("hive.integration", "true", "The job writes files only"))]
    return found
