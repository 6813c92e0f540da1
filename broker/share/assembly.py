"""Builds what serves share groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.cluster.assembly import ClusterView
from broker.cluster.peers import SHARE_STATES, Link
from broker.cluster.topics import TopicAdministration
from broker.coordination.background import sleep
from broker.coordination.replicated_log import ReplicatedLog
from broker.foundation import Foundation
from broker.network.unsent_responses import UnsentResponses
from broker.replica.assembly import HostedReplicas
from broker.share.links import StateLinks
from broker.share.machine.sessions import ShareSessions
from broker.share.parts import ShareParts
from broker.share.share_fetch import ShareFetchService
from broker.share.shared_partition import SharedPartitions
from broker.share.states import ShareStates
from broker.share.terms import ShareTerms
from config import broker_properties as properties
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC
from protocol.records.compression import Compression

ROUND_TRIP_MS_MAX: Final = 2000
"""How long a request to another share coordinator may take beyond the time that a write may wait for replicas."""


def serve_share_groups(
    on: Foundation,
    view: ClusterView,
    replicas: HostedReplicas,
    topics: TopicAdministration,
    unsent_responses: UnsentResponses,
    terms: Callable[[str], ShareTerms],
) -> ShareParts:
    """Return the parts. The caller lets the states follow the leadership of their partitions."""
    config = on.config
    log = ReplicatedLog(
        SHARE_GROUP_STATE_TOPIC,
        replicas.manager,
        replicas.own_appends,
        view.metadata,
        on.clock,
        on.in_thread,
        view.peers.connect,
    )
    states = ShareStates(
        log,
        on.clock,
        topics.ensure_internal,
        load_buffer_size=config[properties.SHARE_COORDINATOR_LOAD_BUFFER_SIZE],
        write_timeout_ms=config[properties.SHARE_COORDINATOR_WRITE_TIMEOUT_MS],
        compression=Compression(config[properties.SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC]),
    )
    links = StateLinks(
        on.broker_id,
        states,
        view.metadata,
        lambda coordinator_id: view.peers.connect_as(
            f"Persister-client-{on.broker_id}", Link(SHARE_STATES, coordinator_id), asks_versions=True
        ),
        on.clock,
        partial(sleep, on.timer, on.clock),
        on.sliced_work.pause,
        timeout_ms=config[properties.SHARE_COORDINATOR_WRITE_TIMEOUT_MS] + ROUND_TRIP_MS_MAX,
    )
    sessions = ShareSessions(config[properties.GROUP_SHARE_MAX_SHARE_SESSIONS])
    partitions = SharedPartitions(
        links, sessions, replicas.manager, terms, on.timer, on.clock, on.in_thread, on.sliced_work
    )
    fetches = ShareFetchService(
        partitions, replicas.manager, unsent_responses, on.clock, on.sliced_work.pause, on.in_thread
    )
    return ShareParts(states, links, partitions, sessions, fetches)
