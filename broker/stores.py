"""The stores of metadata that a broker opens, and the identity on which they and its log directories have to agree.

Owns which stores the configuration names: that of the cluster or the broker's own, and that of the authorizer. Must not
know what else they contain.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from base.pause import InThread
from broker.cluster.metadata_store import open_store, record_directories, retire_copies
from broker.environment import Environment
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.embedded.sqlite_store import SqliteStore
from controller.store.session_events import SessionEvents
from controller.store.state_store import StateStore
from controller.tree.registration import check_cluster_id, choose_broker_id, ensure_cluster_id
from storage.directories.log_directory import LogDirectory
from storage.disk.meta_properties import MetaProperties
from storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from broker.settings.client_login import Surroundings
    from controller.zookeeper.settings import ZooKeeperSettings

UNNAMED = "(without cluster.id)"
"""Stands for the cluster id of directories that have partitions and none: they must not begin a new cluster."""


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


async def claim_directories(
    config: BrokerConfig,
    environment: Environment,
    log_manager: LogManager,
    meta: MetaProperties | None,
    opened: OpenedStore,
    in_thread: InThread,
) -> tuple[int, str]:
    """Determine the broker id and the cluster id, and write them to the log directories; return both.

    `meta` is what the directories have. Raises IdentityError if it contradicts the store or the configuration.
    """
    store = opened.store
    stored = None if meta is None else meta.cluster_id
    is_unnamed = meta is not None and stored is None and await in_thread(log_manager.startup.has_partitions)
    cluster_id = await ensure_cluster_id(store, environment.random, stored=UNNAMED if is_unnamed else stored)
    check_cluster_id(stored=stored, cluster_id=cluster_id)
    broker_id = await choose_broker_id(
        store,
        configured=config[properties.BROKER_ID],
        stored=None if meta is None else meta.broker_id,
        generation_enabled=config[properties.BROKER_ID_GENERATION_ENABLE],
        reserved_id_max=config[properties.RESERVED_BROKER_MAX_ID],
    )
    if opened.embedded is not None:
        await record_directories(store, log_manager, opened.accepted)
    await in_thread(lambda: log_manager.startup.claim(MetaProperties(broker_id, cluster_id)))
    if opened.embedded is None:
        await in_thread(lambda: retire_copies(log_manager, environment.files))
    return broker_id, cluster_id


async def open_acl_store(
    config: BrokerConfig, environment: Environment, metadata_store: StateStore, undo: AsyncExitStack
) -> StateStore:
    """Open the store of the authorizer's own ensemble, which `undo` closes; else return the metadata store."""
    if not config[properties.AUTHORIZER_ZOOKEEPER_URL] or environment.new_cluster_store is None:
        return metadata_store
    from broker.settings.zookeeper_settings import authorizer_zookeeper_settings

    zookeeper = authorizer_zookeeper_settings(config, surroundings(environment))
    if zookeeper is None:
        return metadata_store
    store = environment.new_cluster_store(zookeeper)
    await store.open()
    undo.push_async_callback(store.close)
    return store


def _zookeeper_settings(config: BrokerConfig, environment: Environment) -> ZooKeeperSettings | None:
    if config.has_own_metadata_store:
        return None
    from broker.settings.zookeeper_settings import zookeeper_settings  # a broker that runs alone starts without it

    return zookeeper_settings(config, surroundings(environment))
