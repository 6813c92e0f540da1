"""DescribeProducers: what leaders know of producers."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.handlers import describe_producers
from broker.replica.partition import Leadership
from broker.transactions.markers import Marker
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from storage.producers.producer_state import ProducerEntry
from tests.broker.groups.served import counted_pauses
from tests.broker.transactions.served import ServedTransactions


async def test_producers_of_led_partitions_are_described(tmp_path: Path) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    partition = served.leading.lead("t", 0)
    served.leading.lead("t", 1).follow(Leadership(1, 2, 1, (2,), 1, (2,)))
    served.leading.produce(partition, 7, 3, 0)
    served.leading.produce(partition, 8, 0, 0)
    served.marker_writer.write(Marker(8, 0, True, 5), [("t", 0)])
    request = DescribeProducersRequest(
        topics=[TopicRequest(name="t", partition_indexes=[0, 1]), TopicRequest(name="nosuch", partition_indexes=[0]),
                TopicRequest(name="u", partition_indexes=[0]), TopicRequest(name="a b", partition_indexes=[0])]
    )  # fmt: skip
    first, nosuch, other, misnamed = (await served.ask(describe_producers, request, 0)).topics
    led, followed = first.partitions
    assert [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in led.active_producers
    ] == [(7, 3, 0, -1, 0), (8, 0, 0, 5, -1)]
    assert led.error_code == ErrorCode.NONE
    assert [each.last_timestamp for each in led.active_producers] == [0, served.here.clock.now_ms()]
    assert followed.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert nosuch.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert misnamed.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_other_work_may_run_between_the_producers_of_one_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = await ServedTransactions(tmp_path).lead_all()
    producer_state = served.leading.lead("t", 0).log.producer_state
    producer_state.load([ProducerEntry(number, 0) for number in range(2_000)], 0)
    pauses = counted_pauses(monkeypatch)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    ((described,),) = [topic.partitions for topic in (await served.ask(describe_producers, request, 0)).topics]
    assert [each.producer_id for each in described.active_producers] == [*range(2_000)]
    assert len(pauses) >= 10
