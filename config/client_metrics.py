"""The table of the settings of a subscription to metrics of clients (KIP-714).

Owns the rows. Must not know which clients exist.
"""

from collections.abc import Mapping
from types import MappingProxyType

from config.definition import ConfigType, Importance, Property, Rows, UpdateMode
from config.validators import Range

INTERVAL_MS_DEFAULT = 300_000

_integer = Rows[int](ConfigType.INT)
_string_list = Rows[tuple[str, ...]](ConfigType.LIST)

METRICS = _string_list(
    "metrics",
    (),
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    doc="Prefixes of the names of metrics that clients push; * for all.",
)
INTERVAL_MS = _integer(
    "interval.ms",
    INTERVAL_MS_DEFAULT,
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    Range(100, 3_600_000),
    doc="Milliseconds between two pushes of a client.",
)
MATCH = _string_list(
    "match",
    (),
    UpdateMode.CLUSTER_WIDE,
    Importance.MEDIUM,
    doc="What is true of the clients, as attribute=regular expression; empty for all clients.",
)

CLIENT_METRICS_PROPERTIES: Mapping[str, Property[object]] = MappingProxyType(
    {row.name: row for row in (METRICS, INTERVAL_MS, MATCH)}
)
