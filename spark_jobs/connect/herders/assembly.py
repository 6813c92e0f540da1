"""Builds the herder of a worker from its settings: alone, or as a member of a group.

Owns which stores and which group belong to which kind of worker. Must not know what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.group.member import Member, Settings, protocols_up_to
from spark_jobs.connect.herders.groups import Alone, Group
from spark_jobs.connect.herders.herder import Herder
from spark_jobs.connect.stores.configs import MemoryConfigs, TopicConfigs
from spark_jobs.connect.stores.offsets import FileOffsets, TopicOffsets
from spark_jobs.connect.stores.states import MemoryStates, TopicStates
from spark_jobs.connect.stores.topic_log import OnRecord, TopicLog
from spark_jobs.connect.worker.clients import PRODUCER_DEFAULTS
from spark_jobs.connect.worker.plugins import Plugins
from spark_jobs.connect.worker.settings import WorkerSettings, for_library, with_prefix
from tools.base.command_line import UsageError
from tools.client.bootstrap import parse_bootstrap
from tools.client.client_security import client_security


def standalone_herder(settings: WorkerSettings, plugins: Plugins, *, worker_id: str, url: str) -> Herder:
    return Herder(
        settings,
        plugins,
        worker_id=worker_id,
        url=url,
        configs=MemoryConfigs(),
        states=MemoryStates(),
        offsets=FileOffsets(Path(settings["offset.storage.file.filename"])),
        new_group=lambda herder: Alone(url, herder),
    )


def distributed_herder(
    settings: WorkerSettings,
    plugins: Plugins,
    *,
    worker_id: str,
    url: str,
    namespace: str = "",
    on_lead: Callable[[Herder], None] | None = None,
) -> Herder:
    """See `Herder` for the arguments. Raises ConfigError for settings of clients that are invalid."""
    try:
        bootstrap = parse_bootstrap(settings["bootstrap.servers"])
        security = client_security(settings.client("admin"))
    except UsageError as error:
        raise ConfigError(str(error)) from error
    member = Settings(
        group_id=settings.group_id,
        url=url,
        protocols=protocols_up_to(settings["connect.protocol"]),
        session_timeout_ms=settings["session.timeout.ms"],
        rebalance_timeout_ms=settings["rebalance.timeout.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        delay_max_ms=settings["scheduled.rebalance.max.delay.ms"],
        client_id=settings["client.id"] or f"connect-{worker_id}",
    )

    def new_group(herder: Herder) -> Group:
        return Member(member, bootstrap, security, herder)

    return Herder(
        settings,
        plugins,
        worker_id=worker_id,
        url=url,
        configs=TopicConfigs(_new_log(settings, "config", partitions=1)),
        states=TopicStates(_new_log(settings, "status", partitions=settings["status.storage.partitions"])),
        offsets=TopicOffsets(_new_log(settings, "offset", partitions=settings["offset.storage.partitions"])),
        new_group=new_group,
        namespace=namespace,
        on_lead=on_lead,
    )


def _new_log(settings: WorkerSettings, what: str, *, partitions: int) -> Callable[[OnRecord], TopicLog]:
    prefix = f"{what}.storage."
    own = {f"{prefix}{name}" for name in ("topic", "replication.factor", "partitions")}
    config = with_prefix({key: value for key, value in settings.given.items() if key not in own}, prefix)
    isolation = {"isolation.level": "read_committed"} if settings.exactly_once else {}

    def library(kind: str, more: dict[str, str]) -> dict[str, Any]:
        return for_library({**settings.client(kind), **more}, is_consumer=kind == "consumer")

    # A topic's records are read in the order of writing: one request at a time keeps it when one is repeated.
    # What is written while no broker is reached waits for it without end: a state must not be lost.
    producer = {
        "acks": "all",
        "delivery.timeout.ms": PRODUCER_DEFAULTS["delivery.timeout.ms"],
        "enable.idempotence": "false",
        "max.in.flight.requests.per.connection": "1",
    }

    def new(on_record: OnRecord) -> TopicLog:
        return TopicLog(
            settings[f"{prefix}topic"],
            client=library("admin", {}),
            consumer=library("consumer", isolation),
            producer={**library("producer", producer), "linger.ms": 0},
            partitions=partitions,
            replication_factor=settings[f"{prefix}replication.factor"],
            config=config,
            on_record=on_record,
        )

    return new
