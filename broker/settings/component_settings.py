"""Builds the settings of each part of a broker from its configuration.

Owns the translation, names resolved to addresses included. Must not know what the parts do with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.cluster.features import supported_features
from broker.network.connection_quotas import ConnectionLimits, ListenerLimits
from broker.network.listener import ListenerSettings
from broker.quotas.client_quotas import addresses_of
from broker.quotas.enforcement import Key, QuotaWindows
from broker.settings.policies import Policies
from config import broker_properties as properties
from config.broker import BrokerConfig
from config.definition import Property
from config.log_config import CompactionLag
from controller.machine.settings import ControllerSettings

SESSION_END_MARGIN_MS = 5_000


class UnknownHostError(Exception):
    """A setting names a host that has no address. The message names both."""


def listener_settings(config: BrokerConfig) -> ListenerSettings:
    return ListenerSettings(
        request_size_max=config[properties.SOCKET_REQUEST_MAX_BYTES],
        backlog_size=config[properties.SOCKET_LISTEN_BACKLOG_SIZE],
        send_buffer_bytes=config[properties.SOCKET_SEND_BUFFER_BYTES],
        receive_buffer_bytes=config[properties.SOCKET_RECEIVE_BUFFER_BYTES],
        connection_idle_ms_max=config[properties.CONNECTIONS_MAX_IDLE_MS],
        queued_request_bytes_max=config[properties.QUEUED_MAX_REQUEST_BYTES],
    )


def registration_wait_ms(config: BrokerConfig) -> int:
    """Return how long a start waits for the session of its killed predecessor.

    ZooKeeper ends sessions at ticks, and may have granted a longer one than was asked for.
    """
    wait_ms = config[properties.ZOOKEEPER_REGISTRATION_WAIT_MS]
    return config[properties.ZOOKEEPER_SESSION_TIMEOUT_MS] + SESSION_END_MARGIN_MS if wait_ms is None else wait_ms


def connection_limits(config: BrokerConfig, per_ip_overrides: Mapping[str, int]) -> ConnectionLimits:
    """`per_ip_overrides` are those of `limits_by_address`."""
    names = [listener.name for listener in config.listeners]
    return ConnectionLimits(
        connections_max=config[properties.MAX_CONNECTIONS],
        creation_rate_max=config[properties.MAX_CONNECTION_CREATION_RATE],
        per_ip_max=config[properties.MAX_CONNECTIONS_PER_IP],
        per_ip_overrides=per_ip_overrides,
        by_listener={
            name: ListenerLimits(
                connections_max=_own(config, name, properties.MAX_CONNECTIONS),
                creation_rate_max=_own(config, name, properties.MAX_CONNECTION_CREATION_RATE),
            )
            for name in names
        },
        protected_listener=config.inter_broker_listener.name if len(names) > 1 else None,
        window_count=config[properties.QUOTA_WINDOW_NUM],
        window_ms=config[properties.QUOTA_WINDOW_SIZE_SECONDS] * 1000,
    )


def _own(config: BrokerConfig, listener: str, row: Property[int]) -> int:
    """Return the limit of one listener. The broker's limit applies to all listeners together and is not inherited."""
    value = config.of_listener(listener, row)
    return row.default if value is None else value


def controller_settings(config: BrokerConfig, policies: Policies) -> ControllerSettings:
    return ControllerSettings(
        num_partitions=config[properties.NUM_PARTITIONS],
        default_replication_factor=config[properties.DEFAULT_REPLICATION_FACTOR],
        delete_topic_enable=config[properties.DELETE_TOPIC_ENABLE],
        unclean_leader_election_enable=config[properties.UNCLEAN_LEADER_ELECTION_ENABLE],
        auto_leader_rebalance_enable=config[properties.AUTO_LEADER_REBALANCE_ENABLE],
        leader_imbalance_check_interval_seconds=config[properties.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS],
        leader_imbalance_per_broker_percentage=config[properties.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
        inter_broker_listener_name=config.inter_broker_listener.name,
        protocol=config.inter_broker_protocol,
        features=supported_features(config),
        compaction_lag=CompactionLag.of(config),
        check_new_topic=policies.check_new_topic,
    )


def quota_windows(config: BrokerConfig) -> QuotaWindows:
    return QuotaWindows(
        count=config[properties.QUOTA_WINDOW_NUM],
        ms=config[properties.QUOTA_WINDOW_SIZE_SECONDS] * 1000,
        mutation_count=config[properties.CONTROLLER_QUOTA_WINDOW_NUM],
        mutation_ms=config[properties.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1000,
    )


def quota_defaults(config: BrokerConfig) -> dict[Key, float]:
    """Return the default quotas of client ids that the properties of Kafka 0.9 set."""
    rows = {Key.PRODUCE: properties.QUOTA_PRODUCER_DEFAULT, Key.FETCH: properties.QUOTA_CONSUMER_DEFAULT}
    return {key: float(config[row]) for key, row in rows.items() if config[row] != row.default}


async def check_hosts(text: str) -> None:
    """Check that each host in a value of max.connections.per.ip.overrides has an address. Raises UnknownHostError."""
    for host, _ in _entries(text):
        await _addresses_of(host, text)


async def limits_by_address(text: str) -> tuple[dict[str, int], list[UnknownHostError]]:
    """Return the limits of `host:n,host:n` by numeric address, and an error for each host that has none."""
    limits: dict[str, int] = {}
    errors: list[UnknownHostError] = []
    for host, limit in _entries(text):
        try:
            limits.update(dict.fromkeys(await _addresses_of(host, text), int(limit)))
        except UnknownHostError as error:
            errors.append(error)
    return limits, errors


async def _addresses_of(host: str, text: str) -> set[str]:
    try:
        return await addresses_of(host)
    except OSError as error:
        raise UnknownHostError(
            f"Invalid value {text} for configuration {properties.MAX_CONNECTIONS_PER_IP_OVERRIDES.name}: "
            f"{host} is no address and cannot be resolved ({error.strerror or error})"
        ) from error


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the host and the limit of each entry of `host:n,host:n`. One without a host has another error."""
    for entry in text.split(","):
        host, _, limit = entry.strip().rpartition(":")
        if host:
            yield host, limit
