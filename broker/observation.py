"""What people and monitoring see of one broker: metrics, health, the console, metrics reporters.

Owns when they start, and what is measured for them alone. Must not know how a metric is computed. Their libraries take
time and memory, so everything is imported on demand: a broker without them starts faster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from base.clock import Clock
from broker.cluster.broker_state import BrokerState
from broker.environment import Environment
from broker.jobs import repeat_until_closed
from broker.loop.periodic_jobs import Job
from broker.network.socket_server import SocketServer
from broker.replica.log_cleaner import LogCleaner
from broker.requests.dispatch import RequestDispatcher
from broker.requests.services import Services
from broker.settings.plug_ins import has_reporters
from broker.settings.reporters import new_reporters
from config import broker_properties as properties
from config.addresses import HostAndPort
from config.broker import BrokerConfig
from controller.store.session_events import CLOSED, SessionEvents
from storage.manager.log_observers import LogObserver

if TYPE_CHECKING:
    from broker.metrics.catalog import Measured
    from broker.metrics.endpoint import MetricsEndpoint
    from broker.metrics.histogram import Histogram
    from broker.metrics.loop_lag import Turns
    from broker.metrics.registry import Registry
    from broker.network.tls import ServerContext

logger = logging.getLogger("kafka.server.KafkaServer")


def open_endpoint(
    config: BrokerConfig, blocking: Executor, tls_context: Callable[[], ServerContext | None]
) -> MetricsEndpoint:
    """Bind the address of `metrics.http.listener`, which is set. Raises ListenError."""
    metrics_listener = config[properties.METRICS_HTTP_LISTENER]
    assert metrics_listener is not None
    from broker.metrics.endpoint import MetricsEndpoint
    from broker.metrics.http_access import HttpAccess
    from config.http_users import parse_http_users

    users = config[properties.METRICS_HTTP_USERS]
    return MetricsEndpoint(
        HostAndPort.parse(metrics_listener),
        blocking,
        access=HttpAccess({} if users is None else parse_http_users(users.value)),
        tls_context=tls_context,
    )


class Observation:
    """Starts and stops what observes one broker."""

    def __init__(
        self,
        environment: Environment,
        services: Services,
        dispatcher: RequestDispatcher,
        sockets: SocketServer,
        sessions: SessionEvents,
        *,
        state: Callable[[], BrokerState],
        cleaner: Callable[[], LogCleaner | None],
        undo: AsyncExitStack,
    ) -> None:
        """`state()` and `cleaner()` return the present ones; `undo` ends what is begun."""
        self._config = services.config
        self._environment = environment
        self._clock = environment.clock
        self._blocking = services.blocking
        self._services = services
        self._dispatcher = dispatcher
        self._sockets = sockets
        self._sessions = sessions
        self._state = state
        self._cleaner = cleaner
        self._undo = undo

    async def start(self, endpoint: MetricsEndpoint | None) -> None:
        """Measure and show until the end. Begin before the logs are loaded, to show the progress of loading.

        Raises InvalidPlugInError.
        """
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
            sessions=self._sessions,
        )
        turns = Turns(self._clock.monotonic_s())
        registry = await self._measure(measured, turns)
        if endpoint is not None:
            await self._serve(endpoint, registry, measured, turns)
        if has_reporters(self._config):
            self._start_reporters(registry)

    async def _measure(self, measured: Measured, turns: Turns) -> Registry:
        """Begin what is measured for metrics alone; return the registry of all metrics."""
        from broker.metrics.catalog import MetricCounts, all_metrics
        from broker.metrics.loop_lag import watch
        from broker.metrics.rates import TICK_S
        from broker.metrics.registry import Registry

        loop, host, services = asyncio.get_running_loop(), measured.host, self._services
        self._undo.callback(measured.collections.watch())
        self._sessions.follow_responses(
            lambda seconds: measured.store_latency.update(seconds * 1000, self._clock.monotonic_ms() / 1000)
        )
        services.log_manager.observers.add(_FlushTimes(loop, measured.flush_times, self._clock))
        watching = asyncio.create_task(
            watch(measured.loop_lag, measured.loop_idle, self._clock, turns), name="event loop lag"
        )
        self._undo.callback(watching.cancel)
        metrics = list(
            all_metrics(
                services,
                self._sockets,
                state=self._state,
                started_ms=self._clock.now_ms(),
                cleaner=self._cleaner,
                measured=measured,
                requests=self._dispatcher.metrics,
                waiting_requests=lambda: self._dispatcher.waiting_count,
            )
        )
        metrics += MetricCounts(metrics, self._clock.monotonic_s).metrics()
        window_s = (
            self._config[properties.METRICS_NUM_SAMPLES] * self._config[properties.METRICS_SAMPLE_WINDOW_MS] / 1000
        )
        registry = Registry(metrics, self._clock.monotonic_s, window_s)
        await loop.run_in_executor(self._blocking, host.sample)
        tick_ms = int(TICK_S * 1000)
        repeat_until_closed(
            self._undo,
            Job("rates of metrics", tick_ms, lambda: registry.tick(services.sliced_work.pause)),
            Job("figures of the host", tick_ms, lambda: loop.run_in_executor(self._blocking, host.sample)),
        )
        return registry

    async def _serve(self, endpoint: MetricsEndpoint, registry: Registry, measured: Measured, turns: Turns) -> None:
        """Serve metrics, health and the console over HTTP."""
        from broker.console.assembly import open_console
        from broker.console.console import Measures
        from broker.metrics.health import Health

        services = self._services
        health = Health(
            services.broker_id,
            services.replica_manager,
            services.metadata_cache,
            self._state,
            lambda: [listener.name for listener in self._sockets.listeners if not listener.is_accepting],
            lambda: turns.lag_s(self._clock.monotonic_s()),
            lambda: self._sessions.state != CLOSED,
        )
        await endpoint.start(
            registry,
            health,
            services.sliced_work,
            shows_partitions=lambda: self._config[properties.METRICS_PER_PARTITION],
            wall_ms=self._clock.now_ms,
            add_routes=open_console(
                services,
                self._dispatcher,
                self._sockets,
                Measures(
                    state=self._state,
                    requests=self._dispatcher.metrics,
                    loop_lag=measured.loop_lag.distribution,
                    loop_idle_percent=lambda: 100 * measured.loop_idle.share,
                    host=measured.host,
                    started_ms=self._clock.now_ms(),
                ),
                self._undo,
            ).add_routes,
        )
        logger.info("metrics are served on port %d", endpoint.port)

    def _start_reporters(self, registry: Registry) -> None:
        """Create the configured metrics reporters, and report regularly. Raises InvalidPlugInError."""
        from broker.metrics.reporters import Reporters

        reporters = Reporters(
            new_reporters(self._config),
            registry,
            self._services.sliced_work,
            self._environment.new_threads,
            shows_partitions=lambda: self._config[properties.METRICS_PER_PARTITION],
            now_ms=self._clock.now_ms,
        )
        self._undo.push_async_callback(reporters.stop)
        interval_ms = self._config[properties.KAFKA_METRICS_POLLING_INTERVAL_SECS] * 1000
        repeat_until_closed(self._undo, Job("metrics reporters", interval_ms, reporters.report, initial_delay_ms=0))


class _FlushTimes(LogObserver):
    """Measures how long flushes of logs take."""

    def __init__(self, loop: asyncio.AbstractEventLoop, times: Histogram, clock: Clock) -> None:
        self._loop = loop
        self._times = times
        self._clock = clock

    def flushed(self, seconds: float) -> None:
        self._loop.call_soon_threadsafe(self._record, seconds)

    def _record(self, seconds: float) -> None:
        self._times.update(seconds * 1000, self._clock.monotonic_ms() / 1000)
