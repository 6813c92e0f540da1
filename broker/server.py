"""The composition root: builds one broker from its configuration, runs it until SIGTERM or SIGINT, and shuts it down.

Owns: the order of start and stop. Must not know: how any part works.

Start: listening sockets (an address in use fails the start before any file is touched), log directories, metadata
store, identity, partition logs, registration, controller. Only then clients are served, so that the first response is
correct; in a cluster the controller's requests are served from the registration on. Stop: in a cluster the leadership
moves to other brokers while everything is served; then no new connections, controller and groups resign, logs are
flushed and marked clean, the store closes.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import uvloop

from broker.assembly import Foundation, Reconfiguration, assemble
from broker.cluster.broker_state import BrokerState
from broker.cluster.control_requests import ControlDoor
from broker.cluster.controlled_shutdown import move_leadership
from broker.cluster.metadata_store import (
    FILES_BESIDE_LOGS,
    NoMetadataError,
    open_store,
    record_directories,
    retire_copies,
)
from broker.console.load_display import load_display
from broker.environment import Environment, environment_of_this_machine
from broker.jobs import (
    key_set_jobs,
    quota_jobs,
    replication_jobs,
    security_jobs,
    storage_jobs,
    token_jobs,
    transaction_jobs,
)
from broker.loop.clock import Clock
from broker.loop.cpu_pool import CpuPool
from broker.loop.loop_timer import LoopTimer
from broker.loop.periodic_jobs import Job, PeriodicJobs
from broker.loop.slices import Slices
from broker.loop.thread_pool import ThreadPool
from broker.network.descriptors import DescriptorBudget, raise_limit
from broker.network.network import ListenError
from broker.network.outgoing import LinkSecurity
from broker.network.sasl.scram import Digest, ScramCredential, ScramUser
from broker.network.socket_server import SocketServer
from broker.replica.directory_writers import DirectoryWriters
from broker.replica.log_cleaner import LogCleaner
from broker.requests.admission import Admission
from broker.requests.dispatch import RequestDispatcher
from broker.requests.release_gate import ReleaseGate
from broker.requests.services import Services
from broker.security.acl_session import AclSession
from broker.settings.component_settings import (
    UnknownHostError,
    connection_limits,
    controller_settings,
    listener_settings,
    registration_wait_ms,
)
from broker.settings.listener_security import HTTP_LISTENER, encrypted_listeners, open_listeners, sasl_listeners
from broker.settings.plug_ins import InvalidPlugInError, plug_in_problems
from broker.settings.principal_builder import principal_builder
from broker.settings.reporters import new_reporters, reporter_names
from broker.settings.security_sources import TLS_PROTOCOLS, InvalidSecurityError, Sources
from broker.settings.unmet_settings import unmet_by_one_broker
from config import broker_properties as properties
from config.addresses import HostAndPort
from config.broker import BrokerConfig
from config.definition import ConfigError
from config.http_users import parse_http_users
from config.listeners import Listener
from config.topic_properties import UNCLEAN_LEADER_ELECTION_ENABLE
from controller import paths
from controller.entity_configs import ConfigChangeListener
from controller.membership import Membership
from controller.model import Broker, Endpoint
from controller.paths import ConfigEntity, Undecodable
from controller.registration import (
    NO_JMX_PORT,
    BrokerRegistration,
    IdentityError,
    announce_lost_log_dir,
    check_cluster_id,
    choose_broker_id,
    ensure_cluster_id,
)
from controller.sqlite_store import METADATA_FILE, SqliteStore
from controller.state_store import StateStore, StoreError, StoreUnavailable
from controller.zookeeper.session_events import CLOSED, SessionEvents
from protocol.errors import ErrorCode, KafkaError
from protocol.frame import MAPPED_FROM_SIZE
from protocol.releases import RELEASES, release_named
from storage.cleaning.log_cleaning import CleanerSettings, LogCleaning
from storage.directories.log_directory import DirectoryLockedError, ForeignDirectoryError, LogDirectory
from storage.disk.meta_properties import MetaProperties, WrongDirectoryError
from storage.log.log import Log
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import DuplicateLogError, LoadError, LogManagerSettings, NoUsableDirectoryError

if TYPE_CHECKING:
    from broker.metrics.catalog import Measured
    from broker.metrics.endpoint import MetricsEndpoint
    from broker.metrics.loop_lag import Turns
    from broker.metrics.registry import Registry
    from broker.network.sasl.broker_login import Run
    from broker.settings.client_login import Surroundings
    from broker.settings.listener_tls import ListenerTls
    from controller.zookeeper.settings import ZooKeeperSettings

logger = logging.getLogger("kafka.server.KafkaServer")

T = TypeVar("T")

GROUP_PROTOCOLS = {"classic"}
# Objects built at start-up are never freed. Scanning them repeatedly would take a fifth of a start with thousands of
# partitions, and would block the event loop afterwards. A garbage collection stops all threads for some 100 ns per
# scanned object. The first two thresholds limit a scan of the objects of large requests to 110,000; a request of 64,000
# elements may have half a million. All objects since the start are scanned after 50 million new ones.
GC_THRESHOLDS = (10_000, 10, 500)
# The longest time that the event loop waits for a computing thread. Python's default of 5 ms would add latency.
SWITCH_INTERVAL_S = 0.001
# glibc keeps freed memory up to this size at the end of its heap. From MAPPED_FROM_SIZE on requests have own mappings.
FREED_SIZE_MAX = 8 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
REOPEN_DELAY_S = 1.0
REMOTE_KEYS_WAIT_S = 10.0
UNNAMED = "(without cluster.id)"
"""How long a start waits for the keys of identity providers. Those that come later are used when they come."""

STARTUP_ERRORS = (
    DirectoryLockedError,
    DuplicateLogError,
    ForeignDirectoryError,
    IdentityError,
    InvalidPlugInError,
    InvalidSecurityError,
    ListenError,
    LoadError,
    NoMetadataError,
    NoUsableDirectoryError,
    StoreError,
    StoreUnavailable,
    Undecodable,
    UnknownHostError,
    WrongDirectoryError,
)


class StartupError(Exception):
    """The broker cannot start; the message names the wrong key or path and what was expected."""


def run(config: BrokerConfig, when_started: Callable[[Server], Awaitable[None]]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status. Calls `when_started` once. Raises StartupError."""
    return run_in_loop(_serve(config, when_started))


