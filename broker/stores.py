"""The stores of metadata that a broker opens: that of its cluster or its own, and that of the authorizer.

Owns which of them the configuration names. Must not know what they contain.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.cluster.metadata_store import open_store
from broker.environment import Environment
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.embedded.sqlite_store import SqliteStore
from controller.session_events import SessionEvents
from controller.state_store import StateStore
from storage.directories.log_directory import LogDirectory
from storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from broker.settings.client_login import Surroundings
    from controller.zookeeper.settings import ZooKeeperSettings


@dataclass(frozen=True, slots=True)
class OpenedStore:
    store: StateStore
    sessions: SessionEvents
    """Its sessions and response times, for metrics."""
    embedded: SqliteStore | None
    """The same store, if it is the broker's own; None: that of a cluster."""
    accepted: list[LogDirectory]
    """The log directories that the embedded store accepted, for `record_directories`."""


def surroundings(environment: Environment) -> Surroundings:
    """Return what logins to other servers need of the machine."""
    from broker.settings.client_login import Surroundings  # only brokers with ZooKeeper log in anywhere

    return Surroundings(environment.random, environment.clock.now_ms)


async def open_metadata_store(
    config: BrokerConfig,
    environment: Environment,
    log_manager: LogManager,
    blocking: Executor,
    on_lost: Callable[[Exception], None],
) -> OpenedStore:
    """Open the cluster's store if `zookeeper.connect` is set, else the embedded one beside the logs.

    `on_lost(error)` is called if no copy of the embedded store can be written.
    """
    zookeeper = _zookeeper_settings(config, environment)
    if zookeeper is not None and environment.new_cluster_store is not None:
        cluster_store = environment.new_cluster_store(zookeeper)
        await cluster_store.open()
        return OpenedStore(cluster_store, zookeeper.events, None, [])
    sessions = SessionEvents()
    store, accepted = await open_store(
        log_manager,
        environment.clock,
        blocking,
        sleep=environment.files.sleep,
        accepts_changed=config[properties.LOG_DIRS_ACCEPT_CHANGED],
        on_lost=on_lost,
        on_response=sessions.responded,
    )
    return OpenedStore(store, sessions, store, accepted)


async def open_acl_store(config: BrokerConfig, environment: Environment) -> StateStore | None:
    """Open the store of the authorizer's own ensemble; return None if it has none."""
    if not config[properties.AUTHORIZER_ZOOKEEPER_URL] or environment.new_cluster_store is None:
        return None
    from broker.settings.zookeeper_settings import authorizer_zookeeper_settings

    zookeeper = authorizer_zookeeper_settings(config, surroundings(environment))
    if zookeeper is None:
        return None
    store = environment.new_cluster_store(zookeeper)
    await store.open()
    return store


def _zookeeper_settings(config: BrokerConfig, environment: Environment) -> ZooKeeperSettings | None:
    if not config[properties.ZOOKEEPER_CONNECT]:
        return None
    from broker.settings.zookeeper_settings import zookeeper_settings  # a broker that runs alone starts without it

    return zookeeper_settings(config, surroundings(environment))
