"""Metrics of the connections to other brokers, of the controller's queues, and of transactions that others verify.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from broker.cluster.control_channels import ControlChannels
from broker.cluster.peers import (
    ADD_PARTITIONS,
    ALTER_PARTITION,
    CONTROLLER_CHANNEL,
    FORWARDING,
    SHARE_STATES,
    BrokerPeers,
    Link,
)
from broker.metrics.metric import Kind, Metric, Sample, alone
from broker.metrics.subjects.cluster import event_times
from broker.network.outgoing import OutgoingConnection
from broker.replica.fetchers import PURPOSE as FETCHER
from broker.replica.transaction_verification import TransactionVerifier
from broker.transactions.marker_channels import PURPOSE as MARKERS


class _Group(NamedTuple):
    """The connections of one purpose, under the name of Kafka's metrics."""

    name: str
    tags: tuple[str, ...]
    values: Callable[[BrokerPeers, Link], tuple[str, ...]]
    text: str


def _of_peer(_: BrokerPeers, link: Link) -> tuple[str, ...]:
    return (str(link.broker_id),)


def _of_this_broker(peers: BrokerPeers, _: Link) -> tuple[str, ...]:
    return (str(peers.broker_id),)


def _of_fetcher(_: BrokerPeers, link: Link) -> tuple[str, ...]:
    return str(link.broker_id), link.purpose.removeprefix(FETCHER)


def _of_all(_: BrokerPeers, __: Link) -> tuple[str, ...]:
    return ()


GROUPS: Mapping[str, _Group] = MappingProxyType(
    {
        FETCHER: _Group("replica-fetcher-metrics", ("broker-id", "fetcher-id"), _of_fetcher, "fetchers to leaders"),
        CONTROLLER_CHANNEL: _Group(
            "controller-channel-metrics", ("broker-id",), _of_peer, "the controller to other brokers"
        ),
        ALTER_PARTITION: _Group(
            "alter-partition-metrics", ("BrokerId",), _of_this_broker, "this broker to the controller, about ISRs"
        ),
        FORWARDING: _Group(
            "forwarding-metrics", ("BrokerId",), _of_this_broker, "this broker to the controller, for all else"
        ),
        MARKERS: _Group("txn-marker-channel-metrics", (), _of_all, "coordinators of transactions to leaders"),
        ADD_PARTITIONS: _Group(
            "AddPartitionsManager-channel-metrics", (), _of_all, "leaders to coordinators of transactions"
        ),
        SHARE_STATES: _Group(
            "Persister-channel-metrics", (), _of_all, "leaders and coordinators of groups to share coordinators"
        ),
    }
)
"""By purpose, or by its part before the number of a fetcher."""

FACTS: tuple[tuple[Kind, str, str, Callable[[OutgoingConnection], int]], ...] = (
    (Kind.GAUGE, "connection-count", "Open connections", lambda it: int(it.is_connected)),
    (Kind.RATE, "connection-creation-rate", "Connections opened per second", lambda it: it.counts.opened),
    (Kind.RATE, "request-rate", "Requests sent per second", lambda it: it.counts.requests),
    (Kind.GAUGE, "request-total", "Requests sent", lambda it: it.counts.requests),
    (Kind.RATE, "response-rate", "Responses received per second", lambda it: it.counts.responses),
    (Kind.GAUGE, "response-total", "Responses received", lambda it: it.counts.responses),
    (Kind.RATE, "outgoing-byte-rate", "Bytes sent per second", lambda it: it.counts.sent_size),
    (Kind.GAUGE, "outgoing-byte-total", "Bytes sent", lambda it: it.counts.sent_size),
    (Kind.RATE, "incoming-byte-rate", "Bytes received per second", lambda it: it.counts.received_size),
    (Kind.GAUGE, "incoming-byte-total", "Bytes received", lambda it: it.counts.received_size),
)


def outgoing_metrics(peers: BrokerPeers) -> Iterator[Metric]:
    """Return the metrics of connections to other brokers. There are none while this broker is alone."""
    for purpose, group in GROUPS.items():
        bean = f"kafka.server:type={group.name}"
        of_group = partial(_connections, peers, purpose, group)
        for kind, attribute, text, fact in FACTS:
            yield Metric(
                kind, bean, f"{text}, from {group.text}.", partial(_sums, of_group, fact), group.tags, attribute
            )
        of_requests: tuple[tuple[str, str, Callable[[list[OutgoingConnection]], float]], ...] = (
            ("avg", "mean", _mean_request_size),
            ("max", "largest", lambda them: max(it.counts.request_size_max for it in them)),
        )
        for suffix, measure, of_them in of_requests:
            yield Metric(
                Kind.GAUGE,
                bean,
                f"The {measure} size of requests in bytes, from {group.text}.",
                partial(_of_each, of_group, of_them),
                group.tags,
                f"request-size-{suffix}",
            )


def queue_metrics(channels: ControlChannels) -> Iterator[Metric]:
    """Return the metrics of what the controller sends; they have no values on other brokers."""
    bean = "kafka.controller:type=ControllerChannelManager"
    yield Metric(
        Kind.GAUGE,
        f"{bean},name=TotalQueueSize",
        "Requests of the controller that brokers have not responded to.",
        alone(lambda: sum(size for _, size, _ in channels.queues())),
    )
    yield Metric(
        Kind.GAUGE,
        f"{bean},name=QueueSize",
        "The same for each broker.",
        lambda: [((str(broker_id),), size) for broker_id, size, _ in channels.queues()],
        ("broker-id",),
    )
    yield Metric(
        Kind.TIMER,
        f"{bean},name=RequestRateAndQueueTimeMs",
        "Time that requests of the controller waited for earlier ones.",
        lambda: [((str(broker_id),), event_times(times)) for broker_id, _, times in channels.queues()],
        ("broker-id",),
    )


def verification_metrics(verifier: TransactionVerifier) -> Iterator[Metric]:
    bean = "kafka.server:type=AddPartitionsToTxnManager"
    yield Metric(
        Kind.HISTOGRAM,
        f"{bean},name=VerificationTimeMs",
        "Time that other brokers took to verify that partitions are in a transaction.",
        alone(lambda: event_times(verifier.times)),
    )
    yield Metric(
        Kind.METER,
        f"{bean},name=VerificationFailureRate",
        "Partitions that were not verified to be in a transaction.",
        alone(lambda: verifier.failure_count),
    )


Connections = Mapping[tuple[str, ...], list[OutgoingConnection]]


def _connections(peers: BrokerPeers, purpose: str, group: _Group) -> Connections:
    """Return the connections of one group by the values of its tags."""
    found: dict[tuple[str, ...], list[OutgoingConnection]] = {}
    for connection, link in peers.connections():
        if link.purpose == purpose or (purpose == FETCHER and link.purpose.startswith(FETCHER)):
            found.setdefault(group.values(peers, link), []).append(connection)
    return found


def _sums(of_group: Callable[[], Connections], fact: Callable[[OutgoingConnection], int]) -> list[Sample]:
    return [(tags, sum(map(fact, them))) for tags, them in of_group().items()]


def _of_each(of_group: Callable[[], Connections], value: Callable[[list[OutgoingConnection]], float]) -> list[Sample]:
    return [(tags, value(them)) for tags, them in of_group().items()]


def _mean_request_size(them: list[OutgoingConnection]) -> float:
    requests = sum(it.counts.requests for it in them)
    return sum(it.counts.sent_size for it in them) / requests if requests else 0.0
