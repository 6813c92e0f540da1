"""The settings of groups of the consumer protocol (KIP-848), and of share groups (KIP-932).

Owns: how they are made, the assignors that the broker has itself, and regular expressions of subscriptions. Must not
know: groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from base import re2_patterns
from broker.groups.machine.consumer.assignors import Assignor, RangeAssignor, UniformAssignor
from broker.groups.machine.consumer.events import Timeouts
from broker.groups.machine.consumer.membership import ConsumerGroupSettings
from broker.groups.machine.consumer.refreshing import Rules
from broker.groups.machine.share.assignor import SimpleAssignor
from config import broker_properties as rows
from protocol.errors import ErrorCode, KafkaError

OWN_ASSIGNORS: Mapping[str, Assignor] = {
    UniformAssignor.name: UniformAssignor(),
    RangeAssignor.name: RangeAssignor(),
}


def consumer_group_settings(
    timeouts: Callable[[str], Timeouts] = lambda _group_id: Timeouts(),
    max_size: int = rows.INT_MAX,
    assignors: Mapping[str, Assignor] = OWN_ASSIGNORS,
) -> ConsumerGroupSettings:
    """Return the settings of all groups; `timeouts` returns those of one by its id."""
    return ConsumerGroupSettings(Rules(assignors, matcher), max_size, timeouts)


def share_group_settings(
    timeouts: Callable[[str], Timeouts] = lambda _group_id: Timeouts(), max_size: int = 200
) -> ConsumerGroupSettings:
    """Return the settings of all share groups; `timeouts` returns those of one by its id."""
    return ConsumerGroupSettings(Rules({SimpleAssignor.name: SimpleAssignor()}, matcher), max_size, timeouts)


def matcher(regex: str) -> Callable[[str], bool]:
    """Return the test of topics by a regular expression (RE2). Raises KafkaError: INVALID_REGULAR_EXPRESSION."""
    try:
        return re2_patterns.matcher(regex)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error
