"""The settings that every connector has, beside its own (`ConnectorConfig` and its two kinds in Kafka).

Owns their names, defaults and checks. Must not know connectors or workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.connect.base.definitions import (
    REQUIRED,
    Definition,
    Importance,
    Kind,
    Setting,
    at_least,
    between,
    invalid,
    not_empty,
    one_of,
    one_of_ignoring_case,
)
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.java_regex import compile_regex

NAME: Final = "name"
NAME_BYTES_MAX: Final = 1_000
"""A name is part of keys, of the name of a consumer group and of what workers send to each other."""
TASKS_MAX_LIMIT: Final = 10_000
CONNECTOR_CLASS: Final = "connector.class"
TASKS_MAX: Final = "tasks.max"
OLD_TASKS_MAX: Final = "max.tasks"
TASK_CLASS: Final = "task.class"
TOPICS: Final = "topics"
TOPICS_REGEX: Final = "topics.regex"
KEY_CONVERTER: Final = "key.converter"
VALUE_CONVERTER: Final = "value.converter"
HEADER_CONVERTER: Final = "header.converter"
TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"
TOLERANCE: Final = "errors.tolerance"
RETRY_TIMEOUT: Final = "errors.retry.timeout"
RETRY_DELAY_MAX: Final = "errors.retry.delay.max.ms"
LOG_ERRORS: Final = "errors.log.enable"
LOG_MESSAGES: Final = "errors.log.include.messages"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTERS_REPLICATION: Final = "errors.deadletterqueue.topic.replication.factor"
DEAD_LETTERS_HEADERS: Final = "errors.deadletterqueue.context.headers.enable"
TRANSACTION_BOUNDARY: Final = "transaction.boundary"
TRANSACTION_INTERVAL: Final = "transaction.boundary.interval.ms"
EXACTLY_ONCE: Final = "exactly.once.support"
OFFSETS_TOPIC: Final = "offsets.storage.topic"
CREATION: Final = "topic.creation."
CREATION_GROUPS: Final = "topic.creation.groups"
CREATION_REPLICATION: Final = "topic.creation.default.replication.factor"
CREATION_PARTITIONS: Final = "topic.creation.default.partitions"
PRODUCER_OVERRIDE: Final = "producer.override."
CONSUMER_OVERRIDE: Final = "consumer.override."
ADMIN_OVERRIDE: Final = "admin.override."

_COMMON, _TRANSFORMS, _PREDICATES, _ERRORS = "Common", "Transforms", "Predicates", "Error Handling"


def _name(name: str, value: Any) -> None:
    not_empty(name, value)
    if len(value.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
        raise invalid(name, f"{value[:50]}...", f"String must have at most {NAME_BYTES_MAX} bytes in UTF-8")
    if found := sorted({character for character in value if ord(character) < 32}):
        raise invalid(name, repr(value), f"String may not contain control sequences but had {found}")


def _distinct(name: str, value: Any) -> None:
    if len(set(value)) != len(value):
        raise invalid(name, value, "Duplicate alias provided.")


_ALL = Definition(
    [
        Setting(
            NAME, Kind.STRING, REQUIRED, Importance.HIGH, "The name of the connector, unique in its group of workers.",
            _name, _COMMON, 1, "MEDIUM", "Connector name",
        ),
        Setting(
            CONNECTOR_CLASS, Kind.STRING, REQUIRED, Importance.HIGH,
            "The class of the connector: its full name, or the last part of it with or without 'Connector'.",
            None, _COMMON, 2, "LONG", "Connector class",
        ),
        Setting(
            "connector.plugin.version", Kind.STRING, None, Importance.MEDIUM, "The version of the class to use.",
            None, _COMMON, 3, "MEDIUM", "Connector version",
        ),
        Setting(
            TASKS_MAX, Kind.INT, 1, Importance.HIGH, "The largest number of tasks.", between(1, TASKS_MAX_LIMIT),
            _COMMON, 4, "SHORT", "Tasks max",
        ),
        Setting(
            "tasks.max.enforce", Kind.BOOLEAN, True, Importance.LOW,
            "Whether a connector that makes more tasks fails, and does not merely get a warning.",
            None, _COMMON, 5, "SHORT", "Enforce tasks max",
        ),
        Setting(
            KEY_CONVERTER, Kind.CLASS, None, Importance.LOW,
            "The converter of keys; without one it is that of the worker.", None, _COMMON, 6, "SHORT",
            "Key converter class",
        ),
        Setting(
            VALUE_CONVERTER, Kind.CLASS, None, Importance.LOW,
            "The converter of values; without one it is that of the worker.", None, _COMMON, 7, "SHORT",
            "Value converter class",
        ),
        Setting(
            HEADER_CONVERTER, Kind.CLASS, None, Importance.LOW,
            "The converter of headers; without one it is that of the worker.", None, _COMMON, 8, "SHORT",
            "Header converter class",
        ),
        Setting(
            TRANSFORMS, Kind.LIST, [], Importance.LOW, "Names of the transforms, in the order in which they apply.",
            _distinct, _TRANSFORMS, 9, "LONG", "Transforms",
        ),
        Setting(
            PREDICATES, Kind.LIST, [], Importance.LOW, "Names of the predicates that transforms use.", _distinct,
            _PREDICATES, 10, "LONG", "Predicates",
        ),
        Setting(
            "config.action.reload", Kind.STRING, "restart", Importance.LOW,
            "What happens when a value from a provider of secrets changes.", one_of("none", "restart"), _COMMON, 11,
            "MEDIUM", "Reload Action",
        ),
        Setting(
            RETRY_TIMEOUT, Kind.LONG, 0, Importance.MEDIUM,
            "For how long a step that failed is repeated, in milliseconds; -1 is without end.", at_least(-1), _ERRORS,
            1, "MEDIUM", "Retry Timeout for Errors",
        ),
        Setting(
            RETRY_DELAY_MAX, Kind.LONG, 60_000, Importance.MEDIUM,
            "The longest time between two repetitions, in milliseconds.", at_least(1), _ERRORS, 2, "MEDIUM",
            "Maximum Delay Between Retries for Errors",
        ),
        Setting(
            TOLERANCE, Kind.STRING, "none", Importance.MEDIUM,
            "'none': a record that fails makes its task fail. 'all': it is skipped.",
            one_of_ignoring_case("none", "all"), _ERRORS, 3, "SHORT", "Error Tolerance",
        ),
        Setting(
            LOG_ERRORS, Kind.BOOLEAN, False, Importance.MEDIUM, "Whether skipped records are logged.", None, _ERRORS, 4,
            "SHORT", "Log Errors",
        ),
        Setting(
            LOG_MESSAGES, Kind.BOOLEAN, False, Importance.MEDIUM,
            "Whether the log names topic, partition and offset of a record that failed.", None, _ERRORS, 5, "SHORT",
            "Log Error Details",
        ),
    ]
)  # fmt: skip

_SOURCE = Definition(
    [
        Setting(
            CREATION_GROUPS, Kind.LIST, [], Importance.LOW,
            "Groups of topics that the worker creates with settings of their own, topic.creation.GROUP.include and so "
            "on. topic.creation.default. holds for the others; without it the worker creates no topics.",
            _distinct, "Topic Creation", 1, "LONG", "Topic Creation Groups",
        ),
        Setting(
            EXACTLY_ONCE, Kind.STRING, "requested", Importance.MEDIUM,
            "'required': the connector is refused unless it supports exactly-once.",
            one_of_ignoring_case("requested", "required"), "Exactly Once Support", 1, "SHORT", "Exactly once support",
        ),
        Setting(
            TRANSACTION_BOUNDARY, Kind.STRING, "poll", Importance.MEDIUM,
            "With exactly-once, what ends a transaction: each 'poll', an 'interval', or the 'connector'.",
            one_of_ignoring_case("poll", "interval", "connector"), "Exactly Once Support", 2, "SHORT",
            "Transaction Boundary",
        ),
        Setting(
            TRANSACTION_INTERVAL, Kind.LONG, None, Importance.LOW,
            "The length of transactions with boundary 'interval', in milliseconds.", at_least(0),
            "Exactly Once Support", 3, "SHORT", "Transaction boundary interval",
        ),
        Setting(
            OFFSETS_TOPIC, Kind.STRING, None, Importance.LOW,
            "A topic of its own for the connector's offsets.", None, "offsets.topic", 1, "LONG", "Offsets topic",
        ),
    ]
)  # fmt: skip

_SINK = Definition(
    [
        Setting(
            TOPICS, Kind.LIST, [], Importance.HIGH, "The topics to read.", None, _COMMON, 12, "LONG", "Topics"
        ),
        Setting(
            TOPICS_REGEX, Kind.STRING, "", Importance.HIGH,
            "A regular expression for the names of the topics to read, instead of 'topics'.", None, _COMMON, 13,
            "LONG", "Topics regex",
        ),
        Setting(
            DEAD_LETTERS, Kind.STRING, "", Importance.MEDIUM,
            "The topic for records that fail and are tolerated; empty for none.", None, _ERRORS, 6, "MEDIUM",
            "Dead Letter Queue Topic Name",
        ),
        Setting(
            DEAD_LETTERS_REPLICATION, Kind.SHORT, 3, Importance.MEDIUM,
            "The replication factor of that topic, if it has to be created.", None, _ERRORS, 7, "MEDIUM",
            "Dead Letter Queue Topic Replication Factor",
        ),
        Setting(
            DEAD_LETTERS_HEADERS, Kind.BOOLEAN, False, Importance.MEDIUM,
            "Whether dead letters carry the place and the reason of the failure as headers.", None, _ERRORS, 8,
            "MEDIUM", "Enable Error Context Headers",
        ),
    ]
)  # fmt: skip

SOURCE_SETTINGS: Final = _ALL + _SOURCE
SINK_SETTINGS: Final = _ALL + _SINK


def with_current_names(config: Mapping[str, str]) -> dict[str, str]:
    """Return a configuration in which old names are replaced."""
    found = dict(config)
    if OLD_TASKS_MAX in found:
        found.setdefault(TASKS_MAX, found.pop(OLD_TASKS_MAX))
    return found


def check_topics(config: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the parsed settings of a sink name topics in exactly one way."""
    topics, pattern = config[TOPICS], config[TOPICS_REGEX]
    if topics and pattern:
        raise ConfigError(f"{TOPICS} and {TOPICS_REGEX} are mutually exclusive options, but both are set.")
    if not topics and not pattern:
        raise ConfigError(f"Must configure one of {TOPICS} or {TOPICS_REGEX}")
    if pattern:
        try:
            compiled = compile_regex(pattern)
        except ConfigError as error:
            raise invalid(TOPICS_REGEX, pattern, f"Invalid regular expression: {error}") from None
    letters = config[DEAD_LETTERS]
    if letters and (compiled.fullmatch(letters) if pattern else letters in topics):
        raise ConfigError(f"The DLQ topic '{letters}' may not be included in the topics that the connector reads")
