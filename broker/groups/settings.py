"""The broker's settings for groups, read once at start.

Owns: the names of the settings and their units. Must not know: how the coordinator uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache, partial
from typing import TYPE_CHECKING

from base.dataclass import dataclass
from broker.groups.batches import StoredForm
from broker.groups.machine.rebalance import GroupSettings
from config import broker_properties as rows
from config.broker import BrokerConfig
from protocol.records.compression import Compression

if TYPE_CHECKING:
    from broker.groups.machine.consumer.assignors import Assignor
    from broker.groups.machine.consumer.events import Timeouts
    from broker.groups.machine.consumer.membership import ConsumerGroupSettings

MINUTE_MS = 60_000
CONSUMER_PROTOCOL, SHARE_PROTOCOL = "consumer", "share"


@cache
def own_consumer_settings() -> ConsumerGroupSettings:
    """Return the defaults of groups of the consumer protocol."""
    from broker.groups.consumer_settings import consumer_group_settings  # on demand: no start waits for these modules

    return consumer_group_settings()


@cache
def own_share_settings() -> ConsumerGroupSettings:
    """Return the defaults of share groups."""
    from broker.groups.consumer_settings import share_group_settings  # on demand, as above

    return share_group_settings()


def _share_settings(config: BrokerConfig, timeouts: Callable[[str], Timeouts]) -> ConsumerGroupSettings:
    from broker.groups.consumer_settings import share_group_settings  # on demand, as above

    return share_group_settings(timeouts, config[rows.GROUP_SHARE_MAX_SIZE])


def _consumer_settings(
    config: BrokerConfig, assignors: Callable[[], Mapping[str, Assignor]], timeouts: Callable[[str], Timeouts]
) -> ConsumerGroupSettings:
    from broker.groups.consumer_settings import consumer_group_settings  # on demand, as above

    return consumer_group_settings(timeouts, config[rows.GROUP_CONSUMER_MAX_SIZE], assignors())


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Limits and times of the group coordinator, with the defaults of Kafka's properties."""

    group: GroupSettings = field(default_factory=GroupSettings)
    consumer: Callable[[], ConsumerGroupSettings] = own_consumer_settings
    """Returns the settings of groups of the consumer protocol, made when the first one is there."""
    share: Callable[[], ConsumerGroupSettings] = own_share_settings
    """Returns the settings of share groups, made when the first one is there."""
    serves_consumer_protocol: bool = False
    serves_share_groups: bool = False
    migration: str = "bidirectional"
    """Which conversions of groups are allowed, see `group.consumer.migration.policy`."""
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    offset_metadata_size_max: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5000
    load_buffer_size: int = 5_242_880
    form: StoredForm = StoredForm()

    @classmethod
    def from_config(
        cls,
        config: BrokerConfig,
        assignors: Callable[[], Mapping[str, Assignor]],
        timeouts: Callable[[str], Timeouts],
        share_timeouts: Callable[[str], Timeouts],
    ) -> CoordinatorSettings:
        """Return the settings of `config`.

        `timeouts` and `share_timeouts` return those of a group of the consumer protocol, and of a share group, by id.
        """
        return cls(
            group=GroupSettings(
                max_size=config[rows.GROUP_MAX_SIZE],
                initial_rebalance_delay_ms=config[rows.GROUP_INITIAL_REBALANCE_DELAY_MS],
            ),
            consumer=cache(partial(_consumer_settings, config, assignors, timeouts)),
            share=cache(partial(_share_settings, config, share_timeouts)),
            serves_share_groups=SHARE_PROTOCOL in config.group_protocols,
            serves_consumer_protocol=CONSUMER_PROTOCOL in config.group_protocols,
            migration=config[rows.GROUP_CONSUMER_MIGRATION_POLICY],
            session_timeout_min_ms=config[rows.GROUP_MIN_SESSION_TIMEOUT_MS],
            session_timeout_max_ms=config[rows.GROUP_MAX_SESSION_TIMEOUT_MS],
            offset_metadata_size_max=config[rows.OFFSET_METADATA_MAX_BYTES],
            offsets_retention_ms=config[rows.OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
            offsets_retention_check_interval_ms=config[rows.OFFSETS_RETENTION_CHECK_INTERVAL_MS],
            commit_timeout_ms=config[rows.OFFSETS_COMMIT_TIMEOUT_MS],
            load_buffer_size=config[rows.OFFSETS_LOAD_BUFFER_SIZE],
            form=StoredForm(
                Compression(config[rows.OFFSETS_TOPIC_COMPRESSION_CODEC]),
                config.inter_broker_protocol.offset_value,
                config.inter_broker_protocol.group_value,
            ),
        )
