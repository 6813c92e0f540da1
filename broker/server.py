"""The composition root: builds one broker from its configuration, runs it until it is told to stop, and takes it apart.

Owns: the order of start and stop. Must not know: how any part works.

Start: listening sockets (an address in use stops the start before any file is touched), log directories, metadata
store, identity, partition logs, registration, controller; only then are connections accepted, so that the first
answer is a good one. Stop: no new connections, controller and groups resign, logs are flushed and marked clean, the
store closes.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import uvloop

from broker.client_quotas import ClientQuotas
from broker.clock import Clock, SystemClock
from broker.cluster_link import LocalChannels
from broker.config_changes import ConfigChanges
from broker.dispatch import RequestDispatcher
from broker.groups.coordinator import GroupCoordinator
from broker.groups.settings import CoordinatorSettings
from broker.housekeeping import Housekeeping, Job
from broker.legacy_offsets import StoredLegacyOffsets
from broker.log_cleaner import LogCleaner, WorkerProcesses
from broker.loop_timer import LoopTimer
from broker.metadata_cache import MetadataCache
from broker.network.listener import Listener, ListenError, ListenerSettings
from broker.offsets_log import PartitionOffsetsLog
from broker.producer_ids import ProducerIds
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.manager import ReplicaManager
from broker.routes import TABLE
from broker.scram_credentials import ScramCredentials
from broker.services import Services
from broker.topic_configs import TopicConfigs
from broker.topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicAdministration
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.links import LocalCoordinator
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import Marker, MarkerSender
from broker.transactions.settings import TransactionSettings
from broker.transactions.verification import Guards, TransactionVerifier
from config import broker_properties as properties
from config.broker import BrokerConfig
from config.listeners import SecurityProtocol
from config.topic_properties import UNCLEAN_LEADER_ELECTION_ENABLE
from controller import paths
from controller.controller import Controller
from controller.entity_configs import ConfigChangeListener, topic_overrides
from controller.model import Broker, Endpoint
from controller.registration import (
    BrokerRegistration,
    IdentityError,
    check_cluster_id,
    choose_broker_id,
    ensure_cluster_id,
    register_broker,
)
from controller.settings import ControllerSettings
from controller.sqlite_store import SqliteStore
from protocol.api import APIS
from storage.files import OsFiles
from storage.log_cleaning import CleanerSettings, LogCleaning
from storage.log_manager import (
    DirectoryLockedError,
    DuplicateLogError,
    ForeignDirectoryError,
    LoadStatus,
    LogManager,
    LogManagerSettings,
    NoUsableDirectoryError,
    WrongDirectoryError,
)
from storage.meta_properties import MetaProperties

logger = logging.getLogger("kafka.server.KafkaServer")

T = TypeVar("T")

METADATA_FILE = "metadata.sqlite"
BLOCKING_THREADS = 8
RETENTION_INITIAL_DELAY_MS = 30_000
WRITEBACK_INTERVAL_MS = 200
REMOVAL_INTERVAL_MS = 1_000
IDLE_RELEASE_INTERVAL_MS = 30_000
PRODUCER_EXPIRATION_CHECK_INTERVAL_MS = 600_000
FLUSH_CHECK_INTERVAL_MS_MAX = 1_000
# The oldest generation of what start-up built never dies; scanning it again would stall the loop for nothing.
GC_THRESHOLDS = (50_000, 20, 50)

STARTUP_ERRORS = (
    DirectoryLockedError,
    DuplicateLogError,
    ForeignDirectoryError,
    IdentityError,
    ListenError,
    NoUsableDirectoryError,
    WrongDirectoryError,
)


class StartupError(Exception):
    """The broker cannot start; the text says which key or path is wrong and what was expected."""


def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM or SIGINT; the exit status. Raises StartupError."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config))


async def _serve(config: BrokerConfig) -> int:
    server = Server(config, SystemClock())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start(on_fatal=stop.set)
        await stop.wait()
    finally:
        await server.stop()
    return 1 if server.has_failed else 0


class Server:
    """One broker. Several may live in one process; they share nothing."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._undo = AsyncExitStack()
        self._random = random.Random()
        self._loop: asyncio.AbstractEventLoop
        self._log_manager: LogManager
        self._on_fatal: Callable[[], None] = lambda: None
        self._cleaner: LogCleaner | None = None
        self.dispatcher: RequestDispatcher
        self.has_failed = False
        """The broker stopped because it could not go on."""

    async def start(self, on_fatal: Callable[[], None] = lambda: None) -> None:
        """Return when clients are served. Raises StartupError; what was begun is undone by `stop`.

        `on_fatal` is called when the broker cannot go on, for example because its last log directory failed.
        """
        self._on_fatal = on_fatal
        try:
            await self._start()
        except STARTUP_ERRORS as error:
            raise StartupError(str(error)) from error

    async def stop(self) -> None:
        """Undo the start, last thing first. Harmless when nothing was started, or twice."""
        await self._undo.aclose()

    async def _start(self) -> None:
        config, clock = self._config, self._clock
        self._loop = loop = asyncio.get_running_loop()
        _refuse_what_is_not_served(config)
        blocking = ThreadPoolExecutor(BLOCKING_THREADS, "blocking")
        self._undo.callback(blocking.shutdown)

        listeners = self._bind()
        log_manager = LogManager(
            config.log_dirs,
            LogManagerSettings.of(config),
            OsFiles(),
            random=self._random,
            on_directory_failed=self._directory_failed,
        )
        self._log_manager = log_manager
        meta = await _in_thread(blocking, log_manager.open)
        self._undo.callback(log_manager.unlock)

        # Always the first directory, also when it is the one that failed: another one would begin a new cluster.
        store = SqliteStore(Path(config.log_dirs[0]) / METADATA_FILE, clock)
        await store.open()
        self._undo.push_async_callback(store.close)
        cluster_id = await ensure_cluster_id(store)
        check_cluster_id(stored=None if meta is None else meta.cluster_id, cluster_id=cluster_id)
        broker_id = await choose_broker_id(
            store,
            configured=config[properties.BROKER_ID],
            stored=None if meta is None else meta.broker_id,
            generation_enabled=config[properties.BROKER_ID_GENERATION_ENABLE],
            reserved_id_max=config[properties.RESERVED_BROKER_MAX_ID],
        )
        log_manager.claim(MetaProperties(broker_id, cluster_id))

        topic_configs = TopicConfigs(config, lambda topic: topic_overrides(store, topic))
        metadata = MetadataCache(cluster_id)
        config_changes = ConfigChanges(
            broker_id,
            store,
            config,
            topic_configs,
            metadata,
            on_topic_changed=lambda topic: _topic_reconfigured(topic, services, controller),
            on_broker_changed=lambda: self._broker_reconfigured(services, controller, listeners),
        )
        await config_changes.load_dynamic_layers()
        log_manager.settings = LogManagerSettings.of(config)
        for listener in listeners:
            listener.reconfigure(_listener_settings(config))
        await topic_configs.load_all(await store.children(paths.TOPICS))
        await _in_thread(
            blocking,
            lambda: log_manager.load(topic_configs.effective, now_ms=clock.now_ms(), on_progress=_log_progress),
        )
        self._undo.push_async_callback(self._close_logs, blocking)

        broker_epoch = await register_broker(store, self._registration(broker_id, listeners))
        loop_timer = LoopTimer(loop, clock)
        self._undo.callback(loop_timer.close)
        replica_manager = ReplicaManager(
            broker_id,
            log_manager,
            loop_timer.timer,
            topic_config=topic_configs.effective,
            produce_purge_interval=config[properties.PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS],
            fetch_purge_interval=config[properties.FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS],
            delete_records_purge_interval=config[properties.DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS],
        )

        channels = LocalChannels(clock, metadata, replica_manager, topic_configs)
        controller = Controller(broker_id, store, channels, _controller_settings(config), clock, self._random)
        administration = TopicAdministration(controller, metadata, config, loop_timer.timer, clock)
        groups = GroupCoordinator(
            CoordinatorSettings.from_config(config),
            PartitionOffsetsLog(
                GROUP_METADATA_TOPIC, replica_manager, metadata, clock, lambda work: _in_thread(blocking, work)
            ),
            loop_timer.timer,
            clock,
            administration.ensure_internal,
            StoredLegacyOffsets(store),
        )

        def metadata_changed(topics: set[str]) -> None:
            groups.topics_deleted(topics - metadata.topics.keys())
            administration.metadata_changed(topics)

        channels.on_metadata = metadata_changed
        replica_manager.on_leadership(
            GROUP_METADATA_TOPIC,
            gained=lambda partition: groups.become_leader(partition.partition, partition.leader_epoch),
            lost=lambda partition: groups.resign(partition.partition),
        )
        producer_ids = ProducerIds(lambda: controller.allocate_producer_ids(broker_id, broker_epoch))
        guards = Guards(lambda: config[properties.PRODUCER_ID_EXPIRATION_MS])
        marker_writer = MarkerWriter(
            replica_manager,
            guards,
            clock,
            config[properties.REQUEST_TIMEOUT_MS],
            lambda topic, partition, marker: _end_offsets(groups, topic, partition, marker),
        )
        transactions = TransactionCoordinator(
            TransactionSettings.from_config(config),
            PartitionOffsetsLog(
                TRANSACTION_STATE_TOPIC, replica_manager, metadata, clock, lambda work: _in_thread(blocking, work)
            ),
            MarkerSender(TRANSACTION_STATE_TOPIC, metadata, {broker_id: marker_writer}, loop_timer.timer, clock),
            loop_timer.timer,
            clock,
            next_producer_id=producer_ids.next_id,
            ensure_internal_topic=administration.ensure_internal,
        )
        replica_manager.on_leadership(
            TRANSACTION_STATE_TOPIC,
            gained=lambda partition: transactions.become_leader(partition.partition, partition.leader_epoch),
            lost=lambda partition: transactions.resign(partition.partition),
        )
        services = Services(
            broker_id=broker_id,
            config=config,
            clock=clock,
            metadata_cache=metadata,
            controller=controller,
            log_manager=log_manager,
            replica_manager=replica_manager,
            fetch_sessions=FetchSessionCache(
                config[properties.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS],
                lambda: self._random.randrange(1, 2**31),
            ),
            topics=administration,
            topic_configs=topic_configs,
            config_changes=config_changes,
            client_quotas=ClientQuotas(store),
            scram_credentials=ScramCredentials(store),
            producer_ids=producer_ids,
            groups=groups,
            transactions=transactions,
            verifier=TransactionVerifier(
                LocalCoordinator(transactions),
                guards,
                lambda: config[properties.TRANSACTION_PARTITION_VERIFICATION_ENABLE],
                clock,
            ),
            marker_writer=marker_writer,
            blocking=blocking,
            served_apis=[APIS[key] for key in sorted(TABLE)],
        )
        change_listener = ConfigChangeListener(store, clock, config_changes.apply)
        await change_listener.start()
        self._undo.callback(change_listener.stop)
        await controller.start()
        self._undo.push_async_callback(controller.stop)
        groups.start()
        self._undo.push_async_callback(groups.stop)
        transactions.start()
        self._undo.push_async_callback(transactions.stop)
        await self._start_cleaning(log_manager, blocking)
        housekeeping = Housekeeping(_jobs(config, clock, log_manager, blocking))
        housekeeping.start()
        self._undo.push_async_callback(housekeeping.stop)

        self.dispatcher = RequestDispatcher(services)
        self.dispatcher.warm_up()
        for listener in listeners:
            await listener.start(self.dispatcher)
            self._undo.callback(listener.close_connections)
            self._undo.callback(listener.stop_accepting)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        logger.info("[KafkaServer id=%d] started", broker_id)

    async def _start_cleaning(self, log_manager: LogManager, blocking: ThreadPoolExecutor) -> None:
        """Begin to compact, unless `log.cleaner.enable` says otherwise."""
        config = self._config
        if not config[properties.LOG_CLEANER_ENABLE]:
            return
        cleaning = LogCleaning(log_manager, OsFiles(), CleanerSettings.of(config))
        await _in_thread(blocking, cleaning.load)
        count = config[properties.LOG_CLEANER_THREADS]
        cleaner = self._cleaner = LogCleaner(
            cleaning,
            WorkerProcesses(count),
            blocking,
            self._clock,
            count=count,
            backoff_ms=config[properties.LOG_CLEANER_BACKOFF_MS],
        )
        cleaner.start()
        self._undo.push_async_callback(cleaner.stop)

    def _bind(self) -> dict[Listener, int]:
        """Take every listener's address; the real ports. Raises ListenError."""
        settings = _listener_settings(self._config)
        bound = {}
        for configured in self._config.listeners:
            listener = Listener(configured.name, settings)
            bound[listener] = listener.bind(configured.host, configured.port)
            self._undo.callback(listener.stop_accepting)
        return bound

    def _registration(self, broker_id: int, listeners: dict[Listener, int]) -> BrokerRegistration:
        """What this broker tells the cluster about itself: its advertised addresses, with the real ports."""
        ports = {listener.name: port for listener, port in listeners.items()}
        endpoints = tuple(
            Endpoint(one.name, one.host or socket.getfqdn(), one.port or ports[one.name], one.security_protocol.name)
            for one in self._config.advertised_listeners
        )
        broker = Broker(broker_id, endpoints, rack=self._config[properties.BROKER_RACK])
        return BrokerRegistration(broker, self._clock.now_ms())

    def _directory_failed(self, path: str, error: Exception) -> None:
        """Called from any thread."""
        if self._log_manager.live_directories:
            return
        logger.critical("stopping: all log directories have failed, the last one was %s: %s", path, error)
        self.has_failed = True
        self._loop.call_soon_threadsafe(self._on_fatal)

    def _broker_reconfigured(self, services: Services, controller: Controller, listeners: Iterable[Listener]) -> None:
        """The dynamic layers of the configuration changed: bring what runs with them up to date."""
        config = self._config
        services.topic_configs.defaults_changed()
        for topic in {partition.topic for partition in services.replica_manager.hosted()}:
            services.replica_manager.reconfigure(topic)
        self._log_manager.settings = LogManagerSettings.of(config)
        for listener in listeners:
            listener.reconfigure(_listener_settings(config))
        if self._cleaner is not None:
            self._cleaner.reconfigure(CleanerSettings.of(config), backoff_ms=config[properties.LOG_CLEANER_BACKOFF_MS])
        controller.reconfigure(_controller_settings(config))
        if config[properties.UNCLEAN_LEADER_ELECTION_ENABLE]:
            controller.enable_unclean_election(None)

    async def _close_logs(self, blocking: ThreadPoolExecutor) -> None:
        await _in_thread(blocking, lambda: self._log_manager.close(self._clock.now_ms()))