def run_in_loop(main: Coroutine[None, None, int]) -> int:
    """Run a coroutine that hosts brokers, in a process and an event loop set up for them; return its result."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()  # modules and classes live as long as the process
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    raise_limit()
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next large requests, instead of giving it back to the kernel.

    By its defaults it returns each block of 128 KiB or more. The kernel then clears the pages again, and a page fault
    precedes each: a third of the CPU time of a broker that receives batches of a megabyte.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have none
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_SIZE)
        mallopt(_M_TRIM_THRESHOLD, FREED_SIZE_MAX)


async def _serve(config: BrokerConfig, when_started: Callable[[Server], Awaitable[None]]) -> int:
    server = Server(config, environment_of_this_machine())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start(on_fatal=stop.set, is_stopped=stop.is_set)
        gc.collect()
        gc.freeze()
        await when_started(server)
        await stop.wait()
    finally:
        await server.stop()
    return 1 if server.has_failed else 0


class Server:
    """One broker. Several may run in one process; they share no state."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self._undo = AsyncExitStack()
        self._sockets: SocketServer
        self._membership: Membership
        self._loop: asyncio.AbstractEventLoop
        self._blocking: ThreadPool
        self._background: ThreadPool
        self._cpu_pool: CpuPool
        self._log_manager: LogManager
        self._embedded_store: SqliteStore | None = None
        self._store_sessions = SessionEvents()
        self._services: Services
        self._on_fatal: Callable[[], None] = lambda: None
        self._is_stopped: Callable[[], bool] = lambda: False
        self._on_directory_lost: Callable[[], None] = lambda: None
        self._reopening: asyncio.TimerHandle | None = None
        self._notices: set[asyncio.Task[None]] = set()
        self._cleaner: LogCleaner | None = None
        self._metrics_endpoint: MetricsEndpoint | None = None
        self._tls: ListenerTls | None = None
        self._sources: Sources
        self._state = BrokerState.NOT_RUNNING
        self.dispatcher: RequestDispatcher
        self.has_failed = False
        """Whether the broker stopped because of a fatal error."""

    @property
    def _is_clustered(self) -> bool:
        """Whether the metadata is that of a cluster, in ZooKeeper, and not in this broker's own store."""
        return self._embedded_store is None

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics endpoint; None without `metrics.http.listener` or before the start."""
        return None if self._metrics_endpoint is None else self._metrics_endpoint.port

    @property
    def clock(self) -> Clock:
        """The clock of the broker."""
        return self._clock

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of each listener, by its name; after the addresses are bound."""
        return self._sockets.ports

    async def start(
        self, on_fatal: Callable[[], None] = lambda: None, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Start the broker; return when clients are served.

        `on_fatal` is called at a fatal error, for example when the last log directory has failed. `is_stopped()`
        returns whether a stop is requested, which ends the wait for an earlier session of this broker.

        Raises:
            StartupError: The broker cannot start. `stop` undoes the steps that were done.
        """
        self._on_fatal = on_fatal
        self._is_stopped = is_stopped
        try:
            await self._start()
        except STARTUP_ERRORS as error:
            raise StartupError(str(error)) from error

    async def stop(self) -> None:
        """Undo the start in reverse order. Has no effect before the start, or when called twice."""
        was_running = self._state is BrokerState.RUNNING
        since_s = self._clock.monotonic_s()
        if was_running:
            logger.info("[KafkaServer id=%d] shutting down", self._services.broker_id)
            self._state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._move_leadership()
        self._state = BrokerState.SHUTTING_DOWN
        if self._reopening is not None:
            self._reopening.cancel()
        await self._undo.aclose()
        self._state = BrokerState.NOT_RUNNING
        if was_running:
            logger.info("closed cleanly in %.1f s", self._clock.monotonic_s() - since_s)
            logger.info("[KafkaServer id=%d] shut down completed", self._services.broker_id)

    async def _start(self) -> None:
        self._state = BrokerState.STARTING
        if problems := list(unsupported_settings(self._config)):
            raise StartupError("\n".join(map(str, problems)))
        self._reject_missing_cluster_store()
        self._loop = asyncio.get_running_loop()
        new_threads = self._environment.new_threads
        self._blocking = ThreadPool(self._config[properties.NUM_IO_THREADS], "blocking", new_threads)
        self._undo.callback(self._blocking.shutdown)
        self._background = ThreadPool(self._config[properties.BACKGROUND_THREADS], "background", new_threads)
        self._undo.callback(self._background.shutdown)
        self._cpu_pool = CpuPool(self._config[properties.QUEUED_MAX_REQUESTS], new_threads)
        self._undo.callback(self._cpu_pool.stop)
        self._bind()
        foundation = await self._build_foundation()
        services = self._services = assemble(
            foundation,
            Reconfiguration(self._topic_reconfigured, self._broker_reconfigured, self._check_reconfiguration),
            lambda: self._membership.broker_epoch,
        )
        self._undo.callback(services.peers.close)
        self._undo.callback(services.policies.close)
        self.dispatcher = RequestDispatcher(services)
        await services.config_changes.encode_again()
        await services.config_changes.load_dynamic_layers()
        self._apply_settings()
        self._apply_stored_listeners()
        await self._start_metrics(services)
        self._state = BrokerState.RECOVERY
        await self._load_logs(foundation)
        self._connect_parts(foundation, services)
        await self._read_remote_keys()
        read_security_again = await self._start_security(foundation, services)
        await self._membership.register(
            lambda: self._registration(foundation.broker_id),
            wait_ms=registration_wait_ms(self._config),
            is_stopped=self._is_stopped,
        )
        admission = Admission(self.dispatcher)
        metadata_received = _received(services.control_door)
        if self._is_clustered:
            self._sockets.start(admission)
        await self._start_background_work(foundation, services, read_security_again)
        await self._lose_directory(foundation, services)  # a directory that failed during the start
        if not self._is_clustered:
            self._warn_unmet_settings(services)
        if self._is_clustered:
            await self._wait_for(metadata_received)
        services.replica_manager.report_unclaimed_logs(partial(services.metadata_cache.is_assigned, services.broker_id))
        admission.admit_clients()
        if not self._is_clustered:
            gated = self._config[properties.ADVERTISED_KAFKA_VERSION] is not None
            self._sockets.start(ReleaseGate(self.dispatcher, services.served_apis) if gated else self.dispatcher)
        self._undo.callback(self._close_doors)
        self._undo.push_async_callback(services.fetchers.stop)  # before listeners close: leaders count it in sync
        self._state = BrokerState.RUNNING
        for line in open_listeners(self._config):
            logger.info("%s", line)
        self._log_what_matters(foundation)
        logger.info("[KafkaServer id=%d] started", foundation.broker_id)

    def _log_what_matters(self, foundation: Foundation) -> None:
        """Log where clients find the broker, and where its data is."""
        advertised = self._registration(foundation.broker_id).broker
        for listener in self._sockets.addresses.values():
            bound = f"{listener.name}://{listener.host or '0.0.0.0'}:{self._sockets.ports[listener.name]}"
            endpoint = advertised.endpoint(listener.name)
            clients_use = f", clients connect to {endpoint.host}:{endpoint.port}" if endpoint is not None else ""
            logger.info("listening on %s%s", bound, clients_use)
        logger.info("data in %s, cluster id %s", ", ".join(self._config.log_dirs), foundation.cluster_id)

    async def _build_foundation(self) -> Foundation:
        """Lock the log directories, open the metadata store, and determine the cluster id and broker id."""
        config, environment = self._config, self._environment
        log_manager = self._log_manager = LogManager(
            config.log_dirs,
            LogManagerSettings.of(config),
            self._environment.files,
            random=self._environment.random,
            new_threads=self._environment.new_threads,
            on_directory_failed=self._directory_failed,
            files_beside=FILES_BESIDE_LOGS,
        )
        meta = await self._in_thread(log_manager.startup.open)
        self._undo.callback(log_manager.directories.unlock)
        store, accepted = await self._open_store(log_manager)
        self._undo.push_async_callback(store.close)
        self._membership = Membership(store)
        stored = None if meta is None else meta.cluster_id
        is_unnamed = meta is not None and stored is None and await self._in_thread(log_manager.startup.has_partitions)
        cluster_id = await ensure_cluster_id(store, environment.random, stored=UNNAMED if is_unnamed else stored)
        check_cluster_id(stored=stored, cluster_id=cluster_id)
        broker_id = await choose_broker_id(
            store,
            configured=config[properties.BROKER_ID],
            stored=None if meta is None else meta.broker_id,
            generation_enabled=config[properties.BROKER_ID_GENERATION_ENABLE],
            reserved_id_max=config[properties.RESERVED_BROKER_MAX_ID],
        )
        if not self._is_clustered:
            await record_directories(store, log_manager, accepted)
        await self._in_thread(lambda: log_manager.startup.claim(MetaProperties(broker_id, cluster_id)))
        if self._is_clustered:
            await self._in_thread(lambda: retire_copies(log_manager, environment.files))
        loop_timer = LoopTimer(self._loop, environment.clock)
        self._undo.callback(loop_timer.close)
        return Foundation(
            broker_id,
            cluster_id,
            config,
            environment,
            loop_timer.timer,
            store,
            await self._open_acl_store(store),
            log_manager,
            self._blocking,
            self._cpu_pool,
            self._sockets.unsent,
            self._link_security(),
        )

    async def _read_remote_keys(self) -> None:
        """Read the keys of identity providers before the first client logs in; those that fail are read again later."""
        now_ms = self._clock.monotonic_ms()
        key_sets = self._sources.remote_keys.values()
        reads = [self._loop.run_in_executor(self._background, keys.refresh, now_ms) for keys in key_sets]
        if reads:
            await asyncio.wait(reads, timeout=REMOTE_KEYS_WAIT_S)

    def _link_security(self) -> LinkSecurity:
        """Return how this broker connects to others. A broker that runs alone does not, and needs no login."""
        if not self._is_clustered:
            return LinkSecurity()
        from broker.settings.sasl_settings import broker_login  # a broker that runs alone starts without it

        tls, listener = self._tls, self._config.inter_broker_listener
        is_encrypted = tls is not None and listener.security_protocol in TLS_PROTOCOLS
        return LinkSecurity(
            partial(tls.broker_context, listener.name) if tls is not None and is_encrypted else None,
            broker_login(self._config, self._surroundings(), self._log_in_thread()),
        )

    def _surroundings(self) -> Surroundings:
        from broker.settings.client_login import Surroundings  # only brokers with ZooKeeper log in anywhere

        return Surroundings(self._environment.random, self._clock.now_ms)

    def _log_in_thread(self) -> Run:
        """Return how logins to other brokers run what may wait for a server, one after another in a thread."""
        thread = self._environment.new_threads(1, "logins")
        self._undo.callback(thread.shutdown, wait=False)
        return lambda work: self._loop.run_in_executor(thread, work)

    async def _open_store(self, log_manager: LogManager) -> tuple[StateStore, list[LogDirectory]]:
        """Open the cluster's store if `zookeeper.connect` is set, else the embedded one.

        Also returns the directories that the embedded store accepted, for `record_directories`.
        """
        zookeeper = self._zookeeper_settings()
        new_cluster_store = self._environment.new_cluster_store
        if zookeeper is not None and new_cluster_store is not None:
            self._store_sessions = zookeeper.events
            cluster_store = new_cluster_store(zookeeper)
            await cluster_store.open()
            return cluster_store, []
        store, accepted = await open_store(
            log_manager,
            self._clock,
            self._blocking,
            sleep=self._environment.files.sleep,
            accepts_changed=self._config[properties.LOG_DIRS_ACCEPT_CHANGED],
            on_lost=lambda error: self._stop_after_fatal(f"no copy of the metadata store can be written: {error}"),
            on_response=self._store_sessions.responded,
        )
        self._embedded_store = store
        return store, accepted

    def _zookeeper_settings(self, *, of_authorizer: bool = False) -> ZooKeeperSettings | None:
        """Return how the ensemble of the cluster, or of the authorizer, is reached; None if there is none."""
        row = properties.AUTHORIZER_ZOOKEEPER_URL if of_authorizer else properties.ZOOKEEPER_CONNECT
        if not self._config[row]:
            return None
        from broker.settings import zookeeper_settings  # a broker that runs alone starts without it

        read = (
            zookeeper_settings.authorizer_zookeeper_settings if of_authorizer else zookeeper_settings.zookeeper_settings
        )
        return read(self._config, self._surroundings())

    async def _open_acl_store(self, store: StateStore) -> StateStore:
        """Open the authorizer's own ensemble if it has one; else return `store`."""
        zookeeper = self._zookeeper_settings(of_authorizer=True)
        new_cluster_store = self._environment.new_cluster_store
        if zookeeper is None or new_cluster_store is None:
            return store
        acl_store = new_cluster_store(zookeeper)
        await acl_store.open()
        self._undo.push_async_callback(acl_store.close)
        return acl_store

    def _reject_missing_cluster_store(self) -> None:
        """Raise StartupError if the configuration names a cluster, and this broker can only run alone."""
        connect = self._config[properties.ZOOKEEPER_CONNECT]
        if connect and self._environment.new_cluster_store is None:
            raise StartupError(
                f"Invalid value {connect} for configuration zookeeper.connect: this broker can only run alone, "
                "expected none"
            )

    async def _load_logs(self, foundation: Foundation) -> None:
        """Open every log with its topic's configuration, with recovery after an unclean shutdown."""
        topic_configs = self._services.topic_configs
        await topic_configs.load(await foundation.store.children(paths.TOPICS), self._services.sliced_work.pace())
        now_ms = self._clock.now_ms()
        with load_display(self._clock) as show:
            await self._in_thread(
                lambda: self._log_manager.startup.load(topic_configs.effective, now_ms=now_ms, on_progress=show)
            )
        self._undo.push_async_callback(self._close_logs)
        writers = DirectoryWriters(self._log_manager, self._environment.new_threads)
        self._undo.push_async_callback(writers.stop)

    async def _start_security(self, foundation: Foundation, services: Services) -> Callable[[], Awaitable[None]]:
        """Read the ACLs, before any client is served; return a function that reads it again in a new session."""
        change_listener = ConfigChangeListener(foundation.store, self._clock, self._entity_changed)
        await change_listener.start()
        await services.scram_credentials.load()
        await services.enforced_quotas.load()
        self._sockets.quotas.address_rate = services.enforced_quotas.connection_rate
        self._undo.callback(change_listener.stop)
        await services.acls.start()
        self._undo.callback(services.acls.stop)
        if foundation.acl_store is not foundation.store:
            session = AclSession(foundation.acl_store, services.acls.start)
            self._undo.push_async_callback(session.stop)
        await services.delegation_tokens.start()
        self._undo.callback(services.delegation_tokens.stop)

        async def read_again() -> None:
            await change_listener.start()
            await services.config_changes.read_again()
            await services.scram_credentials.load()
            await services.enforced_quotas.load()
            await services.acls.start()
            await services.delegation_tokens.start()

        return read_again

    async def _start_background_work(
        self, foundation: Foundation, services: Services, read_again: Callable[[], Awaitable[None]]
    ) -> None:
        """Start background work: the controller first, as its elections assign the partitions to lead."""
        self._undo.push_async_callback(services.directory_moves.stop)
        self._undo.push_async_callback(services.controller.stop)
        try:
            await services.controller.start()
        except KafkaError as error:
            if not self._is_clustered:
                raise
            logger.warning("no election yet, the controller tries again: %s", error)
        self._undo.push_async_callback(services.isr_changes.stop)
        self._undo.push_async_callback(services.fetchers.stop)

        self._membership.keep(services.controller, read_again)
        self._undo.push_async_callback(self._membership.stop)
        for coordinator in (services.groups, services.transactions):
            coordinator.start()
            self._undo.push_async_callback(coordinator.stop)
        await self._start_cleaning()
        self._repeat_until_stop(
            *storage_jobs(
                self._config,
                self._clock,
                self._log_manager,
                self._environment.are_dirty_pages_many,
                services.sliced_work,
                self._background,
            ),
            *replication_jobs(self._config, services.replica_manager, services.sliced_work),
            *quota_jobs(services.enforced_quotas),
            *transaction_jobs(self._clock, services.late_transactions, services.sliced_work),
            *security_jobs(self._reload_stores),
            *token_jobs(self._config, services.delegation_tokens, lambda: services.controller.is_active),
            *key_set_jobs(self._config, self._clock, list(self._sources.remote_keys.values()), self._background),
        )

    def _connect_parts(self, foundation: Foundation, services: Services) -> None:
        """Connect the log directories with what serves their partitions."""
        self._log_manager.on_write_finished = services.replica_manager.write_finished
        self._log_manager.on_log_start_raised = services.replica_manager.log_start_raised
        self._log_manager.on_log_offline = lambda log: self._loop.call_soon_threadsafe(
            self._log_went_offline, services, log
        )
        services.replica_manager.on_not_opened = lambda: self._reopen_later(foundation)
        self._on_directory_lost = lambda: self._notify(
            self._lose_directory(foundation, services), "partitions of a lost log directory"
        )

    async def _wait_for(self, metadata_received: asyncio.Event) -> None:
        """Wait until the controller has sent metadata; it does so when this broker registers."""
        timeout_ms = self._config[properties.ZOOKEEPER_SESSION_TIMEOUT_MS]
        try:
            await asyncio.wait_for(metadata_received.wait(), timeout_ms / 1000)
        except TimeoutError:
            logger.warning("no controller has sent metadata within %d ms: serving without it", timeout_ms)

    def _close_doors(self) -> None:
        self._sockets.stop_accepting()
        self._sockets.close_connections()

    async def _move_leadership(self) -> None:
        """Have the controller move the leadership of this broker's partitions to other brokers."""
        config, services = self._config, self._services
        if self._is_clustered and config[properties.CONTROLLED_SHUTDOWN_ENABLE]:
            services.fetchers.leave()
            await move_leadership(
                services.controller_link.controlled_shutdown,
                attempts_max=config[properties.CONTROLLED_SHUTDOWN_MAX_RETRIES],
                backoff_ms=config[properties.CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS],
                timeout_ms=config[properties.CONTROLLER_SOCKET_TIMEOUT_MS],
            )

    async def _entity_changed(self, entity: ConfigEntity) -> None:
        """Put the changed settings of an entity into effect."""
        await self._services.config_changes.apply(entity)
        await self._services.scram_credentials.apply(entity)
        await self._services.enforced_quotas.apply(entity)

    def _warn_unmet_settings(self, services: Services) -> None:
        """Log a warning for each setting that a broker which runs alone cannot satisfy."""
        topics = {name: services.topic_configs.overrides(name) for name in services.metadata_cache.topics}
        for line in unmet_by_one_broker(self._config, topics):
            logger.warning("%s", line)

    async def _start_cleaning(self) -> None:
        """Start the log cleaner unless `log.cleaner.enable` is false."""
        config = self._config
        if not config[properties.LOG_CLEANER_ENABLE]:
            logger.warning("log.cleaner.enable=false: compacted topics, __consumer_offsets among them, only grow")
            return
        cleaning = LogCleaning(self._log_manager, self._environment.files, CleanerSettings.of(config))
        cleaning.load()
        cleaner = self._cleaner = LogCleaner(
            cleaning,
            self._environment.new_worker,
            self._environment.new_threads,
            self._background,
            self._clock,
            self._services.sliced_work,
            count=config[properties.LOG_CLEANER_THREADS],
            backoff_ms=config[properties.LOG_CLEANER_BACKOFF_MS],
        )
        cleaner.start()
        self._undo.push_async_callback(cleaner.stop)
        self._services.directory_moves.on_moved = cleaner.log_moved

    def _bind(self) -> None:
        """Bind the addresses of all listeners and of the metrics endpoint. Raises ListenError."""
        control_plane = self._config.control_plane_listener
        self._sockets = SocketServer(
            self._environment.network,
            listener_settings(self._config),
            connection_limits(self._config),
            self._clock,
            None if control_plane is None else control_plane.name,
            descriptors=DescriptorBudget(self._environment.descriptors_max, self._environment.open_descriptors),
        )
        self._sockets.new_principal_builder = lambda listener: principal_builder(self._config, listener)
        sources = self._sources = Sources(
            self._scram_credential,
            self._environment.random,
            self._clock.now_ms,
            self._token_user,
            self._in_thread,
        )
        sasl = sasl_listeners(self._config, sources)
        if encrypted_listeners(self._config):
            from broker.settings.listener_tls import ListenerTls  # its library takes time and memory to load

            self._tls = ListenerTls(self._config)
        self._undo.callback(self._close_doors)
        self._sockets.bind(self._config.listeners)
        tls = {} if self._tls is None else self._tls.listeners
        self._sockets.secure({name: one for name, one in tls.items() if name != HTTP_LISTENER}, sasl)
        self._cpu_pool.when_full(self._sockets.hold, self._sockets.release)
        metrics_listener = self._config[properties.METRICS_HTTP_LISTENER]
        if metrics_listener is not None:
            # Imported on demand: their libraries take time and memory.
            from broker.metrics.endpoint import MetricsEndpoint
            from broker.metrics.http_access import HttpAccess

            http_tls = tls.get(HTTP_LISTENER)
            users = self._config[properties.METRICS_HTTP_USERS]
            self._metrics_endpoint = MetricsEndpoint(
                HostAndPort.parse(metrics_listener),
                self._blocking,
                access=HttpAccess({} if users is None else parse_http_users(users.value)),
                tls_context=lambda: None if http_tls is None else http_tls.context,
            )
            self._undo.push_async_callback(self._metrics_endpoint.stop)

    def _scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._services.scram_credentials.credential(user, mechanism)

    def _token_user(self, token_id: str, digest: Digest) -> ScramUser | None:
        return self._services.delegation_tokens.user(token_id, digest)

    async def _start_metrics(self, services: Services) -> None:
        """Show metrics from before the logs are loaded, so that they show the progress of loading, until the end."""
        has_reporters = bool(reporter_names(self._config))
        if self._metrics_endpoint is None and not has_reporters:
            return
        # Imported here because a broker without them starts faster.
        from broker.metrics.catalog import Measured
        from broker.metrics.histogram import Histogram
        from broker.metrics.host import GarbageCollections, Host
        from broker.metrics.loop_idle import LoopIdle
        from broker.metrics.loop_lag import Turns

        uniform = self._environment.random.random
        measured = Measured(
            flush_times=Histogram(uniform),
            loop_lag=Histogram(uniform),
            store_latency=Histogram(uniform),
            loop_idle=LoopIdle(),
            host=Host(self._config.log_dirs),
            collections=GarbageCollections(),
            sessions=self._store_sessions,
        )
        turns = Turns(self._clock.monotonic_s())
        registry = await self._measure(services, measured, turns)
        if self._metrics_endpoint is not None:
            await self._serve_metrics(self._metrics_endpoint, services, registry, measured, turns)
        if has_reporters:
            self._start_reporters(services, registry)

    async def _measure(self, services: Services, measured: Measured, turns: Turns) -> Registry:
        """Begin what is measured for metrics alone; return the registry of all metrics."""
        from broker.metrics.catalog import MetricCounts, all_metrics
        from broker.metrics.loop_lag import watch
        from broker.metrics.rates import TICK_S
        from broker.metrics.registry import Registry

        loop, host = self._loop, measured.host
        self._undo.callback(measured.collections.watch())
        self._store_sessions.on_response = lambda seconds: measured.store_latency.update(
            seconds * 1000, self._clock.monotonic_ms() / 1000
        )
        self._log_manager.on_flushed = lambda seconds: loop.call_soon_threadsafe(
            lambda: measured.flush_times.update(seconds * 1000, self._clock.monotonic_ms() / 1000)
        )
        watching = asyncio.create_task(
            watch(measured.loop_lag, measured.loop_idle, self._clock, turns), name="event loop lag"
        )
        self._undo.callback(watching.cancel)
        metrics = list(
            all_metrics(
                services,
                self._sockets,
                state=lambda: self._state,
                started_ms=self._clock.now_ms(),
                cleaner=lambda: self._cleaner,
                measured=measured,
                requests=self.dispatcher.metrics,
                waiting_requests=lambda: self.dispatcher.waiting_count,
            )
        )
        metrics += MetricCounts(metrics, self._clock.monotonic_s).metrics()
        window_s = (
            self._config[properties.METRICS_NUM_SAMPLES] * self._config[properties.METRICS_SAMPLE_WINDOW_MS] / 1000
        )
        registry = Registry(metrics, self._clock.monotonic_s, window_s)
        await loop.run_in_executor(self._blocking, host.sample)
        tick_ms = int(TICK_S * 1000)
        self._repeat_until_stop(
            Job("rates of metrics", tick_ms, lambda: services.sliced_work.finished(registry.tick())),
            Job("figures of the host", tick_ms, lambda: loop.run_in_executor(self._blocking, host.sample)),
        )
        return registry

    async def _serve_metrics(
        self, endpoint: MetricsEndpoint, services: Services, registry: Registry, measured: Measured, turns: Turns
    ) -> None:
        """Serve metrics, health and the console over HTTP."""
        # Imported here because a broker without the endpoint starts faster.
        from broker.console.assembly import open_console
        from broker.console.console import Measures
        from broker.metrics.health import Health

        health = Health(
            services.broker_id,
            services.replica_manager,
            services.metadata_cache,
            lambda: self._state,
            lambda: [listener.name for listener in self._sockets.listeners if not listener.is_accepting],
            lambda: turns.lag_s(self._clock.monotonic_s()),
            lambda: self._store_sessions.state != CLOSED,
        )
        await endpoint.start(
            registry,
            health,
            services.sliced_work,
            shows_partitions=lambda: self._config[properties.METRICS_PER_PARTITION],
            wall_ms=self._clock.now_ms,
            add_routes=open_console(
                services,
                self.dispatcher,
                self._sockets,
                Measures(
                    state=lambda: self._state,
                    requests=self.dispatcher.metrics,
                    loop_lag=measured.loop_lag.distribution,
                    loop_idle_percent=lambda: 100 * measured.loop_idle.share,
                    host=measured.host,
                    started_ms=self._clock.now_ms(),
                ),
                self._undo,
            ).add_routes,
        )
        logger.info("metrics are served on port %d", endpoint.port)

    def _start_reporters(self, services: Services, registry: Registry) -> None:
        """Create the configured metrics reporters, and report regularly. Raises InvalidPlugInError."""
        from broker.metrics.reporters import Reporters  # a broker without reporters starts faster

        reporters = Reporters(
            new_reporters(self._config),
            registry,
            services.sliced_work,
            self._environment.new_threads,
            shows_partitions=lambda: self._config[properties.METRICS_PER_PARTITION],
            now_ms=self._clock.now_ms,
        )
        self._undo.push_async_callback(reporters.stop)
        interval_ms = self._config[properties.KAFKA_METRICS_POLLING_INTERVAL_SECS] * 1000
        self._repeat_until_stop(Job("metrics reporters", interval_ms, reporters.report, initial_delay_ms=0))

    def _repeat_until_stop(self, *jobs: Job) -> None:
        repeated = PeriodicJobs(jobs)
        repeated.start()
        self._undo.push_async_callback(repeated.stop)

    def _registration(self, broker_id: int) -> BrokerRegistration:
        """Return the registration of this broker: its advertised addresses, with the real ports."""
        ports = self._sockets.ports
        endpoints = tuple(
            Endpoint(
                one.name,
                one.host or self._environment.host_name(),
                one.port or ports[one.name],
                one.security_protocol.name,
            )
            for one in self._config.advertised_listeners
            if one.name in ports  # one that was added, and could not be bound, is missing
        )
        broker = Broker(broker_id, endpoints, rack=self._config[properties.BROKER_RACK])
        jmx_port = NO_JMX_PORT if self._metrics_endpoint is None else self._metrics_endpoint.port
        return BrokerRegistration(broker, self._clock.now_ms(), jmx_port)

    def _directory_failed(self, path: str, error: Exception) -> None:
        """Handle the failure of a log directory. Called from any thread."""
        if self._embedded_store is not None:
            self._embedded_store.leave(Path(path) / METADATA_FILE)
        if self._log_manager.directories.live:
            self._loop.call_soon_threadsafe(self._on_directory_lost)
        else:
            self._stop_after_fatal(f"all log directories have failed, the last one was {path}: {error}")

    def _stop_after_fatal(self, reason: str) -> None:
        """Stop the broker after a fatal error. Called from any thread; only the first reason is logged."""
        if not self.has_failed:
            self.has_failed = True
            logger.critical("stopping: %s", reason)
            self._loop.call_soon_threadsafe(self._on_fatal)

    def _log_went_offline(self, services: Services, log: Log) -> None:
        """Fail what waits for a log. If it is offline alone, have other replicas lead, as with a failed directory."""
        services.replica_manager.log_went_offline(log)
        directory = self._log_manager.directory_of(log.topic, log.partition)
        if (
            directory is not None
            and not directory.is_offline
            and self._log_manager.get(log.topic, log.partition) is log
        ):
            self._on_directory_lost()

    async def _lose_directory(self, foundation: Foundation, services: Services) -> None:
        """Stop serving the partitions whose logs are offline, and notify the controller."""
        lost = await services.sliced_work.finished(services.replica_manager.directory_failed())
        if not lost:
            return
        logger.error("%d partitions are offline with their logs", len(lost))
        self._request_replica_states(foundation)

    def _reopen_later(self, foundation: Foundation) -> None:
        """Retry later to open replicas that could not be opened for lack of descriptors or memory."""
        if self._reopening is None:

            def ask() -> None:
                self._reopening = None
                self._request_replica_states(foundation)

            self._reopening = self._loop.call_later(REOPEN_DELAY_S, ask)

    def _request_replica_states(self, foundation: Foundation) -> None:
        """Have the controller send the states of all replicas again; it learns which of them cannot be opened."""
        self._notify(_announce_lost_log_dir(foundation), "notice of a lost log directory")

    async def _update_registration(self) -> None:
        try:
            await self._membership.update()
        except (StoreError, StoreUnavailable) as error:
            logger.error("the registration keeps its former addresses until the next session: %s", error)

    def _notify(self, work: Coroutine[None, None, None], name: str) -> None:
        """Begin work without waiting for it, for example a write to the store."""
        notice = asyncio.create_task(work, name=name)
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    def _apply_settings(self) -> None:
        """Apply the broker's configuration after its dynamic layers were loaded or changed."""
        self._blocking.resize(self._config[properties.NUM_IO_THREADS])
        self._background.resize(self._config[properties.BACKGROUND_THREADS])
        self._log_manager.settings = LogManagerSettings.of(self._config)
        try:
            limits = connection_limits(self._config)
        except UnknownHostError as error:
            logger.error("the limits of connections stay as they are: %s", error)
            return
        self._sockets.quotas.reconfigure(limits)

    def _apply_stored_listeners(self) -> None:
        """Put the stored listener settings into effect before clients are served, those of SASL included."""
        for listener in self._config.listeners:
            if self._sockets.addresses.get(listener.name, listener) != listener:
                self._remove_listener(listener.name)
        self._apply_listeners()
        if not self._config.dynamic_broker:
            return
        for listener in self._sockets.addresses.values():
            try:
                self._sockets.secure({}, sasl_listeners(self._config, self._sources, [listener]))
            except InvalidSecurityError as error:
                logger.error("listener %s keeps the logins of the file: %s", listener, error)

    def _apply_listeners(self) -> None:
        """Bind the addresses of new listeners, close those of removed ones, and read changed key stores."""
        config, sockets = self._config, self._sockets
        wanted = {listener.name: listener for listener in config.listeners}
        for name in sockets.addresses.keys() - wanted.keys():
            self._remove_listener(name)
        if self._tls is not None:
            self._tls.reload(config)
        for name, listener in wanted.items():
            if (bound := sockets.addresses.get(name)) is None:
                self._add_listener(listener)
            elif bound != listener:
                logger.warning("listener %s is bound to %s until a restart", listener, bound)

    def _remove_listener(self, name: str) -> None:
        logger.info("closing listener %s", self._sockets.addresses[name])
        self._sockets.remove(name)
        if self._tls is not None:
            self._tls.forget(name)

    def _add_listener(self, listener: Listener) -> None:
        """Serve one more listener. One that cannot be served is logged, and stays closed."""
        try:
            tls = None
            if listener.security_protocol in TLS_PROTOCOLS:
                if self._tls is None:
                    from broker.settings.listener_tls import ListenerTls  # its library takes time and memory to load

                    self._tls = ListenerTls(self._config)
                if (tls := self._tls.listeners.get(listener.name)) is None:
                    raise InvalidSecurityError("its key store or trust store cannot be used")
            sasl = sasl_listeners(self._config, self._sources, [listener]).get(listener.name)
            self._sockets.add(listener, tls, sasl)
        except (InvalidPlugInError, InvalidSecurityError, ListenError) as error:
            logger.error("listener %s is not served: %s", listener, error)
        else:
            logger.info("listening on %s, port %d", listener, self._sockets.ports[listener.name])

    def _check_reconfiguration(self, config: BrokerConfig) -> None:
        """Raise KafkaError if a changed configuration cannot be put into effect."""
        added = [listener for listener in config.listeners if listener.name not in self._sockets.addresses]
        sources = replace(self._sources, remote_keys=dict(self._sources.remote_keys))
        try:
            if self._tls is not None:
                self._tls.check(config)
            elif encrypted_listeners(config):
                from broker.settings.listener_tls import ListenerTls  # its library takes time and memory to load

                ListenerTls(config)
            sasl_listeners(config, sources, added)
            if sources.remote_keys != self._sources.remote_keys:
                raise InvalidSecurityError("a new listener with keys of another address needs a restart of the broker")
        except InvalidSecurityError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def _reload_stores(self) -> None:
        """Read the key stores and trust stores again whose files have changed."""
        if self._tls is not None:
            await self._loop.run_in_executor(self._background, self._tls.reload, self._config)
            if self._metrics_endpoint is not None:
                self._metrics_endpoint.renew_tls()

    def _broker_reconfigured(self) -> Slices[None]:
        """Apply changed settings of the running broker to all parts."""
        config, services = self._config, self._services
        services.topic_configs.defaults_changed()
        yield from services.replica_manager.reconfigure()
        self._apply_settings()
        if self._cleaner is not None:
            self._cleaner.reconfigure(CleanerSettings.of(config), backoff_ms=config[properties.LOG_CLEANER_BACKOFF_MS])
        services.controller.reconfigure(controller_settings(config, services.policies))
        self._apply_listeners()
        services.fetchers.resize()
        self._notify(self._update_registration(), "update of the registration")
        if config[properties.UNCLEAN_LEADER_ELECTION_ENABLE]:
            services.controller.enable_unclean_election(None)

    def _topic_reconfigured(self, topic: str) -> Slices[None]:
        """Apply changed overrides of `topic` to all parts."""
        services = self._services
        yield from services.replica_manager.reconfigure(topic)
        is_set = UNCLEAN_LEADER_ELECTION_ENABLE.name in services.topic_configs.overrides(topic)
        if is_set and services.topic_configs.effective(topic).unclean_leader_election_enable:
            services.controller.enable_unclean_election(topic)

    async def _close_logs(self) -> None:
        await self._in_thread(lambda: self._log_manager.close(self._clock.now_ms()))

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._blocking, work)


