"""The broker's settings for transactions, read once at start.

Owns: the names of the settings and their units. Must not know: how the coordinator uses them.
"""

from __future__ import annotations

from base.dataclass import dataclass
from config import broker_properties as rows
from config.broker import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits and times of the transaction coordinator, with the defaults of Kafka's properties."""

    timeout_max_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    timeout_check_interval_ms: int = 10_000
    expiry_check_interval_ms: int = 3_600_000
    load_buffer_size: int = 5_242_880

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            timeout_max_ms=config[rows.TRANSACTION_MAX_TIMEOUT_MS],
            id_expiration_ms=config[rows.TRANSACTIONAL_ID_EXPIRATION_MS],
            timeout_check_interval_ms=config[rows.TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS],
            expiry_check_interval_ms=config[rows.TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS],
            load_buffer_size=config[rows.TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE],
        )
