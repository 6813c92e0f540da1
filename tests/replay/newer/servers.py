"""The two servers of these cases, with the same settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.replay.newer.conversation import Talk
from tests.support.apache_kafka import kraft_jars
from tests.support.broker import BrokerProcess
from tests.support.java import compiled
from tests.support.kraft_node import NEWER_GROUPS, KraftNode, empty_node

REPORTER: Final = Path(__file__).with_name("AnyTelemetry.java")
SETTINGS: Final = {
    **NEWER_GROUPS,
    "group.consumer.max.size": "4",
    "group.share.max.size": "10",
    "group.share.max.share.sessions": "10",
    "group.share.partition.max.record.locks": "100",
    "group.share.delivery.count.limit": "3",
    "auto.create.topics.enable": "false",
}


@contextmanager
def kafka(folder: Path) -> Iterator[int]:
    """Start Apache Kafka 4.1 in a folder; return its port."""
    empty_node(folder / "data", features={"share.version": 1})
    libraries = kraft_jars()
    reporter = compiled(REPORTER, libraries, libraries.with_name("classes"))
    settings = {**SETTINGS, "metric.reporters": REPORTER.stem}
    with KraftNode(folder, str(folder / "data"), overrides=settings, classes=(reporter,)) as node:
        _coordinate(node.port)
        yield node.port


@contextmanager
def milena(folder: Path) -> Iterator[int]:
    """Start Milena in a folder; return its port."""
    with BrokerProcess(folder, SETTINGS) as broker:
        _coordinate(broker.port)
        yield broker.port


def _coordinate(port: int) -> None:
    """Return when there are coordinators of groups and of transactions, and of share groups."""
    with Talk(port) as talk:
        for kind, key in ((0, "group"), (1, "transaction"), (2, "group:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            talk.set_up(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]),
                until=lambda response: response.coordinators[0].error_code == 0,
            )
        talk.set_up(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)]),
            until=lambda response: response.groups[0].error_code == 0,
        )
        talk.set_up(
            InitProducerIdRequest(transactional_id="transaction", transaction_timeout_ms=10_000),
            until=lambda response: response.error_code == 0,
        )
