"""The names that objects had in Kafka 0.8 and later releases, and the present ones.

Owns the tables. Must not know how objects are read. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from broker.metrics.object_names import NamePattern

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AllTopicsMessagesInPerSec": "MessagesInPerSec",
        "AllTopicsBytesInPerSec": "BytesInPerSec",
        "AllTopicsBytesOutPerSec": "BytesOutPerSec",
        "ISRShrinksPerSec": "IsrShrinksPerSec",
        "ISRExpandsPerSec": "IsrExpandsPerSec",
    }
)
REQUESTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Fetch-Consumer": "FetchConsumer",
        "Fetch-consumer": "FetchConsumer",
        "Fetch-Follower": "FetchFollower",
        "Fetch-follower": "FetchFollower",
        "Offsets": "ListOffsets",
        "GroupCoordinator": "FindCoordinator",
    }
)
REQUEST_NAMES: Final[Mapping[str, str]] = MappingProxyType({"QueueTimeMs": "RequestQueueTimeMs"})
PURGATORIES: Final[Mapping[str, str]] = MappingProxyType(
    {"ProducerRequestPurgatory": "Produce", "FetchRequestPurgatory": "Fetch"}
)
_REQUEST = re.compile(
    r"(?P<request>[A-Za-z]+(?:-[A-Za-z]+)?)-"
    r"(?P<name>RequestsPerSec|TotalTimeMs|QueueTimeMs|RequestQueueTimeMs|LocalTimeMs|RemoteTimeMs|ResponseSendTimeMs)"
)
_CLIENT = re.compile(r"(?P<client>.+)-(?P<name>MaxLag|ConsumerLag)")


def present_name(wanted: NamePattern) -> NamePattern:
    """Return the present name of what `wanted` names; `wanted` itself if it is not an old name."""
    for rule in _RULES:
        wanted = rule(wanted)
    return wanted


def _renamed(wanted: NamePattern) -> NamePattern:
    name = wanted.properties.get("name", "")
    return _with(wanted, name=NAMES[name]) if name in NAMES else wanted


def _purgatory(wanted: NamePattern) -> NamePattern:
    of = PURGATORIES.get(wanted.properties.get("type", ""))
    return wanted if of is None else _with(wanted, type="DelayedOperationPurgatory", delayedOperation=of)


def _request_prefix(wanted: NamePattern) -> NamePattern:
    found = _REQUEST.fullmatch(wanted.properties.get("name", ""))
    if found is None or wanted.properties.get("type") != "RequestMetrics":
        return wanted
    return _with(wanted, name=found["name"], request=found["request"])


def _request(wanted: NamePattern) -> NamePattern:
    properties = wanted.properties
    if properties.get("type") != "RequestMetrics":
        return wanted
    changes = {}
    if properties.get("request") in REQUESTS:
        changes["request"] = REQUESTS[properties["request"]]
    if properties.get("name") in REQUEST_NAMES:
        changes["name"] = REQUEST_NAMES[properties["name"]]
    if properties.get("name") == "RequestsPerSec" and "version" not in properties and "request" in properties:
        changes["version"] = "*"
    return _with(wanted, **changes)


def _client_prefix(wanted: NamePattern) -> NamePattern:
    found = _CLIENT.fullmatch(wanted.properties.get("name", ""))
    if found is None:
        return wanted
    changes = {"name": found["name"], "clientId": found["client"]}
    if found["name"] == "ConsumerLag":
        changes |= {"type": "FetcherLagMetrics", "topic": "*", "partition": "*"}
    return _with(wanted, **changes)


def _with(wanted: NamePattern, **changes: str) -> NamePattern:
    return replace(wanted, properties={**wanted.properties, **changes}) if changes else wanted


_RULES: Final[tuple[Callable[[NamePattern], NamePattern], ...]] = (
    _renamed,
    _purgatory,
    _request_prefix,
    _request,
    _client_prefix,
)
