"""What is set of a share group (KIP-932).

Owns: how it follows from the settings of the group and of the broker. Must not know: where these are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.share.machine.deliveries import DeliveryLimits
from config import broker_properties as broker
from config import group as rows
from config.broker import BrokerConfig


class ShareTerms(NamedTuple):
    """The settings of one share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    limits: DeliveryLimits
    auto_offset_reset: str
    """See `config.group.SHARE_AUTO_OFFSET_RESET`."""
    read_committed: bool


def share_terms(config: BrokerConfig, settings: Mapping[str, str]) -> ShareTerms:
    """Return the settings of a group of which `settings` are set. Raises ConfigError."""
    return ShareTerms(
        rows.value_of_group(config, settings, rows.SHARE_SESSION_TIMEOUT_MS),
        rows.value_of_group(config, settings, rows.SHARE_HEARTBEAT_INTERVAL_MS),
        DeliveryLimits(
            config[broker.GROUP_SHARE_DELIVERY_COUNT_LIMIT],
            config[broker.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS],
            rows.value_of_group(config, settings, rows.SHARE_RECORD_LOCK_DURATION_MS),
        ),
        rows.text_of_group(settings, rows.SHARE_AUTO_OFFSET_RESET),
        rows.text_of_group(settings, rows.SHARE_ISOLATION_LEVEL) == rows.READ_COMMITTED,
    )
