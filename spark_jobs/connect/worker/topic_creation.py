"""Creates the topics that connectors write to (KIP-158).

A source's topics are created by the first group of `topic.creation.groups` whose expressions match the name, otherwise
as `topic.creation.default.` says. Owns these settings. Must not know records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from spark_jobs.connect.base.connector_settings import CREATION, CREATION_GROUPS
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, invalid, parse
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.java_regex import compile_regex, regex
from spark_jobs.connect.worker.settings import with_prefix

TIMEOUT_S: Final = 30.0
DEFAULT: Final = "default"
INCLUDE, EXCLUDE, REPLICATION, PARTITIONS = "include", "exclude", "replication.factor", "partitions"
OWN: Final = frozenset({INCLUDE, EXCLUDE, REPLICATION, PARTITIONS})


def create_topic(
    client: Mapping[str, Any], topic: str, partitions: int, replication_factor: int, config: Mapping[str, str]
) -> None:
    """Create a topic unless it exists. Raises ConnectError."""
    admin = AdminClient(dict(client))
    try:
        if topic in admin.list_topics(timeout=TIMEOUT_S).topics:
            return
        request = NewTopic(topic, partitions, replication_factor, config=dict(config))
        admin.create_topics([request], operation_timeout=TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise ConnectError(f"the topic {topic} cannot be created: {error.args[0].str()}") from error


def creation_settings(config: Mapping[str, str]) -> Definition:
    """Return the settings of each group that a configuration names, and of the default one if it has any of them."""
    if not any(name.startswith(CREATION) for name in config):
        return Definition()
    return Definition([*_numbers(DEFAULT, REQUIRED), *_of_groups(config)])


def _of_groups(config: Mapping[str, str]) -> Iterator[Setting]:
    for alias in dict.fromkeys(_aliases(config)):
        group = f"Topic creation: {alias}"
        for name, default, doc in (
            (INCLUDE, REQUIRED, "Regular expressions: topics of this group match one of them."),
            (EXCLUDE, [], "Regular expressions: no topic of this group matches one of them."),
        ):
            yield Setting(
                f"{CREATION}{alias}.{name}", Kind.LIST, default, Importance.LOW, doc, _regexes, group, width="LONG"
            )
        yield from _numbers(alias, None)


def _numbers(alias: str, default: Any) -> Iterator[Setting]:
    for name, kind, what in ((REPLICATION, Kind.SHORT, "replication factor"), (PARTITIONS, Kind.INT, "partitions")):
        yield Setting(
            f"{CREATION}{alias}.{name}", kind, default, Importance.LOW,
            f"The {what} of topics that the worker creates, -1 for the broker's default.", _minus_one_or_more,
            f"Topic creation: {alias}", width="LONG",
        )  # fmt: skip


def _minus_one_or_more(name: str, value: Any) -> None:
    if value != -1 and value < 1:
        raise invalid(name, value, "expected a number above 0, or -1 for the broker's default")


def _regexes(name: str, value: Any) -> None:
    for each in value:
        regex(name, each)


def _aliases(config: Mapping[str, str]) -> list[str]:
    aliases: list[str] = parse(CREATION_GROUPS, Kind.LIST, config.get(CREATION_GROUPS, ""))
    return [alias for alias in aliases if alias != DEFAULT]


class _Topic(NamedTuple):
    """How a topic is created."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str]


class TopicCreation:
    """Creates the topics of a source connector, if its settings say how."""

    def __init__(self, client: Mapping[str, Any], config: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._client = client
        self._groups = [_Group(alias, config) for alias in _aliases(config)]
        self._default = _Group(DEFAULT, config) if any(name.startswith(CREATION) for name in config) else None

    def prepare(self, topic: str) -> None:
        """Raises ConnectError."""
        if (found := self._topic(topic)) is not None:
            create_topic(self._client, topic, *found)

    def _topic(self, topic: str) -> _Topic | None:
        group = next((group for group in self._groups if group.matches(topic)), self._default)
        return None if group is None else group.topic


class _Group:
    def __init__(self, alias: str, config: Mapping[str, str]) -> None:
        parsed = creation_settings(config).parse(config)
        prefix = f"{CREATION}{alias}."

        def number(name: str) -> int:
            found: int | None = parsed[f"{prefix}{name}"]
            default: int = parsed[f"{CREATION}{DEFAULT}.{name}"]
            return default if found is None else found

        others = {name: value for name, value in with_prefix(config, prefix).items() if name not in OWN}
        self.topic = _Topic(number(PARTITIONS), number(REPLICATION), others)
        self._include, self._exclude = (
            [compile_regex(each) for each in parsed.get(f"{prefix}{name}", ())] for name in (INCLUDE, EXCLUDE)
        )

    def matches(self, topic: str) -> bool:
        return any(each.fullmatch(topic) for each in self._include) and not any(
            each.fullmatch(topic) for each in self._exclude
        )
