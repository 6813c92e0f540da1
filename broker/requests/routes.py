"""The table of APIs that this broker serves: API key -> handler module.

Owns which APIs and versions are served, not what they do: all whose messages are declared, except that a broker in a
cluster with ZooKeeper, or without a newer protocol of groups or transactions, serves what Kafka 3.9 does. ApiVersions
advertises exactly these. A handler module has the name of the module of its messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType, ModuleType

from broker.cluster.features import supported_features
from config.broker import BrokerConfig
from protocol.api import APIS, OF_CONSUMER_GROUPS, OF_SHARE_GROUPS, OF_TRANSACTIONS_2, Api

_HANDLERS: Mapping[int, str] = MappingProxyType({key: api.module for key, api in APIS.items()})


class _Handlers(Mapping[int, ModuleType]):
    """The handler modules by API key, each imported at its first use: most brokers never serve half of the APIs."""

    def __getitem__(self, key: int) -> ModuleType:
        return import_module(f"broker.handlers.{_HANDLERS[key]}")

    def __iter__(self) -> Iterator[int]:
        return iter(_HANDLERS)

    def __len__(self) -> int:
        return len(_HANDLERS)

    def __contains__(self, key: object) -> bool:
        return key in _HANDLERS


TABLE: Mapping[int, ModuleType] = _Handlers()


def served_apis(config: BrokerConfig) -> Mapping[int, Api]:
    """Return the APIs that a broker with these settings serves, by key, each with its versions."""
    return {
        key: api if not api.newer or _serves_newer(key, config) else replace(api, versions=api.with_zookeeper)
        for key, api in APIS.items()
        if api.with_zookeeper or _serves_newer(key, config)
    }


def _serves_newer(key: int, config: BrokerConfig) -> bool:
    """Return whether versions of an API are served that Kafka 3.9 in ZooKeeper mode does not list."""
    if key in OF_TRANSACTIONS_2:
        return bool(supported_features(config))
    if key in OF_SHARE_GROUPS:
        return "share" in config.group_protocols
    protocol = "consumer" if key in OF_CONSUMER_GROUPS else "classic"
    return config.has_own_metadata_store and protocol in config.group_protocols
