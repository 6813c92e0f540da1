"""Rules between settings of a broker.

Each rule names the setting for which a violation is reported, and the other settings that it reads. A rule is skipped
if one of its settings does not parse, so that each mistake is reported once. The rules between listeners are in
`listeners`.

Owns the rules and their error messages. Must not know layers, or where a value came from.
"""

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from config import broker_properties as rows
from config.definition import ConfigError, NoEffect, Property, Settings, text_of

_BYTES_PER_CLEANER_MIN = 1 << 20
_OFFSETS_COMPRESSION_CODECS = range(5)
_ZOOKEEPER_HOST = r"(\[[0-9a-fA-F:.]+\]|[^\s:;,\[\]]+)(:[0-9]{1,5})?"


class Rule(NamedTuple):
    """A rule for `row` that also reads the rows of `reads`; `problem` returns what was expected, or None."""

    row: Property[object]
    reads: tuple[Property[object], ...]
    problem: Callable[[Settings], str | None]


def problems(settings: Settings, wrong_keys: Collection[str]) -> list[ConfigError]:
    """Return all violations, except of rules that read a setting in `wrong_keys`."""
    return [
        ConfigError(rule.row.name, text_of(settings[rule.row]), expected)
        for rule in RULES
        if not any(row.name in wrong_keys for row in (rule.row, *rule.reads))
        and (expected := rule.problem(settings)) is not None
    ]


def read_with(key: str) -> set[str]:
    """Return the names of the settings that the rules of a setting read, without its own."""
    return {row.name for rule in RULES if rule.row.name == key for row in rule.reads}


def folders(text: str) -> list[str]:
    """Return the directories of a comma-separated list."""
    return [folder for folder in (part.strip() for part in text.split(",")) if folder]


def _broker_id(settings: Settings) -> str | None:
    broker_id, reserved_max = settings[rows.BROKER_ID], settings[rows.RESERVED_BROKER_MAX_ID]
    if settings[rows.BROKER_ID_GENERATION_ENABLE]:
        is_right = -1 <= broker_id <= reserved_max
        return None if is_right else f"Value must be from -1 to reserved.broker.max.id ({reserved_max})"
    return None if broker_id >= 0 else "Value must be at least 0 when broker.id.generation.enable is false"


def _retention_ms(row: Property[int | None]) -> Callable[[Settings], str | None]:
    def problem(settings: Settings) -> str | None:
        value = settings[row]
        return None if value is None or value == -1 or value >= 1 else "Value must be -1 (unlimited) or at least 1"

    return problem


def _at_least(row: Property[int | None], low: int) -> Callable[[Settings], str | None]:
    def problem(settings: Settings) -> str | None:
        value = settings[row]
        return None if value is None or value >= low else f"Value must be at least {low}"

    return problem


def _not_above(row: Property[int], limit: Property[int]) -> Callable[[Settings], str | None]:
    def problem(settings: Settings) -> str | None:
        high = settings[limit]
        return None if settings[row] <= high else f"Value must be no more than {limit.name} ({high})"

    return problem


def _dedupe_buffer_size(settings: Settings) -> str | None:
    threads = settings[rows.LOG_CLEANER_THREADS]
    if settings[rows.LOG_CLEANER_DEDUPE_BUFFER_SIZE] > threads * _BYTES_PER_CLEANER_MIN:
        return None
    return f"Value must be more than 1048576 for each of the log.cleaner.threads ({threads})"


def _queued_request_bytes(settings: Settings) -> str | None:
    queued, largest = settings[rows.QUEUED_MAX_REQUEST_BYTES], settings[rows.SOCKET_REQUEST_MAX_BYTES]
    if queued <= 0 or queued >= largest:
        return None
    return f"Value must be -1 (no limit) or at least socket.request.max.bytes ({largest})"


