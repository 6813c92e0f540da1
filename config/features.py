"""Features of Kafka 4 that a cluster finalizes at a level (KIP-584).

Owns their names and levels. Must not know who supports them, or what a level means.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TRANSACTION_VERSION: Final = "transaction.version"

FEATURES: Mapping[str, range] = MappingProxyType({TRANSACTION_VERSION: range(3)})
"""The levels of each feature. The highest is finalized where nobody has chosen another."""

NO_FEATURES: Mapping[str, range] = MappingProxyType({})
