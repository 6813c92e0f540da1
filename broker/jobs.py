"""The table of periodic jobs and their intervals.

Owns the intervals, and whether a job runs on the event loop or in a thread. Must not know how any job works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from base.clock import Clock
from broker.loop.periodic_jobs import Job, PeriodicJobs
from broker.loop.slices import SlicedWork
from broker.quotas.enforcement import EnforcedQuotas
from broker.replica.manager import ReplicaManager
from broker.security.delegation_tokens import DelegationTokens
from broker.transactions.late import LateTransactions
from config import broker_properties as properties
from config.broker import BrokerConfig
from storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from broker.security.remote_keys import RemoteKeys
    from controller.tree.leader_states import LeaderStates

T = TypeVar("T")

RETENTION = "retention"
WRITEBACK_INTERVAL_MS = 200
REMOVAL_INTERVAL_MS = 1_000
IDLE_RELEASE_INTERVAL_MS = 30_000
LATE_TRANSACTIONS_CHECK_INTERVAL_MS = 60_000
FLUSH_CHECK_INTERVAL_MS_MAX = 1_000
STORE_CHECK_INTERVAL_MS = 10_000
UNREAD_OVERRIDES_INTERVAL_MS = 30_000
ISR_NOTIFICATION_CHECK_INTERVAL_MS = 2_500
IDLE_QUOTAS_INTERVAL_MS = 60_000
KEY_SET_CHECK_INTERVAL_MS = 5_000
"""A token with an unknown key has the keys read again, so this bounds how often clients can cause that."""


def repeat_until_closed(undo: AsyncExitStack, *jobs: Job) -> PeriodicJobs:
    """Run the jobs in their intervals until `undo` is closed."""
    repeated = PeriodicJobs(jobs)
    repeated.start()
    undo.push_async_callback(repeated.stop)
    return repeated


def storage_jobs(
    config: BrokerConfig,
    clock: Clock,
    logs: LogManager,
    are_dirty_pages_many: Callable[[], bool],
    sliced_work: SlicedWork,
    background: Executor,
) -> list[Job]:
    """Return the jobs on logs. Work that waits for a disk runs in threads, the rest on the event loop."""

    async def on_loop(steps: Iterable[object]) -> None:
        for _ in steps:
            await sliced_work.pause()

    async def off_loop(work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(background, work)

    async def write_back() -> None:
        if are_dirty_pages_many():
            await off_loop(logs.start_writeback)

    return [
        Job(
            RETENTION,
            config[properties.LOG_RETENTION_CHECK_INTERVAL_MS],
            lambda: logs.run_retention(clock.now_ms(), sliced_work.pause, off_loop),
            initial_delay_ms=config[properties.LOG_INITIAL_TASK_DELAY_MS],
        ),
        Job("removal", REMOVAL_INTERVAL_MS, lambda: off_loop(lambda: logs.remove_deleted(clock.now_ms()))),
        Job("names of deleted logs", REMOVAL_INTERVAL_MS, lambda: off_loop(logs.free_names)),
        Job(
            "flush",
            min(config[properties.LOG_FLUSH_SCHEDULER_INTERVAL_MS], FLUSH_CHECK_INTERVAL_MS_MAX),
            lambda: off_loop(lambda: logs.flush_due(clock.now_ms())),
        ),
        Job("writeback", WRITEBACK_INTERVAL_MS, write_back),
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
            config[properties.PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS],
            lambda: on_loop(logs.expire_producers(clock.now_ms(), config[properties.PRODUCER_ID_EXPIRATION_MS])),
        ),
        Job(
            "release of idle files",
            IDLE_RELEASE_INTERVAL_MS,
            lambda: logs.release_idle(sliced_work.pause, off_loop),
        ),
    ]


def replication_jobs(
    config: BrokerConfig, replicas: ReplicaManager, leader_states: LeaderStates | None, sliced_work: SlicedWork
) -> list[Job]:
    """Return the jobs of a leader with followers."""
    jobs = [
        Job(
            "isr-expiration",
            max(1, config[properties.REPLICA_LAG_TIME_MAX_MS] // 2),
            lambda: replicas.check_in_sync(sliced_work.pause),
        ),
    ]
    if leader_states is not None:
        jobs.append(Job("isr-change-propagation", ISR_NOTIFICATION_CHECK_INTERVAL_MS, leader_states.notify))
    return jobs


def settings_jobs(read_unread: Callable[[], Awaitable[None]]) -> list[Job]:
    """Return the jobs on settings of topics."""
    return [Job("overrides that could not be read", UNREAD_OVERRIDES_INTERVAL_MS, read_unread)]


def security_jobs(reload_stores: Callable[[], Awaitable[None]]) -> list[Job]:
    """Return the jobs of listeners with TLS."""
    return [Job("key stores and trust stores", STORE_CHECK_INTERVAL_MS, reload_stores)]


def quota_jobs(quotas: EnforcedQuotas) -> list[Job]:
    """Return the job that forgets the rates of clients that are gone."""

    async def purge() -> None:
        quotas.purge()

    return [Job("idle quotas", IDLE_QUOTAS_INTERVAL_MS, purge)]


def token_jobs(config: BrokerConfig, tokens: DelegationTokens, is_controller: Callable[[], bool]) -> list[Job]:
    """Return the job that removes expired delegation tokens. One broker of the cluster does it."""

    async def remove_expired() -> None:
        if is_controller():
            await tokens.remove_expired()

    interval_ms = config[properties.DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS]
    return [Job("expired delegation tokens", interval_ms, remove_expired)] if tokens.is_enabled else []


def key_set_jobs(config: BrokerConfig, clock: Clock, remote: Sequence[RemoteKeys], background: Executor) -> list[Job]:
    """Return the jobs that read the keys of each identity provider when that is due, and again after a failure."""
    if not remote:
        return []
    from broker.security.retry_pauses import RetryPauses  # on demand: most brokers have no identity provider

    refresh_ms = config[properties.SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS]
    pauses = RetryPauses(
        config[properties.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS],
        config[properties.SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS],
    )

    async def refresh(keys: RemoteKeys) -> None:
        while keys.is_due(now_ms := clock.monotonic_ms(), refresh_ms):
            await asyncio.get_running_loop().run_in_executor(background, keys.refresh, now_ms)
            pause_ms = pauses.after(keys.failure_count)
            if not pause_ms:
                break
            await asyncio.sleep(pause_ms / 1000)

    interval_ms = min(KEY_SET_CHECK_INTERVAL_MS, refresh_ms)
    return [
        Job(
            f"keys of {keys.url}",
            interval_ms,
            partial(refresh, keys),
            initial_delay_ms=pauses.after(keys.failure_count) or None,
        )
        for keys in remote
    ]


def transaction_jobs(clock: Clock, late: LateTransactions, sliced_work: SlicedWork) -> list[Job]:
    """Return the jobs that watch transactions independently of their coordinator."""
    return [
        Job(
            "late transactions",
            LATE_TRANSACTIONS_CHECK_INTERVAL_MS,
            lambda: late.check(clock.now_ms(), sliced_work.pause),
        )
    ]
