"""The settings of a worker: what a worker's properties file may have.

Owns names, defaults and checks, and which settings reach which client. Must not know what they are used for.
"""

from __future__ import annotations

import logging
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
    one_of_ignoring_case,
)
from spark_jobs.connect.worker.providers import Providers
from tools.client.client_settings import library_settings

logger = logging.getLogger("org.apache.kafka.connect.runtime.WorkerConfig")
library_logger = logging.getLogger("org.apache.kafka.clients")

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


def _nothing(name: str, value: Any) -> None:
    if value:
        raise invalid(name, ",".join(value), "Only an empty value is supported, which disables /admin")


_COMMON = Definition(
    [
        Setting("bootstrap.servers", Kind.STRING, "localhost:9092", HIGH, "Addresses of brokers.", not_empty),
        Setting("client.id", Kind.STRING, "", LOW, "The beginning of the names of the worker's clients."),
        Setting("key.converter", Kind.CLASS, REQUIRED, HIGH, "The converter of keys."),
        Setting("value.converter", Kind.CLASS, REQUIRED, HIGH, "The converter of values."),
        Setting(
            "header.converter", Kind.CLASS, HEADER_CONVERTER, LOW, "The converter of headers.",
        ),
        Setting(
            "task.shutdown.graceful.timeout.ms", Kind.LONG, 5_000, LOW,
            "How long tasks have to end, all of them together.", at_least(0),
        ),
        Setting("offset.flush.interval.ms", Kind.LONG, 60_000, LOW, "How often offsets are stored.", at_least(1)),
        Setting(
            "offset.flush.timeout.ms", Kind.LONG, 5_000, LOW,
            "How long storing offsets may take before it is left to the next time.", at_least(1),
        ),
        Setting("listeners", Kind.LIST, ["http://:8083"], LOW, "Addresses of the REST interface: http:// or https://."),
        Setting("rest.host.name", Kind.STRING, None, LOW, "The old way to name the address of the REST interface."),
        Setting("rest.port", Kind.INT, None, LOW, "The old way to name its port.", between(0, 65535)),
        Setting("rest.advertised.host.name", Kind.STRING, None, LOW, "The host by which other workers reach this one."),
        Setting("rest.advertised.port", Kind.INT, None, LOW, "The port by which they do.", between(1, 65535)),
        Setting("rest.advertised.listener", Kind.STRING, None, LOW, "Which protocol they use: http or https."),
        Setting(
            "admin.listeners", Kind.LIST, None, LOW,
            "Empty: /admin does not exist. Without it /admin has the addresses of `listeners`.", _nothing,
        ),
        Setting("access.control.allow.origin", Kind.STRING, "", LOW, "The origins that browsers may send from, or *."),
        Setting("access.control.allow.methods", Kind.STRING, "", LOW, "The methods that browsers may use."),
        Setting("plugin.path", Kind.LIST, [], LOW, "Folders with Python modules of connectors and others."),
        Setting("spark.master", Kind.STRING, None, LOW, "The Spark cluster of jobs; without it, this machine."),
        Setting(
            "spark.checkpoint.folder", Kind.STRING, None, LOW,
            "Where jobs keep their progress: a folder, or a URI. A group of workers needs one that all of them reach.",
            not_empty,
        ),
        Setting("topic.creation.enable", Kind.BOOLEAN, True, LOW, "Whether sources may create topics."),
        Setting(
            "topic.tracking.enable", Kind.BOOLEAN, True, LOW, "Whether the topics of connectors are recorded."
        ),
        Setting(
            "topic.tracking.allow.reset", Kind.BOOLEAN, True, LOW, "Whether that record can be reset."
        ),
        Setting(
            "connector.client.config.override.policy", Kind.STRING, "All", MEDIUM,
            "Which settings of clients a connector may override.", one_of_ignoring_case("All", "None", "Principal"),
        ),
    ]
)  # fmt: skip

STANDALONE: Final = _COMMON + Definition(
    [Setting("offset.storage.file.filename", Kind.STRING, REQUIRED, HIGH, "The file of the offsets of sources.")]
)

