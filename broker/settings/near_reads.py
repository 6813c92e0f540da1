"""The class of `replica.selector.class` (KIP-392): one of Kafka's, which the broker has itself, or a Python class.

Owns how the setting becomes an object. Must not know how a replica is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from broker.cluster.metadata_cache import BrokerNode
from broker.replica.near_reads import NearReads, RackAwareSelector, ReplicaSelector
from broker.settings.plug_ins import configured_plug_in
from config import broker_properties as rows
from config.broker import BrokerConfig


def near_reads(
    config: BrokerConfig,
    broker_id: int,
    brokers: Callable[[], Mapping[int, BrokerNode]],
    monotonic_ms: Callable[[], int],
) -> NearReads | None:
    """Return what chooses near replicas; None if consumers read from leaders. Raises InvalidPlugInError."""
    name = config[rows.REPLICA_SELECTOR_CLASS]
    if name is None or name == rows.LEADER_SELECTOR:
        return None
    selector: ReplicaSelector = RackAwareSelector()
    if name != rows.RACK_AWARE_SELECTOR:
        selector = cast(ReplicaSelector, configured_plug_in(config, rows.REPLICA_SELECTOR_CLASS, name, "select"))
    return NearReads(selector, broker_id, brokers, monotonic_ms)
