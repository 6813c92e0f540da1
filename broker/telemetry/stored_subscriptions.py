"""Subscriptions to metrics of clients as entities with settings."""

from __future__ import annotations

from collections.abc import Mapping

from broker.telemetry.client_instances import ClientInstances
from config.definition import Property
from controller.tree.paths import CLIENT_METRICS_TYPE


class StoredSubscriptions:
    """The subscriptions in the store of a broker, for the clients of the broker."""

    entity_type = CLIENT_METRICS_TYPE

    def __init__(self, instances: ClientInstances) -> None:
        self._instances = instances

    def properties(self) -> Mapping[str, Property[object]]:
        from config.client_metrics import CLIENT_METRICS_PROPERTIES  # on demand: no start needs it

        return CLIENT_METRICS_PROPERTIES

    def check(self, name: str, settings: Mapping[str, str]) -> None:
        from broker.telemetry.subscriptions import subscription_of  # on demand, as above

        subscription_of(name, settings)

    def apply(self, name: str, settings: Mapping[str, str]) -> None:
        from broker.telemetry.subscriptions import subscription_of  # on demand, as above

        self._instances.subscribe(name, subscription_of(name, settings) if settings else None)
