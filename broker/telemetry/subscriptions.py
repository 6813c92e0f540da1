"""Subscriptions to metrics of clients: their settings, and the clients that they match.

Owns what a valid subscription is. Pure. Must not know where subscriptions are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from base import re2_patterns
from config.client_metrics import CLIENT_METRICS_PROPERTIES, INTERVAL_MS, MATCH, METRICS
from config.definition import ConfigError
from protocol.errors import ErrorCode, KafkaError

ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What is known of a client that pushes metrics."""
PATTERN_LENGTH_MAX: Final = 1000


class Subscription(NamedTuple):
    """What some clients are asked to push."""

    settings: Mapping[str, str]
    """The texts that were set, by name."""
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Callable[[str], bool]]
    """The test of the whole text of an attribute."""

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Return whether a client with these attributes is meant. An attribute that it lacks matches no pattern."""
        return all((text := attributes[name]) is not None and is_match(text) for name, is_match in self.match.items())


def subscription_of(name: str, settings: Mapping[str, str]) -> Subscription:
    """Return the subscription with these settings.

    Raises:
        KafkaError: INVALID_REQUEST for an empty name, an unknown setting and a wrong interval; INVALID_CONFIG for a
            value that is no number, and for a pattern.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key in settings:
        if key not in CLIENT_METRICS_PROPERTIES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
    metrics = METRICS.parse(settings[METRICS.name]) if METRICS.name in settings else METRICS.default
    match = MATCH.parse(settings[MATCH.name]) if MATCH.name in settings else MATCH.default
    return Subscription(dict(settings), metrics, _interval_ms(settings), dict(_patterns(match)))


def _interval_ms(settings: Mapping[str, str]) -> int:
    text = settings.get(INTERVAL_MS.name)
    if text is None:
        return INTERVAL_MS.default
    try:
        return INTERVAL_MS.parse(text)
    except ConfigError as error:
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text.strip(), re.ASCII):
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        expected = "interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Invalid value {text} for {INTERVAL_MS.name}, {expected}"
        ) from error


def _patterns(match: tuple[str, ...]) -> Iterator[tuple[str, Callable[[str], bool]]]:
    for text in match:
        attribute, equals, pattern = text.partition("=")
        attribute, pattern = attribute.strip(), pattern.strip()
        is_valid = attribute in ATTRIBUTES and equals and pattern and "=" not in pattern
        if not is_valid or len(pattern) > PATTERN_LENGTH_MAX:
            raise _illegal(text)
        try:
            yield attribute, re2_patterns.matcher(pattern)
        except ValueError as error:
            raise _illegal(text) from error


def _illegal(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
