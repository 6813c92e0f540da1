"""The attempts of a controlled shutdown: until nothing is led any more, and no longer than the settings say."""

import asyncio
from collections.abc import Collection

import pytest

from base.topic_partition import TopicPartition
from broker.cluster.controlled_shutdown import move_leadership
from broker.network.outgoing import PeerUnavailable
from protocol.errors import ErrorCode, KafkaError

LED = [("t", 0), ("t", 1)]
SILENCE = object()
Response = Collection[TopicPartition] | Exception | object


class _Controller:
    def __init__(self, *responses: Response) -> None:
        self.responses = list(responses)

    async def ask(self) -> Collection[TopicPartition]:
        response = self.responses.pop(0)
        if response is SILENCE:
            await asyncio.Event().wait()
        if isinstance(response, Exception):
            raise response
        assert isinstance(response, list)
        return response


@pytest.mark.parametrize(
    ("responses", "succeeds", "left"),
    [
        ([[]], True, 0),
        ([LED, LED[:1], []], True, 0),
        ([LED, LED, LED, []], False, 1),
        ([KafkaError(ErrorCode.NOT_CONTROLLER), []], True, 0),
        ([PeerUnavailable("broker 2 at b:9092: refused"), SILENCE, []], True, 0),
        ([KafkaError(ErrorCode.STALE_BROKER_EPOCH)] * 3, False, 0),
    ],
)
async def test_attempts_end_with_the_last_partition_or_the_last_attempt(
    responses: list[Response], succeeds: bool, left: int
) -> None:
    controller = _Controller(*responses)
    assert await move_leadership(controller.ask, attempts_max=3, backoff_ms=0, timeout_ms=5) is succeeds
    assert len(controller.responses) == left


async def test_partitions_that_stay_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await move_leadership(_Controller(LED).ask, attempts_max=1, backoff_ms=0, timeout_ms=5)
    assert "still leading 2 partitions, among them t-0, t-1" in caplog.text
