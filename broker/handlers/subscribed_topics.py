"""The topics that a heartbeat subscribes its member to: how many there may be, and whether the client sees them.

Owns: the limits of a subscription, which the coordinator sorts and encodes in one step. Must not know: groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from base.pause import Pause, through
from protocol.errors import ErrorCode, KafkaError

NAMES_MAX: Final = 30_000
CHARACTERS_MAX: Final = 1_048_576
"""A subscription is one record, whose size message.max.bytes limits to 1 MiB by default."""


async def visible_names(
    names: Sequence[str] | None, may_see: Callable[[str], bool], pause: Pause
) -> tuple[str, ...] | None:
    """Return the names; pauses after each. Raises KafkaError: INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED."""
    if names is None:
        return None
    if len(names) > NAMES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"SubscribedTopicNames has {len(names)} names, expected at most {NAMES_MAX}. Use several groups.",
        )
    length = 0
    async for name in through(names, pause):
        length += len(name)
        if length > CHARACTERS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"SubscribedTopicNames has more than {CHARACTERS_MAX} characters. Use several groups.",
            )
        if not may_see(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return tuple(names)