def _received(door: ControlDoor) -> asyncio.Event:
    """Return an event that is set when an UpdateMetadata has been applied."""
    received, forward = asyncio.Event(), door.on_metadata

    def note(topics: set[str]) -> None:
        forward(topics)
        received.set()

    door.on_metadata = note
    return received


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
    if release is not None and (release_named(release) is None or config[properties.ZOOKEEPER_CONNECT]):
        yield ConfigError(
            properties.ADVERTISED_KAFKA_VERSION.name,
            release,
            f"expected a release from {RELEASES[0]} to {RELEASES[-1]}, and a broker without ZooKeeper",
        )
    protocols = set(config[properties.GROUP_COORDINATOR_REBALANCE_PROTOCOLS])
    if protocols != GROUP_PROTOCOLS:
        yield ConfigError(
            properties.GROUP_COORDINATOR_REBALANCE_PROTOCOLS.name,
            ",".join(sorted(protocols)),
            "as in Kafka 3.9 with ZooKeeper, the classic protocol alone is served, expected classic",
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
    if not config[properties.ZOOKEEPER_CONNECT]:
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


async def _announce_lost_log_dir(foundation: Foundation) -> None:
    try:
        await announce_lost_log_dir(foundation.store, foundation.broker_id)
    except (StoreError, StoreUnavailable) as error:
        logger.error("the controller was not notified of the lost log directory, so leaders do not move: %s", error)
