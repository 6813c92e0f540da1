"""Which broker settings may change while the broker runs, and how far (KIP-226). Pure decisions over plain values.

Owns the rules for a change that do not apply to a start: which settings are read-only or belong to one broker, and how
fast thread counts may grow. `config` decides which values are valid. A rejected change fails with INVALID_REQUEST and
Kafka's text. A layer that was stored earlier is never rejected as a whole: its unusable settings are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from config import broker_properties as rows
from config import checks
from config.broker import LISTENER_PREFIX, BrokerConfig, base_row
from config.broker_properties import BROKER_PROPERTIES
from config.definition import ConfigError, ConfigErrors, Property, UpdateMode
from config.listeners import LISTENER_KEYS
from protocol.errors import ErrorCode, KafkaError

THREAD_COUNTS: tuple[Property[int], ...] = (
    rows.NUM_IO_THREADS,
    rows.NUM_NETWORK_THREADS,
    rows.NUM_REPLICA_FETCHERS,
    rows.NUM_RECOVERY_THREADS_PER_DATA_DIR,
    rows.BACKGROUND_THREADS,
    rows.LOG_CLEANER_THREADS,
)

# Key material belongs to a listener; without its prefix every TLS listener would reload at the same time.
PER_LISTENER_ONLY = frozenset(
    row.name
    for row in (
        rows.SSL_KEYSTORE_TYPE,
        rows.SSL_KEYSTORE_LOCATION,
        rows.SSL_KEYSTORE_PASSWORD,
        rows.SSL_KEY_PASSWORD,
        rows.SSL_KEYSTORE_KEY,
        rows.SSL_KEYSTORE_CERTIFICATE_CHAIN,
        rows.SSL_TRUSTSTORE_TYPE,
        rows.SSL_TRUSTSTORE_LOCATION,
        rows.SSL_TRUSTSTORE_PASSWORD,
        rows.SSL_TRUSTSTORE_CERTIFICATES,
    )
)

# Kafka's table does not have the settings of its authorizer, which is a plug-in, so Kafka accepts any change of them.
OF_AUTHORIZER: frozenset[Property[object]] = frozenset(
    (
        rows.SUPER_USERS,
        rows.ALLOW_EVERYONE_IF_NO_ACL_FOUND,
        rows.AUTHORIZER_ZOOKEEPER_URL,
        rows.AUTHORIZER_ZOOKEEPER_CONNECTION_TIMEOUT_MS,
        rows.AUTHORIZER_ZOOKEEPER_SESSION_TIMEOUT_MS,
        rows.AUTHORIZER_ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS,
    )
)


def check_change(config: BrokerConfig, proposed: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """Return `config` with `proposed` as its dynamic layer of this broker, or that of the whole cluster.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    _refuse("Cannot update these configs dynamically", filter(_is_read_only, proposed))
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        filter(PER_LISTENER_ONLY.__contains__, proposed),
    )
    _refuse(
        "Configs cannot be updated dynamically for existing listeners, restart the broker or create a new listener",
        _logins_of_listeners(config, proposed, per_broker=per_broker),
    )
    _refuse(
        "These configs need a restart of the broker to change, set them in its properties file",
        filter(_needs_restart_here, proposed),
    )
    if not per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            filter(_is_per_broker, proposed),
        )
    try:
        changed = BrokerConfig(
            config.static,
            config.dynamic_default if per_broker else proposed,
            proposed if per_broker else config.dynamic_broker,
        )
    except ConfigErrors as failure:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(failure.errors[0])) from failure
    for row in THREAD_COUNTS:
        _check_thread_count(row.name, config[row], changed[row])
    _check_protocols(config, changed)
    return changed


def usable(stored: Mapping[str, str], *, per_broker: bool) -> tuple[dict[str, str], list[str]]:
    """Return the usable part of a stored layer, and a line for each key that is ignored."""
    kept: dict[str, str] = {}
    problems = []
    for key, text in stored.items():
        problem = _problem(key, text, per_broker=per_broker)
        if problem is None:
            kept[key] = text
        else:
            problems.append(problem)
    return kept, problems


