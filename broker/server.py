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
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from base.clock import Clock
from broker.assembly import Surroundings, assemble
from broker.cluster.broker_state import BrokerState
from broker.cluster.metadata_store import (
    FILES_BESIDE_LOGS,
    NoMetadataError,
)
from broker.environment import Environment, environment_of_this_machine
from broker.foundation import Foundation
from broker.jobs import (
    RETENTION,
    key_set_jobs,
    quota_jobs,
    repeat_until_closed,
    replication_jobs,
    security_jobs,
    settings_jobs,
    storage_jobs,
    token_jobs,
    transaction_jobs,
)
from broker.listeners import BrokerListeners
from broker.load_display import load_display
from broker.loop.cpu_pool import CpuPool
from broker.loop.loop_timer import LoopTimer
from broker.loop.periodic_jobs import PeriodicJobs
from broker.loop.thread_pool import ThreadPool
from broker.lost_logs import LostLogs, ReplicaStates
from broker.network.connection import Dispatcher
from broker.network.network import ListenError
from broker.network.outgoing import LinkSecurity
from broker.network.sasl.scram import Digest, ScramCredential, ScramUser
from broker.process import freeze_started, run_in_loop
from broker.replica.assembly import clean_logs
from broker.replica.directory_writers import DirectoryWriters
from broker.replica.log_cleaner import LogCleaner
from broker.requests.admission import Admission
from broker.requests.dispatch import RequestDispatcher
from broker.requests.services import Services
from broker.setting_problems import unsupported_settings
from broker.settings.assembly import Reconfiguration
from broker.settings.component_settings import (
    UnknownHostError,
    check_hosts,
    controller_settings,
    registration_wait_ms,
)
from broker.settings.listener_security import open_listeners
from broker.settings.plug_ins import InvalidPlugInError, has_reporters
from broker.settings.security_sources import InvalidSecurityError, Sources
from broker.settings.unmet_settings import unmet_by_one_broker
from broker.stores import OpenedStore, claim_directories, open_acl_store, open_metadata_store
from config import broker_properties as properties
from config.broker import BrokerConfig
from config.topic_properties import UNCLEAN_LEADER_ELECTION_ENABLE
from controller.embedded.sqlite_store import METADATA_FILE
from controller.machine.model import Broker
from controller.store.state_store import StateStore, StoreError, StoreUnavailable
from controller.tree import paths
from controller.tree.entity_configs import ConfigChangeListener
from controller.tree.membership import Membership
from controller.tree.paths import ConfigEntity, Undecodable
from controller.tree.registration import (
    NO_JMX_PORT,
    BrokerRegistration,
    IdentityError,
)
from protocol.errors import KafkaError
from storage.cleaning.log_cleaning import CleanerSettings
from storage.directories.log_directory import DirectoryLockedError, ForeignDirectoryError
from storage.disk.meta_properties import WrongDirectoryError
from storage.manager.log_manager import LogManager
from storage.manager.log_startup import DuplicateLogError, LoadError, LogManagerSettings, NoUsableDirectoryError

if TYPE_CHECKING:
    from broker.metrics.endpoint import MetricsEndpoint

logger = logging.getLogger("kafka.server.KafkaServer")

T = TypeVar("T")

REMOTE_KEYS_WAIT_S = 10.0
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


