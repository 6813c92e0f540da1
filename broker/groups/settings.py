"""The broker's settings for groups, read once at start.

Owns: the names of the settings and their units. Must not know: how the coordinator uses them.
"""

from __future__ import annotations

from dataclasses import field

from base.dataclass import dataclass
from broker.groups.batches import StoredForm
from broker.groups.machine.rebalance import GroupSettings
from config import broker_properties as rows
from config.broker import BrokerConfig
from protocol.records.compression import Compression

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Limits and times of the group coordinator, with the defaults of Kafka's properties."""

    group: GroupSettings = field(default_factory=GroupSettings)
    session_timeout_min_ms: int = 6000
    session_timeout_max_ms: int = 1_800_000
    offset_metadata_size_max: int = 4096
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5000
    load_buffer_size: int = 5_242_880
    form: StoredForm = StoredForm()

    @classmethod
    def from_config(cls, config: BrokerConfig) -> CoordinatorSettings:
        return cls(
            group=GroupSettings(
                max_size=config[rows.GROUP_MAX_SIZE],
                initial_rebalance_delay_ms=config[rows.GROUP_INITIAL_REBALANCE_DELAY_MS],
            ),
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
