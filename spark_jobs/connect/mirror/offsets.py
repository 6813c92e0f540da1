"""The check of offsets that a user sets for a connector (KIP-875).

Owns what is a valid part of a source, and the texts of errors. Must not know connectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spark_jobs.connect.base.errors import ConnectError

PARTITION_KEY: Final = "partition"
OFFSET_KEY: Final = "offset"
_INDEX_MAX: Final = 2**31 - 1


def require_text(partition: Mapping[str, Any], *keys: str) -> None:
    """Raise ConnectError unless each key of a source partition has a string."""
    for key in keys:
        value = _required(partition, key)
        if not isinstance(value, str):
            raise ConnectError(
                f"Source partition {partition} has an invalid value {value} for the '{key}' key: expected a string"
            )


def require_index(partition: Mapping[str, Any]) -> None:
    """Raise ConnectError unless the source partition has the number of a partition."""
    value = _required(partition, PARTITION_KEY)
    if type(value) is not int or not 0 <= value <= _INDEX_MAX:
        raise ConnectError(
            f"Source partition {partition} has an invalid value {value} for the '{PARTITION_KEY}' key: expected an "
            f"integer from 0 to {_INDEX_MAX}"
        )


def check_offset(partition: Mapping[str, Any], offset: Mapping[str, Any], *, is_zero: bool = False) -> None:
    """Raise ConnectError unless a source offset has an offset of a topic; of connectors that need none, zero."""
    value = offset.get(OFFSET_KEY)
    expected = "0" if is_zero else "an integer of 0 or more"
    if type(value) is not int or value < 0 or (is_zero and value):
        raise ConnectError(
            f"Source offset {offset} for source partition {partition} has an invalid value {value} for the "
            f"'{OFFSET_KEY}' key: expected {expected}"
        )


def _required(partition: Mapping[str, Any], key: str) -> Any:
    if key not in partition:
        raise ConnectError(f"Source partition {partition} is missing the '{key}' key, which is required")
    return partition[key]
