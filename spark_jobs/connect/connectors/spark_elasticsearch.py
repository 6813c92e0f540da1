"""ElasticsearchSink: the Spark job `elasticsearch_sink` indexes objects of topics in Elasticsearch or OpenSearch.

Delivery: a repeated batch writes the same documents, see the job. Owns the translation of settings. Must not know how
documents are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from spark_jobs.connect.base.connector_settings import KEY_CONVERTER, SINK_SETTINGS, TOPICS, VALUE_CONVERTER
from spark_jobs.connect.base.definitions import (
    HIDDEN,
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    invalid,
    one_of,
)
from spark_jobs.connect.connectors.spark_settings import (
    NOT_OF_SINKS,
    OBJECT_FORMATS,
    Command,
    Errors,
    check_format,
    check_start,
    format_flags,
    problems,
    properties_text,
    refusals,
    sink_command,
)
from spark_jobs.connect.connectors.spark_task import SparkSinkConnector, SparkTask

_JOB: Final = "elasticsearch_sink"
_LOGIN: Final[Mapping[str, str]] = {"connection.username": "username", "connection.password": "password"}
_INDEX: Final = "the index is the name of the topic in lower case"
_REFUSED: Final[Mapping[str, str]] = {
    **NOT_OF_SINKS,
    "topic.index.map": _INDEX,
    "external.resource.usage": _INDEX,
    "data.stream.dataset": _INDEX,
    "topic.key.ignore": "key.ignore holds for all topics",
    "topic.schema.ignore": "documents are indexed without a mapping",
}


def _check_url(name: str, value: Any) -> None:
    parts = urlsplit(value)
    if "@" in parts.netloc:
        raise invalid(name, HIDDEN, "Other processes would see the login: use connection.username")
    if "," in value or parts.scheme not in ("http", "https") or not parts.hostname:
        raise invalid(name, value, "Expected the URL of one server, such as http://localhost:9200")


_SETTINGS: Final = Definition(
    [
        Setting("connection.url", Kind.STRING, REQUIRED, Importance.HIGH, "The server.", _check_url),
        Setting("connection.username", Kind.STRING, None, Importance.MEDIUM, "The user of the server."),
        Setting("connection.password", Kind.PASSWORD, None, Importance.MEDIUM, "The user's password."),
        Setting("type.name", Kind.STRING, "_doc", Importance.LOW, "Without effect: indices have no types any more."),
        Setting(
            "key.ignore", Kind.BOOLEAN, False, Importance.HIGH,
            "Whether the id of a document is the place of its record, not the key.",
        ),
        Setting("schema.ignore", Kind.BOOLEAN, False, Importance.LOW, "Without effect: the server infers mappings."),
        Setting("batch.size", Kind.INT, 2000, Importance.MEDIUM, "The documents of a request.", at_least(1)),
        Setting("write.method", Kind.STRING, "insert", Importance.LOW, "'insert'.", one_of("insert", "INSERT")),
        Setting(
            "behavior.on.null.values", Kind.STRING, "delete", Importance.LOW,
            "'delete': a record without a value deletes the document of its key.", one_of("delete", "DELETE"),
        ),
    ]
)  # fmt: skip


class ElasticsearchSinkTask(SparkTask):
    """Runs the job for all topics."""

    version = "1.0"

    def command(self, config: Mapping[str, str]) -> Command:
        parsed = _SETTINGS.parse(config)
        flags = ["--url", parsed["connection.url"], "--bulk-records", str(parsed["batch.size"]), *format_flags(config)]
        if parsed["key.ignore"]:
            flags.append("--ignore-keys")
        login = {name: config[setting] for setting, name in _LOGIN.items() if config.get(setting)}
        secrets = {"--login": properties_text(login)} if login else {}
        return sink_command(_JOB, self.context, config, SINK_SETTINGS.parse(config)[TOPICS], flags, secrets)


class ElasticsearchSinkConnector(SparkSinkConnector):
    """Writes by one job."""

    version = "1.0"
    definition = _SETTINGS
    task = ElasticsearchSinkTask

    def validate(self, config: Mapping[str, str]) -> Errors:
        return problems(
            refusals(config, _REFUSED),
            check_start(config),
            check_format(config, VALUE_CONVERTER, _JOB, OBJECT_FORMATS),
            {} if _ignores_keys(config) else check_format(config, KEY_CONVERTER, _JOB, ["text"]),
            _check_login(config),
        )


def _ignores_keys(config: Mapping[str, str]) -> bool:
    return bool(_SETTINGS.parse(config)["key.ignore"])


def _check_login(config: Mapping[str, str]) -> Errors:
    missing = [name for name in _LOGIN if not config.get(name)]
    if len(missing) != 1:
        return {}
    return {missing[0]: [str(invalid(missing[0], None, "A login has a user and a password"))]}
