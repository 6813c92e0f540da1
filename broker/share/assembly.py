"""Builds what serves share groups."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.assembly import ClusterView
from broker.cluster.internal_topics import SHARE_GROUP_STATE_TOPIC
from broker.cluster.topics import TopicAdministration
from broker.coordination.replicated_log import ReplicatedLog
from broker.foundation import Foundation
from broker.network.unsent_responses import UnsentResponses
from broker.replica.assembly import HostedReplicas
from broker.share.machine.sessions import ShareSessions
from broker.share.parts import ShareParts
from broker.share.share_fetch import ShareFetchService
from broker.share.shared_partition import SharedPartitions
from broker.share.states import ShareStates
from broker.share.terms import ShareTerms
from config import broker_properties as properties
from protocol.records.compression import Compression


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
    partitions = SharedPartitions(states, replicas.manager, terms, on.timer, on.clock, on.in_thread, on.sliced_work)
    fetches = ShareFetchService(
        partitions, replicas.manager, unsent_responses, on.clock, on.sliced_work.pause, on.in_thread
    )
    sessions = ShareSessions(config[properties.GROUP_SHARE_MAX_SHARE_SESSIONS])
    return ShareParts(states, partitions, sessions, fetches)
