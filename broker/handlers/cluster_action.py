"""Requests that only brokers may send.

Owns which listeners they are accepted on. Must not know what they request.

Kafka requires permission for ClusterAction. Until principals have permissions here, the listener decides: addresses for
clients alone do not serve these requests.
"""

from __future__ import annotations

from broker.handlers.request_context import RequestContext
from config.broker import BrokerConfig
from protocol.errors import ErrorCode, KafkaError


def require_broker(config: BrokerConfig, context: RequestContext) -> None:
    """Raise KafkaError(CLUSTER_AUTHORIZATION_FAILED) if the request came on a listener that brokers do not use."""
    control_plane = config.control_plane_listener
    if context.listener == config.inter_broker_listener.name:
        return
    if control_plane is None or context.listener != control_plane.name:
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