def contradicting(
    errors: Iterable[ConfigError], default: Mapping[str, str], broker: Mapping[str, str]
) -> dict[str, ConfigError]:
    """Return the settings of the dynamic layers that cause `errors`, each with one of its errors; at least one.

    These are the settings that a broken rule names or reads, whether another layer or the file has its other settings.
    If there is none, the rule reads more than it declares: then a whole layer is at fault, at first that of the broker.
    """
    found: dict[str, ConfigError] = {}
    for error in errors:
        taking_part = {error.key, *checks.read_with(error.key)}
        if error.key in LISTENER_KEYS:
            taking_part |= LISTENER_KEYS
        for key in sorted(taking_part & (default.keys() | broker.keys()) or broker.keys() or default.keys()):
            found.setdefault(key, error)
    return found


def _problem(key: str, text: str, *, per_broker: bool) -> str | None:
    if _is_read_only(key) or _needs_restart_here(key):
        return f"{key} does not change without a restart"
    if key in PER_LISTENER_ONLY:
        return f"{key} needs the prefix of a listener"
    if not per_broker and _is_per_broker(key):
        return f"{key} belongs to a broker, not to the whole cluster"
    row = base_row(key)
    if row is not None:
        try:
            row.parse(text)
        except ConfigError as error:
            return str(error)
    return None


def _is_read_only(key: str) -> bool:
    row = BROKER_PROPERTIES.get(key)
    return row is not None and row.update_mode is UpdateMode.READ_ONLY and row not in OF_AUTHORIZER


def _needs_restart_here(key: str) -> bool:
    """Kafka accepts a read-only setting with the prefix of a listener, and applies it after a restart.

    That would let a client with AlterConfigs have the broker fetch an address (CVE-2025-27817), so it is refused.
    """
    from config.needs_restart import NEEDS_RESTART, PLUG_INS  # on demand: a start changes no settings

    row = base_row(key)
    if row is None:
        return False
    if key.startswith(LISTENER_PREFIX):
        return row.update_mode is UpdateMode.READ_ONLY or row in PLUG_INS
    return row.name in NEEDS_RESTART


def _logins_of_listeners(config: BrokerConfig, proposed: Mapping[str, str], *, per_broker: bool) -> Iterator[str]:
    """Yield the changed settings of SASL that belong to listeners which exist already."""
    before = config.dynamic_broker if per_broker else config.dynamic_default
    existing = {listener.name for listener in config.listeners}
    for key in proposed.keys() | before.keys():
        row = base_row(key)
        if (
            row is not None
            and row.name.startswith("sasl.")
            and key.startswith(LISTENER_PREFIX)
            and proposed.get(key) != before.get(key)
            and key.removeprefix(LISTENER_PREFIX).partition(".")[0].upper() in existing
        ):
            yield key


def _check_protocols(config: BrokerConfig, changed: BrokerConfig) -> None:
    """Raise KafkaError if a listener that stays has another security protocol."""
    before = {listener.name: listener.security_protocol for listener in config.listeners}
    for listener in changed.listeners:
        if before.get(listener.name, listener.security_protocol) is not listener.security_protocol:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Security protocol cannot be updated for existing listener {listener.name}",
            )


def _is_per_broker(key: str) -> bool:
    row = base_row(key)
    return row is not None and (row.update_mode is UpdateMode.PER_BROKER or key.startswith(LISTENER_PREFIX))


def _check_thread_count(key: str, old: int, new: int) -> None:
    failed = f"Dynamic thread count update validation failed for {key}={new}"
    if new < min(old, 1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{failed}, value should be at least 1")
    if new < old // 2:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{failed}, value should be at least half the current value {old}")
    if new > old * 2:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{failed}, value should not be greater than double the current value {old}"
        )


def _refuse(reason: str, keys: Iterable[str]) -> None:
    named = sorted(keys)
    if named:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: Set({', '.join(named)})")
