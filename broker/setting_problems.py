"""What would stop a start, found in the settings alone: for the start itself, and for the check of a file.

Owns the checks that concern several parts of a broker. Must not know addresses, log directories or other servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from broker.environment import environment_of_this_machine
from broker.settings.listener_security import encrypted_listeners, sasl_listeners
from broker.settings.plug_ins import plug_in_problems
from broker.settings.security_sources import InvalidSecurityError, Sources
from config import broker_properties as properties
from config.broker import BrokerConfig
from config.definition import ConfigError
from protocol.releases import RELEASES, release_named

T = TypeVar("T")

GROUP_PROTOCOLS = {"classic", "consumer", "share"}


def unsupported_settings(config: BrokerConfig) -> Iterator[ConfigError]:
    """Yield the settings that are valid and not supported, such as a listener without its configured protection."""
    inter_broker, control_plane = config.inter_broker_listener, config.control_plane_listener
    if control_plane is not None and control_plane.security_protocol is not inter_broker.security_protocol:
        yield ConfigError(
            properties.CONTROL_PLANE_LISTENER_NAME.name,
            str(control_plane),
            f"brokers connect to it and to {inter_broker} alike, expected {inter_broker.security_protocol.name}",
        )
    release = config[properties.ADVERTISED_KAFKA_VERSION]
    if release is not None and (release_named(release) is None or not config.has_own_metadata_store):
        yield ConfigError(
            properties.ADVERTISED_KAFKA_VERSION.name,
            release,
            f"expected a release from {RELEASES[0]} to {RELEASES[-1]}, and a broker without ZooKeeper",
        )
    protocols = config.group_protocols
    if "classic" not in protocols or not protocols <= GROUP_PROTOCOLS:
        yield ConfigError(
            properties.GROUP_COORDINATOR_REBALANCE_PROTOCOLS.name,
            ",".join(sorted(protocols)),
            "expected classic, or classic with consumer or share",
        )


def setting_problems(config: BrokerConfig) -> Iterator[ConfigError | InvalidSecurityError]:
    """Yield what would stop a start with these settings, apart from addresses, directories and other servers.

    Reads key stores and JAAS files, imports plug-ins, and starts nothing.
    """
    yield from unsupported_settings(config)
    yield from plug_in_problems(config)
    for check in _security_checks(config):
        try:
            check()
        except InvalidSecurityError as error:
            yield error


def _security_checks(config: BrokerConfig) -> Iterator[Callable[[], object]]:
    """Yield what a start does with the settings of security. Each raises InvalidSecurityError, and opens nothing."""
    environment = environment_of_this_machine()
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731 - there are no users before a start
    sources = Sources(nothing, environment.random, environment.clock.now_ms, nothing)
    yield lambda: sasl_listeners(config, sources)
    if encrypted_listeners(config):
        from broker.settings.listener_tls import ListenerTls

        yield lambda: ListenerTls(config)
    if config.has_own_metadata_store:
        return
    from broker.settings.client_login import Surroundings
    from broker.settings.sasl_settings import broker_login
    from broker.settings.zookeeper_settings import authorizer_zookeeper_settings, zookeeper_settings

    around = Surroundings(environment.random, environment.clock.now_ms)
    yield lambda: zookeeper_settings(config, around)
    if config[properties.AUTHORIZER_ZOOKEEPER_URL]:
        yield lambda: authorizer_zookeeper_settings(config, around)
    yield lambda: broker_login(config, around, _in_place)


async def _in_place(work: Callable[[], T]) -> T:
    return work()
