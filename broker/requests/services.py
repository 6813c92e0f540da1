"""The parts of one broker that handlers use, wired by `broker/assembly.py`.

Owns only the references, and the few methods that involve several parts. A handler declares in its class `Needs` which
of them it uses; `Services` satisfies all of these classes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from random import Random
from typing import TYPE_CHECKING, TypeVar

from base.clock import Clock
from base.dataclass import dataclass
from broker.cluster.control_channels import ControlChannels
from broker.cluster.control_requests import ControlDoor
from broker.cluster.controller_link import ControllerLink
from broker.cluster.features import ClusterFeatures
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.not_hosted import why_not_hosted
from broker.cluster.peers import BrokerPeers
from broker.cluster.topic_configs import TopicConfigs
from broker.cluster.topics import TopicAdministration
from broker.coordination.producer_ids import ProducerIds
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_configs import GroupConfigs
from broker.groups.legacy_offsets import LegacyOffsets
from broker.loop.cpu_pool import CpuPool
from broker.loop.slices import SlicedWork
from broker.loop.subscribers import Subscribers
from broker.network.unsent_responses import UnsentResponses
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.enforcement import EnforcedQuotas
from broker.replica.appends import Appends
from broker.replica.assigned_replicas import AssignedReplicas
from broker.replica.directory_moves import DirectoryMoves
from broker.replica.fetch_service import FetchService
from broker.replica.fetch_sessions import FetchSessionCache
from broker.replica.fetchers import ReplicaFetchers
from broker.replica.isr_changes import IsrChanges
from broker.replica.manager import ReplicaManager
from broker.replica.transaction_verification import TransactionVerifier
from broker.security.acl_store import AclStore
from broker.security.authorizer import Authorizer
from broker.security.delegation_tokens import DelegationTokens
from broker.security.scram_credentials import ScramCredentials
from broker.settings.config_changes import ConfigChanges
from broker.settings.policies import Policies
from broker.telemetry.client_instances import ClientInstances
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.late import LateTransactions
from broker.transactions.marker_writer import MarkerWriter
from config.broker import BrokerConfig
from controller.controller import Controller
from protocol.api import Api
from protocol.errors import KafkaError
from protocol.internal_topics import INTERNAL_TOPICS
from storage.manager.log_manager import LogManager

if TYPE_CHECKING:
    from broker.share.parts import ShareParts
    from controller.tree.leader_states import LeaderStates

T = TypeVar("T")


@dataclass(slots=True)
class Services:
    """The parts of one broker."""

    broker_id: int
    config: BrokerConfig
    clock: Clock
    random: Random
    metadata_cache: MetadataCache
    metadata_changes: Subscribers[[set[str]]]
    """Notified of the topics that an UpdateMetadata has changed, after it is applied."""
    peers: BrokerPeers
    control_door: ControlDoor
    control_channels: ControlChannels
    controller: Controller
    controller_link: ControllerLink
    log_manager: LogManager
    replica_manager: ReplicaManager
    assigned_replicas: AssignedReplicas
    appends: Appends
    directory_moves: DirectoryMoves
    isr_changes: IsrChanges
    leader_states: LeaderStates | None
    """The states that this broker writes as a leader; None if the controller writes them."""
    fetchers: ReplicaFetchers
    fetch_sessions: FetchSessionCache
    fetch_service: FetchService
    topics: TopicAdministration
    topic_configs: TopicConfigs
    config_changes: ConfigChanges
    client_instances: ClientInstances
    group_configs: GroupConfigs
    policies: Policies
    client_quotas: ClientQuotas
    enforced_quotas: EnforcedQuotas
    scram_credentials: ScramCredentials
    authorizer: Authorizer
    acls: AclStore
    delegation_tokens: DelegationTokens
    producer_ids: ProducerIds
    groups: GroupCoordinator
    share: Callable[[], ShareParts]
    """Returns what serves share groups, made at the first call."""
    legacy_offsets: LegacyOffsets
    transactions: TransactionCoordinator
    verifier: TransactionVerifier
    marker_writer: MarkerWriter
    late_transactions: LateTransactions
    blocking: Executor
    cpu_pool: CpuPool
    sliced_work: SlicedWork
    unsent_responses: UnsentResponses
    features: ClusterFeatures
    served_apis: Mapping[int, Api]
    """The APIs that this broker serves, by key, each with the versions that it serves."""
    listed_apis: Sequence[Api]
    """Those that ApiVersions lists, ordered by key: all, or with `advertised.kafka.version` those of a release."""
    internal_topics: frozenset[str] = INTERNAL_TOPICS

    def why_not_hosted(self, topic: str, partition: int) -> KafkaError:
        """Return the error for a request to a partition of which no replica is served here."""
        return why_not_hosted(self.replica_manager, self.metadata_cache, topic, partition)

    def in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work`, which may wait for a disk, in a thread."""
        return asyncio.get_running_loop().run_in_executor(self.blocking, work)