async def _serve(config: BrokerConfig, when_started: Callable[[Server], Awaitable[None]]) -> int:
    server = Server(config, environment_of_this_machine())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await server.start(on_fatal=stop.set, is_stopped=stop.is_set)
        freeze_started()
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
        self._listeners: BrokerListeners
        self._membership: Membership
        self._loop: asyncio.AbstractEventLoop
        self._blocking: ThreadPool
        self._background: ThreadPool
        self._cpu_pool: CpuPool
        self._log_manager: LogManager
        self._store: OpenedStore | None = None
        self._services: Services
        self._on_fatal: Callable[[], None]
        self._is_stopped: Callable[[], bool]
        self._lost_logs: LostLogs | None = None
        self._notices: set[asyncio.Task[None]] = set()
        self._jobs: PeriodicJobs
        self._cleaner: LogCleaner | None = None
        self._metrics_endpoint: MetricsEndpoint | None = None
        self._state = BrokerState.NOT_RUNNING
        self.dispatcher: RequestDispatcher
        self.has_failed = False
        """Whether the broker stopped because of a fatal error."""

    @property
    def _is_clustered(self) -> bool:
        """Whether the metadata is that of a cluster, in ZooKeeper, and not in this broker's own store."""
        return self._opened_store.embedded is None

    @property
    def _opened_store(self) -> OpenedStore:
        assert self._store is not None, "the metadata store is not open yet"
        return self._store

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
        return self._listeners.sockets.ports

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
        if self._lost_logs is not None:
            self._lost_logs.stop()
        await self._undo.aclose()
        self._state = BrokerState.NOT_RUNNING
        if was_running:
            logger.info("closed cleanly in %.1f s", self._clock.monotonic_s() - since_s)
            logger.info("[KafkaServer id=%d] shut down completed", self._services.broker_id)

    async def run_retention(self) -> int:
        """Apply the retention of all topics now; return how many segments were removed."""
        removed = cast(int, await self._jobs.run_now(RETENTION))
        return removed + (0 if self._cleaner is None else await self._cleaner.expire_now())

    async def run_compaction(self, topic: str) -> int:
        """Clean the logs of a compacted topic now, up to their ends; return how many were cleaned."""
        logs = [log for log in self._log_manager.logs() if log.topic == topic]
        return 0 if self._cleaner is None else await self._cleaner.clean_now(logs)

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
        sources = Sources(
            self._scram_credential, self._environment.random, self._clock.now_ms, self._token_user, self._in_thread
        )
        await check_hosts(self._config[properties.MAX_CONNECTIONS_PER_IP_OVERRIDES])
        self._listeners = BrokerListeners(self._config, self._environment, sources, self._address_rate, self._undo)
        sockets = self._listeners.sockets
        self._cpu_pool = CpuPool(
            self._config[properties.QUEUED_MAX_REQUESTS], new_threads, on_full=sockets.hold, on_room=sockets.release
        )
        self._undo.callback(self._cpu_pool.stop)
        self._undo.callback(self._listeners.close)  # before the pool ends, which computes for connections
        if self._config[properties.METRICS_HTTP_LISTENER] is not None:
            self._open_metrics_endpoint()
        foundation = await self._build_foundation()
        acl_store = await open_acl_store(self._config, self._environment, foundation.store, self._undo)
        replica_states = ReplicaStates(foundation)
        services = self._services = assemble(
            foundation,
            Surroundings(
                self._environment.network,
                self._link_security(),
                self._listeners.sockets.unsent,
                acl_store,
                replica_states,
                Reconfiguration(self._topic_reconfigured, self._broker_reconfigured, self._listeners.check),
            ),
        )
        self._undo.callback(services.peers.close)
        self._undo.callback(services.policies.close)
        self.dispatcher = RequestDispatcher(services)
        await services.config_changes.encode_again()
        await services.config_changes.load_dynamic_layers()
        await services.config_changes.load_own_entities()
        self._apply_settings()
        await self._listeners.limit_connections()
        self._listeners.apply_stored()
        if self._metrics_endpoint is not None or has_reporters(self._config):
            await self._observe(services)
        self._state = BrokerState.RECOVERY
        await self._load_logs(foundation)
        self._lost_logs = LostLogs(foundation, services.replica_manager, services.assigned_replicas, replica_states)
        await self._read_remote_keys()
        read_security_again = await self._start_security(foundation.store, acl_store, services)
        await self._membership.register(
            lambda: self._registration(foundation.broker_id),
            wait_ms=registration_wait_ms(self._config),
            is_stopped=self._is_stopped,
        )
        admission = Admission(self.dispatcher)
        metadata_received = asyncio.Event()
        services.metadata_changes.subscribe(lambda topics: metadata_received.set())
        if self._is_clustered:
            self._listeners.sockets.start(admission)
        await self._start_background_work(foundation, services, read_security_again)
        await self._lost_logs.stop_serving()  # a directory that failed during the start
        if not self._is_clustered:
            _warn_unmet_settings(self._config, services)
        if self._is_clustered:
            await _wait_for(metadata_received, self._config[properties.ZOOKEEPER_SESSION_TIMEOUT_MS])
        services.assigned_replicas.report_unclaimed_logs(
            partial(services.metadata_cache.is_assigned, services.broker_id)
        )
        admission.admit_clients()
        if not self._is_clustered:
            self._listeners.sockets.start(self._dispatcher_of_release(services))
        self._undo.callback(self._listeners.close)
        self._undo.push_async_callback(services.fetchers.stop)  # before listeners close: leaders count it in sync
        self._state = BrokerState.RUNNING
        for line in open_listeners(self._config):
            logger.info("%s", line)
        self._listeners.log_addresses(self._registration(foundation.broker_id).broker)
        logger.info("data in %s, cluster id %s", ", ".join(self._config.log_dirs), foundation.cluster_id)
        logger.info("[KafkaServer id=%d] started", foundation.broker_id)

    def _dispatcher_of_release(self, services: Services) -> Dispatcher:
        """Return what serves clients: the dispatcher, or a limit of its APIs to those of an earlier release."""
        if self._config[properties.ADVERTISED_KAFKA_VERSION] is None:
            return self.dispatcher
        from broker.requests.release_gate import ReleaseGate  # for tests of clients only

        return ReleaseGate(self.dispatcher, services.listed_apis)

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
        opened = self._store = await open_metadata_store(
            config,
            environment,
            log_manager,
            self._blocking,
            lambda error: self._stop_after_fatal(f"no copy of the metadata store can be written: {error}"),
        )
        store = opened.store
        self._undo.push_async_callback(store.close)
        self._membership = Membership(store)
        broker_id, cluster_id = await claim_directories(config, environment, log_manager, meta, opened, self._in_thread)
        loop_timer = LoopTimer(self._loop, environment.clock)
        self._undo.callback(loop_timer.close)
        return Foundation(
            broker_id,
            cluster_id,
            config,
            environment.clock,
            environment.random,
            loop_timer.timer,
            store,
            log_manager,
            self._blocking,
            self._background,
            self._cpu_pool,
            environment.new_sliced_work(environment.clock),
            environment.new_threads,
            self._notify,
            lambda: self._membership.broker_epoch,
        )

    def _link_security(self) -> LinkSecurity:
        if not self._is_clustered:
            return LinkSecurity()
        from broker.logins import link_security  # a broker that runs alone starts without it

        return link_security(self._config, self._environment, self._listeners, self._undo)

    def _open_metrics_endpoint(self) -> None:
        from broker.observation import open_endpoint  # a broker without metrics starts without it

        self._metrics_endpoint = open_endpoint(self._config, self._blocking, self._listeners.http_tls())
        self._undo.push_async_callback(self._metrics_endpoint.stop)

    async def _observe(self, services: Services) -> None:
        from broker.observation import Observation  # a broker without metrics starts without it

        observation = Observation(
            self._environment,
            services,
            self.dispatcher,
            self._listeners.sockets,
            self._opened_store.sessions,
            state=lambda: self._state,
            cleaner=lambda: self._cleaner,
            undo=self._undo,
        )
        await observation.start(self._metrics_endpoint)

    async def _read_remote_keys(self) -> None:
        """Read the keys of identity providers before the first client logs in; those that fail are read again later."""
        now_ms = self._clock.monotonic_ms()
        key_sets = self._listeners.sources.remote_keys.values()
        reads = [self._loop.run_in_executor(self._background, keys.refresh, now_ms) for keys in key_sets]
        if reads:
            await asyncio.wait(reads, timeout=REMOTE_KEYS_WAIT_S)

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
        await topic_configs.load_all(await foundation.store.children(paths.TOPICS), self._services.sliced_work.pause)
        now_ms = self._clock.now_ms()
        with load_display(self._clock) as show:
            await self._in_thread(
                lambda: self._log_manager.startup.load(topic_configs.effective, now_ms=now_ms, on_progress=show)
            )
        self._undo.push_async_callback(self._close_logs)
        writers = DirectoryWriters(self._log_manager, self._environment.new_threads)
        self._undo.push_async_callback(writers.stop)

    async def _start_security(
        self, store: StateStore, acl_store: StateStore, services: Services
    ) -> Callable[[], Awaitable[None]]:
        """Read the ACLs, before any client is served; return a function that reads it again in a new session."""
        change_listener = ConfigChangeListener(store, self._entity_changed)
        await change_listener.start()
        await services.scram_credentials.load()
        await services.enforced_quotas.load()
        self._undo.callback(change_listener.stop)
        await services.acls.start()
        self._undo.callback(services.acls.stop)
        if acl_store is not store:
            from broker.cluster.acl_session import AclSession  # few brokers have such a store

            session = AclSession(acl_store, services.acls.start)
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
        self._undo.callback(services.features.stop)
        await services.features.follow()
        self._undo.push_async_callback(services.isr_changes.stop)
        self._undo.push_async_callback(services.fetchers.stop)

        async def read_all_again() -> None:
            await read_again()
            await services.features.follow()

        self._membership.keep(services.controller, read_all_again)
        self._undo.push_async_callback(self._membership.stop)
        for coordinator in (services.groups, services.transactions):
            coordinator.start()
            self._undo.push_async_callback(coordinator.stop)
        await self._start_cleaning(foundation)
        self._jobs = repeat_until_closed(
            self._undo,
            *storage_jobs(
                self._config,
                self._clock,
                self._log_manager,
                self._environment.are_dirty_pages_many,
                services.sliced_work,
                self._background,
            ),
            *replication_jobs(self._config, services.replica_manager, services.leader_states, services.sliced_work),
            *quota_jobs(services.enforced_quotas),
            *transaction_jobs(self._clock, services.late_transactions, services.sliced_work),
            *settings_jobs(services.config_changes.read_unread),
            *security_jobs(self._reload_stores),
            *token_jobs(self._config, services.delegation_tokens, lambda: services.controller.is_active),
            *key_set_jobs(
                self._config, self._clock, list(self._listeners.sources.remote_keys.values()), self._background
            ),
        )

    async def _move_leadership(self) -> None:
        """Have the controller move the leadership of this broker's partitions to other brokers."""
        config, services = self._config, self._services
        if self._is_clustered and config[properties.CONTROLLED_SHUTDOWN_ENABLE]:
            from broker.cluster.controlled_shutdown import move_leadership  # no start needs it

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

    async def _start_cleaning(self, foundation: Foundation) -> None:
        """Start the log cleaner unless `log.cleaner.enable` is false."""
        config = self._config
        if not config[properties.LOG_CLEANER_ENABLE]:
            logger.warning("log.cleaner.enable=false: compacted topics, __consumer_offsets among them, only grow")
            return
        cleaner = self._cleaner = clean_logs(foundation, self._environment.files, self._environment.new_worker)
        cleaner.start()
        self._undo.push_async_callback(cleaner.stop)

    def _scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._services.scram_credentials.credential(user, mechanism)

    def _token_user(self, token_id: str, digest: Digest) -> ScramUser | None:
        return self._services.delegation_tokens.user(token_id, digest)

    def _address_rate(self, host: str) -> float | None:
        return self._services.enforced_quotas.connection_rate(host)

    def _registration(self, broker_id: int) -> BrokerRegistration:
        """Return the registration of this broker: its advertised addresses, with the real ports."""
        endpoints = self._listeners.advertised(self._environment.host_name)
        broker = Broker(broker_id, endpoints, rack=self._config[properties.BROKER_RACK])
        jmx_port = NO_JMX_PORT if self._metrics_endpoint is None else self._metrics_endpoint.port
        version = self._config.inter_broker_protocol.registration
        return BrokerRegistration(broker, self._clock.now_ms(), jmx_port, version)

    def _directory_failed(self, path: str, error: Exception) -> None:
        """Handle the failure of a log directory. Called from any thread."""
        if self._store is not None and self._store.embedded is not None:
            self._store.embedded.leave(Path(path) / METADATA_FILE)
        if self._log_manager.directories.live:
            self._loop.call_soon_threadsafe(self._directory_lost)
        else:
            self._stop_after_fatal(f"all log directories have failed, the last one was {path}: {error}")

    def _directory_lost(self) -> None:
        if self._lost_logs is not None:  # before it exists, the start finds out what is lost
            self._lost_logs.directory_lost()

    def _stop_after_fatal(self, reason: str) -> None:
        """Stop the broker after a fatal error. Called from any thread; only the first reason is logged."""
        if not self.has_failed:
            self.has_failed = True
            logger.critical("stopping: %s", reason)
            self._loop.call_soon_threadsafe(self._on_fatal)

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
        self._log_manager.reconfigure(LogManagerSettings.of(self._config))

    async def _reload_stores(self) -> None:
        """Read the key stores and trust stores again whose files have changed."""
        reload = self._listeners.stores_reload()
        if reload is not None:
            await self._loop.run_in_executor(self._background, reload)
            if self._metrics_endpoint is not None:
                self._metrics_endpoint.renew_tls()

    async def _broker_reconfigured(self) -> None:
        """Apply changed settings of the running broker to all parts."""
        config, services = self._config, self._services
        services.topic_configs.defaults_changed()
        await services.replica_manager.reconfigure(services.sliced_work.pause)
        self._apply_settings()
        if self._cleaner is not None:
            self._cleaner.reconfigure(CleanerSettings.of(config), backoff_ms=config[properties.LOG_CLEANER_BACKOFF_MS])
        services.controller.reconfigure(controller_settings(config, services.policies))
        self._listeners.apply()
        await services.fetchers.resize()
        self._notify(self._update_registration(), "update of the registration")
        if config[properties.UNCLEAN_LEADER_ELECTION_ENABLE]:
            services.controller.enable_unclean_election(None)
        await self._listeners.limit_connections()

    async def _topic_reconfigured(self, topic: str) -> None:
        """Apply changed overrides of `topic` to all parts."""
        services = self._services
        await services.replica_manager.reconfigure(services.sliced_work.pause, topic)
        is_set = UNCLEAN_LEADER_ELECTION_ENABLE.name in services.topic_configs.overrides(topic)
        if is_set and services.topic_configs.effective(topic).unclean_leader_election_enable:
            services.controller.enable_unclean_election(topic)

    async def _close_logs(self) -> None:
        await self._in_thread(lambda: self._log_manager.close(self._clock.now_ms()))

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return self._loop.run_in_executor(self._blocking, work)


async def _wait_for(metadata_received: asyncio.Event, timeout_ms: int) -> None:
    """Wait until the controller has sent metadata; it does so when this broker registers."""
    try:
        await asyncio.wait_for(metadata_received.wait(), timeout_ms / 1000)
    except TimeoutError:
        logger.warning("no controller has sent metadata within %d ms: serving without it", timeout_ms)


def _warn_unmet_settings(config: BrokerConfig, services: Services) -> None:
    """Log a warning for each setting that a broker which runs alone cannot satisfy."""
    topics = {name: services.topic_configs.overrides(name) for name in services.metadata_cache.topics}
    for line in unmet_by_one_broker(config, topics):
        logger.warning("%s", line)
