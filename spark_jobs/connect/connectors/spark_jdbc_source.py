"""JdbcSource: the Spark job `jdbc_source` sends the rows of tables to topics.

Each task is a job with some of the tables of `table.whitelist`; each table belongs to one. Its position is kept by
table, so tables may move between tasks. Delivery: at-least-once, see the job.

Owns the translation of settings. Must not know how a table is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_jobs.connect.base.api import SourceConnector
from spark_jobs.connect.base.connector_settings import CREATION_PARTITIONS, CREATION_REPLICATION, VALUE_CONVERTER
from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    invalid,
    one_of,
)
from spark_jobs.connect.connectors.spark_databases import CONNECTION, database_flags
from spark_jobs.connect.connectors.spark_settings import (
    NOT_OF_JOBS,
    Command,
    Errors,
    check_format,
    format_of,
    problems,
    refusals,
    source_command,
)
from spark_jobs.connect.connectors.spark_task import SparkConnector, SparkTask
from spark_jobs.skeleton.parameters import is_sql_name

_JOB: Final = "jdbc_source"
_TABLES: Final = "table.whitelist"
_OF_TASK: Final = "tables"
_COLUMN_OF: Final[Mapping[str, str]] = {
    "incrementing": "incrementing.column.name",
    "timestamp": "timestamp.column.name",
}
_FORMATS: Final[Mapping[str, Sequence[str]]] = {"json": (), "json-envelope": ("--envelope",)}
_REFUSED: Final[Mapping[str, str]] = {
    **NOT_OF_JOBS,
    "query": f"the job reads the tables that '{_TABLES}' names",
    "table.blacklist": f"the worker does not list the tables of a database: name those to read in '{_TABLES}'",
    "catalog.pattern": f"name catalogs in '{_TABLES}', as CATALOG.SCHEMA.TABLE",
    "schema.pattern": f"name schemas in '{_TABLES}', as SCHEMA.TABLE",
    "numeric.mapping": "the job writes decimals as numbers",
    "timestamp.delay.interval.ms": "the job reads all rows that are committed",
    "timestamp.initial": "the job begins with the first row",
}
_MS_PER_S: Final = 1000


def _check_tables(name: str, value: Any) -> None:
    if not value:
        raise invalid(name, "", "Expected the names of the tables to read")
    for each in value:
        if not is_sql_name(each):
            raise invalid(name, each, "Expected names of letters, digits, '_' and '.'")
    lower = [each.lower() for each in value]
    if twice := sorted({each for each in lower if lower.count(each) > 1}):
        raise invalid(name, ",".join(value), f"The table {twice[0]} would be read twice")


def _check_interval(name: str, value: Any) -> None:
    at_least(_MS_PER_S)(name, value)
    if value % _MS_PER_S:
        raise invalid(name, value, "The job counts whole seconds: expected a multiple of 1000")


_SETTINGS: Final = CONNECTION + Definition(
    [
        Setting(
            "mode", Kind.STRING, REQUIRED, Importance.HIGH,
            "How new rows are found: incrementing, timestamp, or bulk, which sends all rows each time.",
            one_of("bulk", *_COLUMN_OF),
        ),
        Setting(_TABLES, Kind.LIST, REQUIRED, Importance.MEDIUM, "The tables to read.", _check_tables),
        Setting("incrementing.column.name", Kind.STRING, "", Importance.MEDIUM, "The column that rises by itself."),
        Setting("timestamp.column.name", Kind.STRING, "", Importance.MEDIUM, "The column with the time of a change."),
        Setting(
            "validate.non.null", Kind.BOOLEAN, True, Importance.LOW,
            "Whether a table is refused whose column may be null: rows without a value are never sent.",
        ),
        Setting("topic.prefix", Kind.STRING, REQUIRED, Importance.HIGH, "Put before the name of a table."),
        Setting(
            "poll.interval.ms", Kind.INT, 5000, Importance.HIGH, "The time between two reads of a table.",
            _check_interval,
        ),
    ]
)  # fmt: skip


class JdbcSourceTask(SparkTask):
    """Runs a job for some tables."""

    version = "1.0"

    def command(self, config: Mapping[str, str]) -> Command:
        parsed = _SETTINGS.parse(config)
        flags, secrets = database_flags(config)
        flags += ["--tables", config[_OF_TASK], "--mode", parsed["mode"], "--topic-prefix", parsed["topic.prefix"]]
        flags += ["--interval-seconds", str(parsed["poll.interval.ms"] // _MS_PER_S)]
        flags += _FORMATS[format_of(config, VALUE_CONVERTER)]
        if column := _COLUMN_OF.get(parsed["mode"]):
            flags += ["--column", parsed[column], *(["--not-null"] if parsed["validate.non.null"] else [])]
        if partitions := config.get(CREATION_PARTITIONS):
            flags += ["--create-topics", "--partitions", partitions]
            flags += ["--replication-factor", config[CREATION_REPLICATION]]
        else:
            flags += ["--auto-create-topics"]
        return source_command(_JOB, self.context, flags, secrets)


class JdbcSourceConnector(SparkConnector, SourceConnector):
    """Splits tables over tasks."""

    version = "1.0"
    definition = _SETTINGS
    task = JdbcSourceTask

    def validate(self, config: Mapping[str, str]) -> Errors:
        return problems(
            refusals(config, _REFUSED),
            _check_column(config),
            check_format(config, VALUE_CONVERTER, _JOB, _FORMATS),
            _check_creation(config),
        )

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        tables = _SETTINGS.parse(self.config)[_TABLES]
        count = min(max_tasks, len(tables))
        return [{**self.config, _OF_TASK: ",".join(tables[number::count])} for number in range(count)]


def _check_column(config: Mapping[str, str]) -> Errors:
    name = _COLUMN_OF.get(config["mode"].strip())
    if name is None or is_sql_name(config.get(name, "")):
        return {}
    return {name: [str(invalid(name, config.get(name, ""), f"The mode {config['mode']} needs the name of one column"))]}


def _check_creation(config: Mapping[str, str]) -> Errors:
    """Topics are created by the job, which knows no defaults of the brokers."""
    given = [name for name in (CREATION_PARTITIONS, CREATION_REPLICATION) if config.get(name)]
    missing = {CREATION_PARTITIONS, CREATION_REPLICATION} - set(given)
    if given and missing:
        return {name: [str(invalid(name, None, f"{given[0]} needs it, too"))] for name in missing}
    return {
        name: [str(invalid(name, config[name], "The job creates topics: expected a number above 0"))]
        for name in given
        if int(config[name]) < 1
    }
