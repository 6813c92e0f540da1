"""Requests that only brokers may send.

Owns who counts as a broker. Must not know what is requested.

As in Kafka, ACLs decide, by the permission for ClusterAction. Without an authorizer the listener decides: addresses for
clients alone do not serve these requests.
"""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from broker.security.authorizer import Authorizer
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError


def require_broker(config: BrokerConfig, authorizer: Authorizer, context: RequestContext) -> None:
    """Note that a broker has sent a request, which `authorization` has allowed if there is an authorizer.

    Raises KafkaError(CLUSTER_AUTHORIZATION_FAILED) if the request came on a listener that brokers do not use.
    """
    if not authorizer.is_active and not is_listener_of_brokers(config, context.listener):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    context.is_of_broker = True


def is_listener_of_brokers(config: BrokerConfig, listener: str) -> bool:
    control_plane = config.control_plane_listener
    return listener == config.inter_broker_listener.name or (
        control_plane is not None and listener == control_plane.name
    )
