"""The settings that the components of a broker derive from its configuration."""

from random import Random

import pytest

from broker.network.connection_quotas import UNLIMITED, ListenerLimits
from broker.settings.client_login import Surroundings
from broker.settings.component_settings import (
    UnknownHostError,
    check_hosts,
    connection_limits,
    limits_by_address,
    listener_settings,
)
from broker.settings.zookeeper_settings import zookeeper_settings
from config.broker import BrokerConfig

TWO_LISTENERS = {
    "listeners": "CLIENT://:9092,INTERNAL://:9093",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


def test_limits_of_connections() -> None:
    config = BrokerConfig.from_properties(
        {
            **TWO_LISTENERS,
            "max.connections": "100",
            "max.connection.creation.rate": "20",
            "listener.name.client.max.connections": "30",
            "listener.name.internal.max.connection.creation.rate": "5",
            "max.connections.per.ip": "7",
            "quota.window.size.seconds": "2",
        }
    )
    limits = connection_limits(config, {"127.0.0.1": 2})
    assert (limits.connections_max, limits.creation_rate_max) == (100, 20)
    assert limits.by_listener == {
        "CLIENT": ListenerLimits(connections_max=30),
        "INTERNAL": ListenerLimits(creation_rate_max=5),
    }
    assert limits.protected_listener == "INTERNAL"
    assert (limits.per_ip_max, limits.per_ip_overrides) == (7, {"127.0.0.1": 2})
    assert (limits.window_count, limits.window_ms) == (11, 2000)


def test_limits_change_while_the_broker_runs() -> None:
    config = BrokerConfig.from_properties({**TWO_LISTENERS, "listener.name.client.max.connections": "30"})
    config.apply_dynamic(default={"max.connections": "50"}, broker={"listener.name.client.max.connections": "8"})
    limits = connection_limits(config, {})
    assert limits.connections_max == 50
    assert limits.by_listener["CLIENT"].connections_max == 8


def test_the_only_listener_is_not_protected() -> None:
    limits = connection_limits(BrokerConfig.from_properties({}), {})
    assert limits.protected_listener is None
    assert limits.connections_max == limits.per_ip_max == UNLIMITED


async def test_only_the_limit_of_an_unknown_host_is_left_out() -> None:
    overrides = "127.0.0.1:2, ::1:3,no such host:1"
    limits, (error,) = await limits_by_address(overrides)
    assert limits == {"127.0.0.1": 2, "::1": 3}
    assert f"{overrides} for configuration max.connections.per.ip.overrides: no such host" in str(error)
    with pytest.raises(UnknownHostError, match="no such host"):
        await check_hosts(overrides)


def test_the_bound_of_arriving_requests() -> None:
    config = BrokerConfig.from_properties({"queued.max.request.bytes": "200000000"})
    assert listener_settings(config).queued_request_bytes_max == 200_000_000


def test_broker_without_zookeeper_connect_has_no_zookeeper() -> None:
    assert (
        zookeeper_settings(BrokerConfig.from_properties({"zookeeper.connect": " "}), Surroundings(Random(1), lambda: 0))
        is None
    )


@pytest.mark.parametrize(
    ("connect", "hosts", "chroot"),
    [("a:1", "a:1", ""), ("a:1,b:2/", "a:1,b:2", ""), ("a,b:2/kafka/one/", "a,b:2", "/kafka/one")],
)
def test_zookeeper_connect_ends_in_the_chroot(connect: str, hosts: str, chroot: str) -> None:
    settings = zookeeper_settings(
        BrokerConfig.from_properties({"zookeeper.connect": connect, "zookeeper.session.timeout.ms": "6000"}), Random(1)
    )
    assert settings is not None
    assert (settings.hosts, settings.chroot, settings.connection_timeout_ms) == (hosts, chroot, 6000)
