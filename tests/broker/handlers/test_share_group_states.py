"""The five requests between brokers about states of share groups: results, errors, and who may send them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from protocol.errors import ErrorCode
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC
from protocol.messages import (
    delete_share_group_state as deleting,
)
from protocol.messages import (
    initialize_share_group_state as initializing,
)
from protocol.messages import (
    read_share_group_state as reading,
)
from protocol.messages import (
    read_share_group_state_summary as summing_up,
)
from protocol.messages import (
    write_share_group_state as writing,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.support.in_process import InProcessBroker, running_broker
from tests.support.in_process_cluster import until

TOPIC_ID = UUID(int=7)
KEY = "AAAAAAAAAAAAAAAAAAAABw"
SETTINGS = {"share.coordinator.state.topic.num.partitions": "2"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InProcessBroker]:
    async with running_broker(tmp_path_factory.mktemp("states"), SETTINGS) as running:
        await running.services.topics.ensure_internal(SHARE_GROUP_STATE_TOPIC)
        states = running.services.share().states.partitions
        await until(lambda: len([*states.active()]) == 2)
        yield running


async def ask(broker: InProcessBroker, module: Any, kind: str, group: str, partition: int, **fields: Any) -> Any:
    """Return the result of a request about one state."""
    name = module.__name__.rpartition(".")[2].title().replace("_", "")
    topic = getattr(module, f"{kind}Data")(
        topic_id=TOPIC_ID, partitions=[module.PartitionData(partition=partition, **fields)]
    )
    response = await broker.ask(getattr(module, f"{name}Request")(group_id=group, topics=[topic]), 0)
    ((result,),) = (topic.partitions for topic in response.results)
    assert response.results[0].topic_id == TOPIC_ID
    assert result.partition == partition
    return result


async def initialize(broker: InProcessBroker, group: str, partition: int = 0, epoch: int = 0, start: int = -1) -> Any:
    return await ask(broker, initializing, "InitializeState", group, partition, state_epoch=epoch, start_offset=start)


async def read(broker: InProcessBroker, group: str, leader_epoch: int, partition: int = 0) -> Any:
    return await ask(broker, reading, "ReadState", group, partition, leader_epoch=leader_epoch)


async def write(
    broker: InProcessBroker, group: str, leader_epoch: int, start: int, *batches: Any, **fields: int
) -> Any:
    values = {"start_offset": start, "state_batches": [*batches], **fields}
    if "state_epoch" not in values:
        values["state_epoch"] = (await summary(broker, group))[1]
    return await ask(broker, writing, "WriteState", group, 0, leader_epoch=leader_epoch, **values)


async def summary(broker: InProcessBroker, group: str) -> tuple[int, int, int, int]:
    found = await ask(broker, summing_up, "ReadStateSummary", group, 0, leader_epoch=-1)
    return found.error_code, found.state_epoch, found.leader_epoch, found.start_offset


def batch(first: int, last: int, state: int, count: int) -> writing.StateBatch:
    return writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_state_begins_moves_forward_and_ends(broker: InProcessBroker, name: str) -> None:
    assert await summary(broker, name) == (ErrorCode.NONE, 0, 0, -1)
    assert (await initialize(broker, name)).error_code == ErrorCode.NONE
    found = await read(broker, name, 3)
    assert (found.error_code, found.start_offset, found.state_batches) == (0, -1, [])
    epoch = found.state_epoch
    assert (await write(broker, name, 3, 5, batch(5, 6, 0, 1), batch(7, 7, 2, 1))).error_code == ErrorCode.NONE
    assert (await write(broker, name, 3, -1, batch(5, 5, 2, 2))).error_code == ErrorCode.NONE
    found = await read(broker, name, 4)
    assert (found.start_offset, found.state_batches) == (5, [batch(5, 5, 2, 2), batch(6, 6, 0, 1), batch(7, 7, 2, 1)])
    assert (await initialize(broker, name)).error_code == ErrorCode.NONE
    assert await summary(broker, name) == (ErrorCode.NONE, epoch, 4, 5)
    ended = await ask(broker, deleting, "DeleteState", name, 0)
    assert ended.error_code == ErrorCode.NONE
    assert await summary(broker, name) == (ErrorCode.NONE, 0, 0, -1)
    assert (await read(broker, name, 4)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_late_write_does_not_move_a_state_that_has_begun_again(broker: InProcessBroker, name: str) -> None:
    await initialize(broker, name)
    before = await read(broker, name, 3)
    await ask(broker, deleting, "DeleteState", name, 0)
    await initialize(broker, name)
    late = await write(broker, name, 3, 9, state_epoch=before.state_epoch)
    assert late.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert (await read(broker, name, 3)).start_offset == -1


async def test_earlier_epochs_are_fenced(broker: InProcessBroker, name: str) -> None:
    await initialize(broker, name, epoch=1, start=5)
    await read(broker, name, 3)
    refused = await read(broker, name, 2)
    assert (refused.error_code, refused.start_offset) == (ErrorCode.FENCED_LEADER_EPOCH, 0)
    assert (await write(broker, name, 2, 9, state_epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    await initialize(broker, name, epoch=2, start=5)
    assert (await write(broker, name, 3, 9, state_epoch=1)).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert (await initialize(broker, name, epoch=1)).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert await summary(broker, name) == (ErrorCode.NONE, 2, 3, 5)


async def test_a_broker_that_does_not_lead_the_state_says_so(broker: InProcessBroker, name: str) -> None:
    states = broker.services.share().states.partitions
    epochs = [(each.number, each.leader_epoch) for each in states]
    for number, _ in epochs:
        states.resign(number)
    assert (await initialize(broker, name)).error_code == ErrorCode.NOT_COORDINATOR
    for number, epoch in epochs:
        states.become_leader(number, epoch)
    assert (await initialize(broker, name)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await until(lambda: len([*states.active()]) == 2)
    assert (await initialize(broker, name)).error_code == ErrorCode.NONE


async def test_what_no_broker_means_is_refused(broker: InProcessBroker, name: str) -> None:
    assert (await initialize(broker, "")).error_code == ErrorCode.INVALID_GROUP_ID
    refused = await initialize(broker, name, partition=-1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message == "Partition -1: expected a number from 0 on."


async def test_clients_may_not_send_them_on_listeners_of_their_own(
    broker: InProcessBroker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.channel, "listener", "CLIENTS")
    assert (await initialize(broker, name)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (f"g:{KEY}:0", ErrorCode.NONE),
        (f"a:b:{KEY}:0", ErrorCode.NONE),
        (f"g:{KEY}", ErrorCode.INVALID_REQUEST),
        (f":{KEY}:0", ErrorCode.INVALID_REQUEST),
        ("g:id:0", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_the_coordinator_of_a_state_is_found_by_its_key(
    broker: InProcessBroker, key: str, code: ErrorCode
) -> None:
    response = await broker.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    ((found),) = response.coordinators
    assert (found.key, found.error_code, found.node_id) == (key, code, -1 if code else 0)