def _max_connections_per_ip(settings: Settings) -> str | None:
    if settings[rows.MAX_CONNECTIONS_PER_IP] > 0 or settings[rows.MAX_CONNECTIONS_PER_IP_OVERRIDES]:
        return None
    return "Value can be 0 only if max.connections.per.ip.overrides is set"


def _max_connections_overrides(settings: Settings) -> str | None:
    for entry in filter(None, (part.strip() for part in settings[rows.MAX_CONNECTIONS_PER_IP_OVERRIDES].split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.strip().isdecimal():
            return f"Expected host:count,..., found '{entry}'"
    return None


def _failed_authentication_delay(settings: Settings) -> str | None:
    idle_ms = settings[rows.CONNECTIONS_MAX_IDLE_MS]
    if idle_ms < 0 or settings[rows.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] < idle_ms:
        return None
    return f"Value must be less than connections.max.idle.ms ({idle_ms})"


def _offsets_commit_acks(settings: Settings) -> str | None:
    replicas = settings[rows.OFFSETS_TOPIC_REPLICATION_FACTOR]
    if -1 <= settings[rows.OFFSETS_COMMIT_REQUIRED_ACKS] <= replicas:
        return None
    return f"Value must be from -1 to offsets.topic.replication.factor ({replicas})"


def _offsets_compression_codec(settings: Settings) -> str | None:
    if settings[rows.OFFSETS_TOPIC_COMPRESSION_CODEC] in _OFFSETS_COMPRESSION_CODECS:
        return None
    return "Value must be 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd)"


def _http_users(settings: Settings) -> str | None:
    users = settings[rows.METRICS_HTTP_USERS]
    if users is None:
        return None
    from config.http_users import parse_http_users  # on demand: few brokers have such users

    try:
        parse_http_users(users.value)
    except ValueError as error:
        return str(error)
    return None


def _log_dirs(settings: Settings) -> str | None:
    text = settings[rows.LOG_DIRS]
    dirs = folders(settings[rows.LOG_DIR] if text is None else text)
    if not dirs:
        return "At least one folder is needed"
    return None if len(set(dirs)) == len(dirs) else "Each folder may be named once"


def _zookeeper_connect(settings: Settings) -> str | None:
    text = settings[rows.ZOOKEEPER_CONNECT]
    hosts, _, chroot = (text or "").partition("/")
    if hosts and not all(re.fullmatch(_ZOOKEEPER_HOST, host.strip()) for host in hosts.split(",")):
        return "Expected host:port,host:port/chroot"
    if "," in chroot:
        return "Expected host:port,host:port/chroot, with one chroot after the last host"
    return None


def _alone_without_zookeeper(row: Property[tuple[str, ...]], is_alone: Callable[[Collection[str]], bool]) -> Rule:
    """Reject a setting that makes this broker one of several, unless it says where the others are found."""

    def problem(settings: Settings) -> str | None:
        if is_alone(settings[row]) or settings[rows.ZOOKEEPER_CONNECT]:
            return None
        return "A broker of a cluster needs ZooKeeper: set zookeeper.connect; without it a broker runs alone"

    return Rule(row, (rows.ZOOKEEPER_CONNECT,), problem)


def _process_roles(settings: Settings) -> str | None:
    roles = settings[rows.PROCESS_ROLES]
    return None if not roles or "broker" in roles else "Expected broker; a controller of its own is not supported"


def _must_be_false(row: Property[bool], reason: str) -> Rule:
    return Rule(row, (), lambda settings: reason if settings[row] else None)


RULES: tuple[Rule, ...] = (
    Rule(rows.BROKER_ID, (rows.BROKER_ID_GENERATION_ENABLE, rows.RESERVED_BROKER_MAX_ID), _broker_id),
    Rule(rows.ZOOKEEPER_CONNECT, (), _zookeeper_connect),
    _alone_without_zookeeper(rows.CONTROLLER_QUORUM_VOTERS, lambda voters: len(voters) <= 1),
    _alone_without_zookeeper(rows.CONTROLLER_QUORUM_BOOTSTRAP_SERVERS, lambda servers: len(servers) <= 1),
    _alone_without_zookeeper(rows.PROCESS_ROLES, lambda roles: not roles or "controller" in roles),
    Rule(rows.PROCESS_ROLES, (), _process_roles),
    Rule(rows.LOG_DIRS, (rows.LOG_DIR,), _log_dirs),
    Rule(rows.LOG_ROLL_MS, (), _at_least(rows.LOG_ROLL_MS, 1)),
    Rule(rows.LOG_ROLL_JITTER_MS, (), _at_least(rows.LOG_ROLL_JITTER_MS, 0)),
    Rule(rows.LOG_RETENTION_MS, (), _retention_ms(rows.LOG_RETENTION_MS)),
    Rule(rows.LOG_RETENTION_MINUTES, (), _retention_ms(rows.LOG_RETENTION_MINUTES)),
    Rule(rows.LOG_RETENTION_HOURS, (), _retention_ms(rows.LOG_RETENTION_HOURS)),
    Rule(rows.LOG_CLEANER_DEDUPE_BUFFER_SIZE, (rows.LOG_CLEANER_THREADS,), _dedupe_buffer_size),
    Rule(
        rows.REPLICA_FETCH_WAIT_MAX_MS,
        (rows.REPLICA_SOCKET_TIMEOUT_MS,),
        _not_above(rows.REPLICA_FETCH_WAIT_MAX_MS, rows.REPLICA_SOCKET_TIMEOUT_MS),
    ),
    Rule(
        rows.REPLICA_FETCH_WAIT_MAX_MS,
        (rows.REPLICA_LAG_TIME_MAX_MS,),
        _not_above(rows.REPLICA_FETCH_WAIT_MAX_MS, rows.REPLICA_LAG_TIME_MAX_MS),
    ),
    Rule(rows.QUEUED_MAX_REQUEST_BYTES, (rows.SOCKET_REQUEST_MAX_BYTES,), _queued_request_bytes),
    Rule(rows.MAX_CONNECTIONS_PER_IP, (rows.MAX_CONNECTIONS_PER_IP_OVERRIDES,), _max_connections_per_ip),
    Rule(rows.MAX_CONNECTIONS_PER_IP_OVERRIDES, (), _max_connections_overrides),
    Rule(
        rows.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
        (rows.CONNECTIONS_MAX_IDLE_MS,),
        _failed_authentication_delay,
    ),
    Rule(rows.OFFSETS_COMMIT_REQUIRED_ACKS, (rows.OFFSETS_TOPIC_REPLICATION_FACTOR,), _offsets_commit_acks),
    Rule(rows.OFFSETS_TOPIC_COMPRESSION_CODEC, (), _offsets_compression_codec),
    Rule(
        rows.GROUP_MIN_SESSION_TIMEOUT_MS,
        (rows.GROUP_MAX_SESSION_TIMEOUT_MS,),
        _not_above(rows.GROUP_MIN_SESSION_TIMEOUT_MS, rows.GROUP_MAX_SESSION_TIMEOUT_MS),
    ),
    *(
        rule
        for least, value, most in (
            (
                rows.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
                rows.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
                rows.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
            ),
            (
                rows.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
                rows.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
                rows.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
            ),
        )
        for rule in (Rule(least, (value,), _not_above(least, value)), Rule(value, (most,), _not_above(value, most)))
    ),
    Rule(rows.METRICS_HTTP_USERS, (), _http_users),
    _must_be_false(
        rows.ZOOKEEPER_METADATA_MIGRATION_ENABLE,
        "Expected false; migration to KRaft is not supported",
    ),
    _must_be_false(rows.REMOTE_LOG_STORAGE_SYSTEM_ENABLE, f"Expected false; {NoEffect.TIERED_STORAGE.value}"),
)
