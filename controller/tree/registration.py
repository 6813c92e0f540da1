"""Register a broker: the roots of the tree, the cluster id, the broker id, the registration.

Owns these four writes, which run in this order at start, before there is a controller; each is safe to repeat and to
race. Also owns the notification of an offline log directory. Must not know elections.
"""

from collections.abc import Iterable
from contextlib import suppress
from random import Random

from base.dataclass import dataclass
from config.inter_broker import inter_broker_protocol
from controller.machine.model import Broker
from controller.store.state_store import (
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Stat,
    StateStore,
    parent_path,
)
from controller.tree import paths
from protocol.ids import id_text, random_id

NO_JMX_PORT = -1


class IdentityError(Exception):
    """This broker must not start: its broker id or cluster id differs from that of its data."""


class AlreadyRegisteredError(IdentityError):
    """The broker id belongs to a session of another process, which may have been killed."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(
            f"a broker with id {broker_id} is already registered: stop it, or set another broker.id; if it was "
            "killed, its session runs out after its zookeeper.session.timeout.ms"
        )


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The data of a broker's registration. `broker.epoch` is ignored."""

    broker: Broker
    timestamp_ms: int
    jmx_port: int = NO_JMX_PORT
    version: int = inter_broker_protocol().registration


async def ensure_paths(store: StateStore, wanted: Iterable[str] = paths.PERSISTENT_PATHS) -> None:
    """Create the nodes of `wanted` that are missing; parents come first in `wanted`."""
    every = list(wanted)
    nodes = await store.get_many(every)
    missing = [path for path, node in zip(every, nodes, strict=True) if node is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except NodeExists:
        # Another broker is starting at the same time.
        for path in missing:
            with suppress(NodeExists):
                await store.create(path)


async def ensure_cluster_id(store: StateStore, random: Random, *, stored: str | None = None) -> str:
    """Return the cluster id; the first broker generates it. Also create the roots of the tree.

    `stored` is the cluster id in the broker's log directories (meta.properties).

    Raises:
        IdentityError: `stored` is set and the store holds no cluster id. A new cluster would not know the data.
    """
    await ensure_paths(store)
    try:
        return paths.decode_cluster_id((await store.get(paths.CLUSTER_ID)).data)
    except NoNode:
        if stored is not None:
            raise IdentityError(
                f"the log directories belong to cluster {stored} (meta.properties), but the metadata store holds no "
                "metadata: copy that of the cluster into it (metadata-copy), or use empty log directories"
            ) from None
        await ensure_paths(store, [parent_path(paths.CLUSTER_ID)])
        with suppress(NodeExists):
            await store.create(paths.CLUSTER_ID, paths.encode_cluster_id(id_text(random_id(random.getrandbits))))
        return paths.decode_cluster_id((await store.get(paths.CLUSTER_ID)).data)


async def set_cluster_id(store: StateStore, cluster_id: str) -> None:
    """Give a new cluster the id that was chosen for it.

    Raises:
        IdentityError: the store is that of another cluster.
    """
    await ensure_paths(store)
    await ensure_paths(store, [parent_path(paths.CLUSTER_ID)])
    with suppress(NodeExists):
        await store.create(paths.CLUSTER_ID, paths.encode_cluster_id(cluster_id))
    found = paths.decode_cluster_id((await store.get(paths.CLUSTER_ID)).data)
    if found != cluster_id:
        raise IdentityError(f"the metadata store is that of cluster {found}, expected {cluster_id}")


async def choose_broker_id(
    store: StateStore, *, configured: int, stored: int | None, generation_enabled: bool, reserved_id_max: int
) -> int:
    """Return the broker id to register: the configured one, else the stored one, else a new one.

    `configured` is -1 if unset; `stored` is the id in the log directories (meta.properties).

    Raises:
        IdentityError: the two differ, no id is configured or may be generated, or the configured one is reserved.
    """
    if configured >= 0 and stored is not None and configured != stored:
        raise IdentityError(
            f"broker.id is {configured}, but the log directories belong to broker {stored} (meta.properties): "
            f"set broker.id={stored}, or use empty directories for a new broker"
        )
    if generation_enabled and configured > reserved_id_max:
        raise IdentityError(
            f"broker.id is {configured}, expected 0 to {reserved_id_max} (reserved.broker.max.id) "
            "while broker.id.generation.enable is true"
        )
    if configured >= 0:
        return configured
    if stored is not None:
        return stored
    if not generation_enabled:
        raise IdentityError("broker.id is not set and broker.id.generation.enable is false: expected broker.id >= 0")
    return reserved_id_max + (await store.set(paths.BROKER_SEQUENCE_ID, b"")).version


def check_cluster_id(*, stored: str | None, cluster_id: str) -> None:
    """Compare the cluster ids of the log directories and of the store.

    Raises:
        IdentityError: the log directories belong to another cluster.
    """
    if stored is not None and stored != cluster_id:
        raise IdentityError(
            f"the log directories belong to cluster {stored} (meta.properties), but the metadata store is that of "
            f"cluster {cluster_id}: check log.dirs and zookeeper.connect"
        )


async def register_broker(
    store: StateStore, registration: BrokerRegistration, *, previous_session_id: int | None = None
) -> int:
    """Register the broker for the duration of the session; return the broker epoch.

    A registration of this broker's `previous_session_id` is replaced.

    Raises:
        AlreadyRegisteredError: another broker is registered under the id.
    """
    broker_id = registration.broker.broker_id
    path, data = paths.broker_path(broker_id), _encoded(registration)
    # In two steps, as Kafka's brokers do: the node has version 1 once it has data.
    operations: list[Operation] = [Create(path, ephemeral=True), SetData(path, data, 0)]
    try:
        _, stat = await store.multi(operations)
    except NodeExists:
        found = await store.exists(path)
        if found is not None and found.ephemeral_owner == store.session_id:
            return found.czxid
        if found is None:
            _, stat = await store.multi(operations)
        elif found.ephemeral_owner == previous_session_id:
            _, _, stat = await store.multi([Delete(path, found.version), *operations])
        else:
            raise AlreadyRegisteredError(broker_id) from None
    assert isinstance(stat, Stat)
    return stat.czxid


async def update_registration(store: StateStore, registration: BrokerRegistration) -> None:
    """Replace the data of this session's registration; the controller sends the new endpoints to all brokers."""
    await store.set(paths.broker_path(registration.broker.broker_id), _encoded(registration))


def _encoded(registration: BrokerRegistration) -> bytes:
    return paths.encode_broker(
        registration.broker,
        jmx_port=registration.jmx_port,
        timestamp_ms=registration.timestamp_ms,
        version=registration.version,
    )


async def announce_lost_log_dir(store: StateStore, broker_id: int) -> None:
    """Notify the controller that a log directory is offline; it then asks this broker for the replicas concerned.

    Raises:
        StoreError, StoreUnavailable: the notification could not be written.
    """
    await store.create(paths.LOG_DIR_EVENT_PREFIX, paths.encode_log_dir_event(broker_id), sequential=True)
