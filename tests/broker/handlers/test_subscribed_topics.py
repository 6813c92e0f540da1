"""The names that a heartbeat subscribes to: their limits, and permissions."""

from __future__ import annotations

import pytest

from base.pause import AT_ONCE, Awaited, never, whole
from broker.handlers.subscribed_topics import CHARACTERS_MAX, NAMES_MAX, visible_names
from protocol.errors import KafkaError


def test_names_are_checked_one_by_one_with_pauses() -> None:
    pauses = []

    def pause() -> Awaited:
        pauses.append(1)
        return AT_ONCE

    assert whole(visible_names(["a", "b", "a"], lambda _: True, pause)) == ("a", "b", "a")
    assert len(pauses) == 3
    assert whole(visible_names(None, lambda _: True, pause)) is None


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["a"] * (NAMES_MAX + 1), "INVALID_REQUEST: SubscribedTopicNames has 30001 names, expected at most 30000"),
        (["a" * CHARACTERS_MAX, "b"], "INVALID_REQUEST: SubscribedTopicNames has more than 1048576 characters"),
        (["a", "hidden"], "TOPIC_AUTHORIZATION_FAILED"),
    ],
    ids=["names", "characters", "hidden"],
)
def test_names_that_are_too_many_or_hidden_are_refused(names: list[str], error: str) -> None:
    with pytest.raises(KafkaError, match=error):
        whole(visible_names(names, lambda name: name != "hidden", never))
