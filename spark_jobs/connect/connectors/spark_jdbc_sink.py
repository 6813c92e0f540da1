"""JdbcSink: the Spark job `jdbc_sink` writes objects of topics to tables.

A job writes one table, so a connector has a task for each table that its topics are written to. Delivery:
exactly once, see the job.

Owns the translation of settings. Must not know how a table is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.connect.base.api import SinkConnector
from spark_jobs.connect.base.connector_settings import (
    KEY_CONVERTER,
    SINK_SETTINGS,
    TASKS_MAX,
    TOPICS,
    VALUE_CONVERTER,
)
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, invalid, one_of
from spark_jobs.connect.connectors.spark_databases import CONNECTION, database_flags
from spark_jobs.connect.connectors.spark_settings import (
    NOT_OF_SINKS,
    OBJECT_FORMATS,
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
from spark_jobs.connect.connectors.spark_task import SparkConnector, SparkTask
from spark_jobs.skeleton.parameters import is_sql_name

_JOB: Final = "jdbc_sink"
_KEY_FORMATS: Final = ("text", "json", "json-envelope")
_TABLE_FORMAT: Final = "table.name.format"
_TOPIC: Final = "${topic}"
_KEYS: Final = "pk.fields"
_SWITCHES: Final[Mapping[str, str]] = {"auto.create": "--create-table", "auto.evolve": "--add-columns"}
_REFUSED: Final[Mapping[str, str]] = {
    **NOT_OF_SINKS,
    "fields.whitelist": "the job writes the fields that the table has",
    "table.types": "the job writes tables",
}


def _check_names(name: str, value: Any) -> None:
    for each in value:
        if not is_sql_name(each):
            raise invalid(name, each, "Expected names of letters, digits, '_' and '.'")


_SETTINGS: Final = CONNECTION + Definition(
    [
        Setting(
            "insert.mode", Kind.STRING, "insert", Importance.HIGH,
            "'insert' appends a row for each object, 'upsert' replaces the row with the same key.",
            one_of("insert", "upsert"),
        ),
        Setting(
            "pk.mode", Kind.STRING, "none", Importance.HIGH, "Where the key is: in the record's key or in its value.",
            one_of("none", "record_key", "record_value"),
        ),
        Setting(_KEYS, Kind.LIST, [], Importance.MEDIUM, "The fields that are the key of the table.", _check_names),
        Setting(_TABLE_FORMAT, Kind.STRING, _TOPIC, Importance.MEDIUM, "The name of the table of a topic."),
        Setting("auto.create", Kind.BOOLEAN, False, Importance.MEDIUM, "Whether a missing table is created."),
        Setting("auto.evolve", Kind.BOOLEAN, False, Importance.MEDIUM, "Whether missing columns are added."),
        Setting("delete.enabled", Kind.BOOLEAN, False, Importance.MEDIUM, "The job deletes no rows: false."),
        Setting("batch.size", Kind.INT, 3000, Importance.MEDIUM, "Without effect: Spark chooses batches."),
    ]
)  # fmt: skip


class JdbcSinkTask(SparkTask):
    """Runs a job for one table."""

    version = "1.0"

    def command(self, config: Mapping[str, str]) -> Command:
        parsed = _SETTINGS.parse(config)
        topics = tables_of(config)
        table = config["table"]
        flags, secrets = database_flags(config)
        flags += ["--table", table, *format_flags(config)]
        if parsed["insert.mode"] == "upsert":
            flags += ["--keys", ",".join(parsed[_KEYS])]
        if parsed["pk.mode"] == "record_key":
            flags += ["--key-format", format_of(config, KEY_CONVERTER), "--key-fields", ",".join(parsed[_KEYS])]
        flags += [flag for name, flag in _SWITCHES.items() if parsed[name]]
        return sink_command(_JOB, self.context, config, topics[table], flags, secrets, part=table)


class JdbcSinkConnector(SparkConnector, SinkConnector):
    """Has a task for each table."""

    version = "1.0"
    definition = _SETTINGS
    task = JdbcSinkTask

    def validate(self, config: Mapping[str, str]) -> Errors:
        return problems(
            refusals(config, _REFUSED),
            check_start(config),
            check_format(config, VALUE_CONVERTER, _JOB, OBJECT_FORMATS),
            _check_keys(config),
            _check_tables(config),
        )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{**self.config, "table": table} for table in tables_of(self.config)]


def tables_of(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the tables with their topics. Names of tables are compared without regard to case."""
    name_format = _SETTINGS.parse(config)[_TABLE_FORMAT]
    spelled: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for topic in SINK_SETTINGS.parse(config)[TOPICS]:
        table = name_format.replace(_TOPIC, topic)
        found.setdefault(spelled.setdefault(table.lower(), table), []).append(topic)
    return found


def _check_keys(config: Mapping[str, str]) -> Errors:
    parsed = _SETTINGS.parse(config)
    keys, mode = parsed[_KEYS], parsed["pk.mode"]
    found: Errors = {}
    if parsed["insert.mode"] == "upsert" and mode == "none":
        found["pk.mode"] = [str(invalid("pk.mode", mode, "insert.mode=upsert needs record_key or record_value"))]
    if mode != "none" and not keys:
        found[_KEYS] = [str(invalid(_KEYS, "", f"pk.mode={mode} needs the names of the fields"))]
    if parsed["delete.enabled"]:
        found["delete.enabled"] = [str(invalid("delete.enabled", "true", f"the job {_JOB} deletes no rows"))]
    if mode == "record_key" and parsed["auto.create"]:
        why = "the job has types for the fields of values only: pk.mode=record_value, or create the table"
        found["auto.create"] = [str(invalid("auto.create", "true", why))]
    if mode == "record_key":
        found |= check_format(config, KEY_CONVERTER, _JOB, _KEY_FORMATS)
        if format_of(config, KEY_CONVERTER) == "text" and len(keys) > 1:
            found[_KEYS] = [str(invalid(_KEYS, ",".join(keys), "A key that is a text has one field"))]
    return found


def _check_tables(config: Mapping[str, str]) -> Errors:
    tables = tables_of(config)
    for table in tables:
        if not is_sql_name(table):
            why = f"The name of the table would be {table}: expected letters, digits, '_' and '.'"
            return {_TABLE_FORMAT: [str(invalid(_TABLE_FORMAT, config.get(_TABLE_FORMAT, _TOPIC), why))]}
    most = SINK_SETTINGS.parse(config)[TASKS_MAX]
    if len(tables) > most:
        why = f"Each table has a task: expected at least {len(tables)}"
        return {TASKS_MAX: [str(invalid(TASKS_MAX, most, why))]}
    return {}