def _in_thread(blocking: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(blocking, work)


def _refuse_what_is_not_served(config: BrokerConfig) -> None:
    """Better no start than a listener without the protection that was asked for. Raises StartupError."""
    for listener in config.listeners:
        if listener.security_protocol is not SecurityProtocol.PLAINTEXT:
            raise StartupError(
                f"Invalid value {listener} for configuration listeners: "
                f"security protocol {listener.security_protocol.name} is not served yet, expected PLAINTEXT"
            )
    if config[properties.ZOOKEEPER_CONNECT]:
        raise StartupError(
            f"Invalid value {config[properties.ZOOKEEPER_CONNECT]} for configuration zookeeper.connect: "
            "clusters are not served yet, expected none (metadata is kept in the first of log.dirs)"
        )


def _end_offsets(groups: GroupCoordinator, topic: str, partition: int, marker: Marker) -> None:
    """A marker is replicated: in the groups' own topic it decides about pending offsets."""
    if topic == GROUP_METADATA_TOPIC:
        groups.end_transaction(partition, marker.producer_id, is_committed=marker.is_committed)


def _topic_reconfigured(topic: str, services: Services, controller: Controller) -> None:
    """The overrides of `topic` were read again: bring what runs with them up to date."""
    services.replica_manager.reconfigure(topic)
    overrides = services.topic_configs.overrides(topic)
    effective = services.topic_configs.effective(topic)
    if UNCLEAN_LEADER_ELECTION_ENABLE.name in overrides and effective.unclean_leader_election_enable:
        controller.enable_unclean_election(topic)


def _log_progress(status: LoadStatus) -> None:
    if status.bytes_total and status.logs_done < status.logs_total:
        logger.info(
            "recovering logs: %d of %d partitions, %d of %d MB",
            status.logs_done,
            status.logs_total,
            status.bytes_done >> 20,
            status.bytes_total >> 20,
        )


def _listener_settings(config: BrokerConfig) -> ListenerSettings:
    return ListenerSettings(
        request_size_max=config[properties.SOCKET_REQUEST_MAX_BYTES],
        backlog_size=config[properties.SOCKET_LISTEN_BACKLOG_SIZE],
        send_buffer_bytes=config[properties.SOCKET_SEND_BUFFER_BYTES],
        receive_buffer_bytes=config[properties.SOCKET_RECEIVE_BUFFER_BYTES],
        connections_max=config[properties.MAX_CONNECTIONS],
        connections_per_ip_max=config[properties.MAX_CONNECTIONS_PER_IP],
        connections_per_ip_overrides=_connection_overrides(config[properties.MAX_CONNECTIONS_PER_IP_OVERRIDES]),
        connection_idle_ms_max=config[properties.CONNECTIONS_MAX_IDLE_MS],
    )


def _connection_overrides(text: str) -> dict[str, int]:
    """`host:n,host:n`, by numeric address."""
    pairs = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {
        str(sockaddr[0]): int(limit)
        for host, _, limit in pairs
        for *_, sockaddr in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    }


def _controller_settings(config: BrokerConfig) -> ControllerSettings:
    return ControllerSettings(
        num_partitions=config[properties.NUM_PARTITIONS],
        default_replication_factor=config[properties.DEFAULT_REPLICATION_FACTOR],
        delete_topic_enable=config[properties.DELETE_TOPIC_ENABLE],
        unclean_leader_election_enable=config[properties.UNCLEAN_LEADER_ELECTION_ENABLE],
        auto_leader_rebalance_enable=config[properties.AUTO_LEADER_REBALANCE_ENABLE],
        leader_imbalance_check_interval_seconds=config[properties.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS],
        leader_imbalance_per_broker_percentage=config[properties.LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
        inter_broker_listener_name=config.inter_broker_listener.name,
    )


def _jobs(config: BrokerConfig, clock: Clock, logs: LogManager, blocking: ThreadPoolExecutor) -> list[Job]:
    """What is done again and again, and how often."""

    async def on_loop(work: Callable[[], object]) -> None:
        work()

    async def off_loop(work: Callable[[], object]) -> None:
        await _in_thread(blocking, work)

    return [
        Job(
            "retention",
            config[properties.LOG_RETENTION_CHECK_INTERVAL_MS],
            lambda: on_loop(lambda: logs.run_retention(clock.now_ms())),
            initial_delay_ms=RETENTION_INITIAL_DELAY_MS,
        ),
        Job("removal", REMOVAL_INTERVAL_MS, lambda: off_loop(lambda: logs.remove_deleted(clock.now_ms()))),
        Job(
            "flush",
            min(config[properties.LOG_FLUSH_SCHEDULER_INTERVAL_MS], FLUSH_CHECK_INTERVAL_MS_MAX),
            lambda: off_loop(lambda: logs.flush_due(clock.now_ms())),
        ),
        Job("writeback", WRITEBACK_INTERVAL_MS, lambda: off_loop(logs.start_writeback)),
        Job(
            "high watermark checkpoint",
            config[properties.REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
            lambda: off_loop(logs.checkpoint_high_watermarks),
        ),
        Job(
            "recovery point checkpoint",
            config[properties.LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
            lambda: off_loop(logs.checkpoint_recovery_points),
        ),
        Job(
            "log start checkpoint",
            config[properties.LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS],
            lambda: off_loop(logs.checkpoint_log_starts),
        ),
        Job(
            "producer expiration",
            PRODUCER_EXPIRATION_CHECK_INTERVAL_MS,
            lambda: on_loop(lambda: logs.expire_producers(clock.now_ms())),
        ),
        Job("release of idle files", IDLE_RELEASE_INTERVAL_MS, lambda: on_loop(logs.release_idle)),
    ]