DISTRIBUTED: Final = _COMMON + Definition(
    [
        Setting("group.id", Kind.STRING, REQUIRED, HIGH, "The name of the group of workers.", not_empty),
        Setting("config.storage.topic", Kind.STRING, REQUIRED, HIGH, "The topic of configurations.", not_empty),
        Setting("config.storage.replication.factor", Kind.SHORT, 3, LOW, "Its replication factor."),
        Setting("offset.storage.topic", Kind.STRING, REQUIRED, HIGH, "The topic of the sources' offsets.", not_empty),
        Setting("offset.storage.replication.factor", Kind.SHORT, 3, LOW, "Its replication factor."),
        Setting("offset.storage.partitions", Kind.INT, 25, LOW, "Its partitions; -1 for the broker's default."),
        Setting("status.storage.topic", Kind.STRING, REQUIRED, HIGH, "The topic of states.", not_empty),
        Setting("status.storage.replication.factor", Kind.SHORT, 3, LOW, "Its replication factor."),
        Setting("status.storage.partitions", Kind.INT, 5, LOW, "Its partitions; -1 for the broker's default."),
        Setting(
            "session.timeout.ms", Kind.INT, 10_000, HIGH,
            "After how long without a heartbeat a worker counts as dead.", at_least(1),
        ),
        Setting("heartbeat.interval.ms", Kind.INT, 3_000, HIGH, "How often a worker sends a heartbeat.", at_least(1)),
        Setting(
            "rebalance.timeout.ms", Kind.INT, 60_000, HIGH, "How long workers have to join a rebalance.", at_least(1)
        ),
        Setting(
            "scheduled.rebalance.max.delay.ms", Kind.INT, 0, LOW,
            "How long the work of a worker that left waits for its return. Kafka's default is five minutes.",
            between(0, 2**31 - 1),
        ),
        Setting("worker.sync.timeout.ms", Kind.INT, 3_000, MEDIUM, "Without effect."),
        Setting("worker.unsync.backoff.ms", Kind.INT, 300_000, MEDIUM, "Without effect."),
        Setting(
            "connect.protocol", Kind.STRING, "sessioned", LOW, "The newest protocol of the group of workers.",
            one_of_ignoring_case("eager", "compatible", "sessioned"),
        ),
        Setting(
            "exactly.once.source.support", Kind.STRING, "disabled", HIGH,
            "Whether sources write records and offsets in transactions.",
            one_of_ignoring_case("disabled", "preparing", "enabled"),
        ),
        Setting(
            "inter.worker.key.ttl.ms", Kind.INT, 3_600_000, LOW, "How long a key of the group's session is used."
        ),
    ]
)  # fmt: skip

_WITHOUT_EFFECT: Final = frozenset(
    {"cluster", "worker.sync.timeout.ms", "worker.unsync.backoff.ms", "offset.storage.file.name", "plugin.discovery"}
)
_PREFIXES: Final = (
    "producer.", "consumer.", "admin.", "internal.", "key.converter.", "value.converter.", "header.converter.",
    "config.storage.", "offset.storage.", "status.storage.", "config.providers", "listeners.https.", "ssl.", "sasl.",
    "security.", "spark.conf.", "metrics.", "metric.", "rest.", "response.http.", "inter.worker.", "socket.",
    "reconnect.", "retry.", "request.timeout.ms", "metadata.", "connections.max.idle.ms", "client.dns.lookup",
)  # fmt: skip


class WorkerSettings:
    """The settings of one worker, given and parsed."""

    def __init__(self, given: Mapping[str, str], *, is_distributed: bool) -> None:
        """Raises ConfigError for a missing or invalid setting. References in `given` are resolved."""
        self.providers = Providers(given)
        given = self.providers.resolved(given)
        self.given = {"header.converter": HEADER_CONVERTER, **given}
        self.is_distributed = is_distributed
        definition = DISTRIBUTED if is_distributed else STANDALONE
        self.parsed = definition.parse(given)
        for key in sorted(given):
            if key in _WITHOUT_EFFECT or (key not in definition.settings and not key.startswith(_PREFIXES)):
                logger.warning("the setting %s has no effect", key)

    def __getitem__(self, name: str) -> Any:
        return self.parsed[name]

    @property
    def group_id(self) -> str:
        """The name of the group, by which topics and transactional ids are named."""
        return str(self.parsed["group.id"]) if self.is_distributed else "connect-standalone"

    @property
    def exactly_once(self) -> bool:
        return self.is_distributed and self["exactly.once.source.support"].lower() == "enabled"

    def client(self, kind: str) -> dict[str, str]:
        """Return the settings of producers, consumers or admin clients under Java's names: those of the worker that
        secure a connection, and those with the prefix `kind.`."""
        common = {"bootstrap.servers": self["bootstrap.servers"]}
        common |= {key: value for key, value in self.given.items() if key.startswith(("ssl.", "sasl.", "security."))}
        return common | with_prefix(self.given, f"{kind}.")


def with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the settings whose names begin with a prefix, without it."""
    return {key[len(prefix) :]: value for key, value in settings.items() if key.startswith(prefix)}


def for_library(settings: Mapping[str, str], *, is_consumer: bool) -> dict[str, Any]:
    """Return Java's settings as those of the client library, which logs like the worker. Raises UsageError."""
    endless = str(2**31 - 1)
    found = {key: value for key, value in settings.items() if (key, value) != ("delivery.timeout.ms", endless)}
    if len(found) < len(settings):
        found["delivery.timeout.ms"] = "0"  # the library's "without end"
    return {**library_settings(found, is_consumer=is_consumer), "logger": library_logger}
