"""Builds what clients may do by the configuration: changes of it, policies, permissions, credentials and quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.cluster.assembly import ClusterView
from broker.foundation import Foundation
from broker.groups.group_configs import GroupConfigs
from broker.quotas.client_quotas import ClientQuotas
from broker.quotas.enforcement import EnforcedQuotas
from broker.security.acl_store import AclStore
from broker.security.authorizer import Authorizer
from broker.security.delegation_tokens import DelegationTokens
from broker.security.scram_credentials import ScramCredentials
from broker.settings.component_settings import quota_defaults, quota_windows
from broker.settings.config_changes import ConfigChanges, ResourceType
from broker.settings.listener_security import delegation_token_secret, delegation_token_times, new_authorizer
from broker.settings.policies import Policies
from broker.telemetry.client_instances import ClientInstances
from broker.telemetry.stored_subscriptions import StoredSubscriptions
from config import broker_properties as properties
from config.broker import BrokerConfig
from controller.store.state_store import StateStore

if TYPE_CHECKING:
    from broker.settings.own_entities import OwnEntities


@dataclass(frozen=True, slots=True)
class Reconfiguration:
    """The server's callbacks for settings that change while the broker runs."""

    topic: Callable[[str], Awaitable[None]]
    broker: Callable[[], Awaitable[None]]
    check_broker: Callable[[BrokerConfig], None]
    """Raises KafkaError for a configuration that cannot be put into effect."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Who may do what, and how users log in."""

    authorizer: Authorizer
    acls: AclStore
    scram_credentials: ScramCredentials
    delegation_tokens: DelegationTokens


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas that are stored, and those in effect."""

    client: ClientQuotas
    enforced: EnforcedQuotas


def config_changes(
    on: Foundation,
    view: ClusterView,
    policies: Policies,
    changed: Reconfiguration,
    instances: ClientInstances,
    group_configs: GroupConfigs,
) -> ConfigChanges:
    """Return the admin path of settings, of subscriptions for `instances` and of groups as well."""
    own_entities: dict[int, OwnEntities] = {}
    if on.config.has_own_metadata_store:
        own_entities[ResourceType.CLIENT_METRICS] = StoredSubscriptions(instances)
    if on.config.has_group_settings:
        own_entities[ResourceType.GROUP] = group_configs
    return ConfigChanges(
        on.broker_id,
        on.store,
        on.config,
        view.topic_configs,
        view.metadata,
        on.sliced_work,
        on_topic_changed=changed.topic,
        on_broker_changed=changed.broker,
        own_entities=own_entities,
        check_broker=changed.check_broker,
        check_policy=policies.check_change,
    )


def permissions(on: Foundation, acl_store: StateStore) -> Permissions:
    """Build the authorizer and the stores of credentials. `acl_store` is that of the authorizer."""
    authorizer = new_authorizer(on.config)
    return Permissions(
        authorizer,
        AclStore(acl_store, authorizer, on.sliced_work.pause),
        ScramCredentials(on.store, on.sliced_work),
        DelegationTokens(
            on.store, on.clock, on.random, delegation_token_secret(on.config), delegation_token_times(on.config)
        ),
    )


def quotas(on: Foundation) -> Quotas:
    """Build the quotas of clients."""
    config, new_callback = on.config, None
    if config[properties.CLIENT_QUOTA_CALLBACK_CLASS]:
        from broker.settings.quota_callback import quota_callback  # few brokers have one

        new_callback = quota_callback(config)
    enforced = EnforcedQuotas(
        on.store, quota_windows(config), on.clock.monotonic_ms, quota_defaults(config), new_callback
    )
    return Quotas(ClientQuotas(on.store, enforced.apply), enforced)
