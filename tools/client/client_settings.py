"""Translates client settings from the names of Kafka's Java clients to those of the tools' client library.

Most names are equal in both. The tables list names that differ, names without a meaning in the library, and the names
of 0.8, each of which logs a warning. Unknown names are ignored with a warning; the library rejects wrong values.

Owns the translation of names and values. Must not know any tool, nor the purpose of a setting.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from base import properties
from tools.base.command_line import InvalidSettingsError, UsageError, warn
from tools.client.library_security import TRANSLATED, library_security

# fmt: off
_SAME = frozenset({
    "acks", "allow.auto.create.topics", "auto.commit.interval.ms", "batch.size",
    "bootstrap.servers", "check.crcs", "client.dns.lookup", "client.id", "client.rack", "compression.type",
    "connections.max.idle.ms", "delivery.timeout.ms", "enable.auto.commit", "enable.idempotence", "fetch.max.bytes",
    "fetch.min.bytes", "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
    "heartbeat.interval.ms", "isolation.level", "linger.ms", "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "metadata.max.age.ms", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "retries", "retry.backoff.max.ms", "retry.backoff.ms", "sasl.kerberos.service.name",
    "sasl.mechanism", "security.protocol", "session.timeout.ms", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "transaction.timeout.ms", "transactional.id",
})
# fmt: on

_RENAMED: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
}

# fmt: off
_WITHOUT_EFFECT = frozenset({
    "auto.include.jmx.reporter", "default.api.timeout.ms", "enable.metrics.push", "exclude.internal.topics",
    "interceptor.classes", "key.deserializer", "key.serializer", "max.block.ms", "max.poll.records",
    "metadata.max.idle.ms", "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples",
    "metrics.recording.level", "metrics.sample.window.ms", "partitioner.class",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.ignore.keys",
    "security.providers", "socket.connection.setup.timeout.ms", "ssl.enabled.protocols", "ssl.engine.factory.class",
    "ssl.keymanager.algorithm", "ssl.protocol", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "value.deserializer", "value.serializer",
})
# fmt: on

_OLD_NAMES: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "auto.commit.enable": "enable.auto.commit",
}
_OLD_WITHOUT_EFFECT = frozenset({"zookeeper.connect", "producer.type", "serializer.class"})
_OLD_OFFSET_RESETS: Mapping[str, str] = {"smallest": "earliest", "largest": "latest"}

_ASSIGNORS: Mapping[str, str] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def _kilobytes(text: str) -> str:
    return str(max(1, int(text) // 1024))


def _assignors(text: str) -> str:
    """Return the library's names of assignors for their Java class names."""
    names = (name.strip().rpartition(".")[2] for name in text.split(","))
    return ",".join(_ASSIGNORS.get(name, name) for name in names)


def _reset(value: str) -> str:
    return "error" if value == "none" else value


_CONVERTED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "auto.offset.reset": ("auto.offset.reset", _reset),
    "buffer.memory": ("queue.buffering.max.kbytes", _kilobytes),
    "partition.assignment.strategy": ("partition.assignment.strategy", _assignors),
}


def load_settings(path: str | None, assignments: Sequence[str]) -> dict[str, str]:
    """Return the settings of a file and of `key=value` options, which win, under current names. Raises UsageError."""
    settings: dict[str, str] = {}
    if path is not None:
        try:
            settings = properties.load(path)
        except (OSError, ValueError) as error:
            raise InvalidSettingsError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    settings.update(parse_assignments(assignments))
    return _renamed(settings)


def parse_assignments(assignments: Sequence[str]) -> dict[str, str]:
    """Return keys and values of `key=value` options; a missing value is empty. Raises UsageError without a key."""
    pairs = [assignment.partition("=") for assignment in assignments]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise UsageError(f"Invalid command line properties: expected key=value, found '{key}'")
    return {key: value for key, _, value in pairs}


def _renamed(settings: Mapping[str, str]) -> dict[str, str]:
    renamed = {key: value.strip() for key, value in settings.items() if key not in _OLD_NAMES}
    for old, new in _OLD_NAMES.items():
        if old in settings:
            warn(f"{old} is deprecated; use {new}")
            renamed.setdefault(new, settings[old].strip())
    for key in sorted(_OLD_WITHOUT_EFFECT.intersection(renamed)):
        warn(f"{key} is deprecated and ignored")
        del renamed[key]
    if (reset := renamed.get("auto.offset.reset", "")) in _OLD_OFFSET_RESETS:
        renamed["auto.offset.reset"] = _OLD_OFFSET_RESETS[reset]
        warn(f"auto.offset.reset={reset} is deprecated; use {renamed['auto.offset.reset']}")
    return renamed


def library_settings(settings: Mapping[str, str], *, is_consumer: bool) -> dict[str, Any]:
    """Convert Java settings to those of the client library. Raises UsageError for values that it cannot convert."""
    # In the library a consumer has no request timeout, only a socket timeout.
    request_timeout = "socket.timeout.ms" if is_consumer else "request.timeout.ms"
    result: dict[str, Any] = library_security(settings)
    for key, value in settings.items():
        if key in _SAME:
            result[key] = value
        elif key in _RENAMED:
            result[_RENAMED[key]] = value
        elif key in _CONVERTED:
            name, convert = _CONVERTED[key]
            try:
                result[name] = convert(value)
            except ValueError:
                raise InvalidSettingsError(
                    f"Invalid value {value} for configuration {key}: Not a number of type LONG"
                ) from None
        elif key == "request.timeout.ms":
            result[request_timeout] = value
        elif key not in _WITHOUT_EFFECT and key not in TRANSLATED:
            warn(f"The configuration '{key}' was supplied but isn't a known config.")
    return result
