"""Every error code of a response is counted, wherever it stands."""

import pytest

from broker.requests.error_counts import error_counts
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.heartbeat import HeartbeatResponse
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.schema import Encoded


def partition(code: int) -> PartitionData:
    return PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=None)


def test_top_level_and_partition_codes_are_counted() -> None:
    topics = [
        FetchableTopicResponse(topic="a", partitions=[partition(0), partition(6)]),
        FetchableTopicResponse(topic="b", partitions=[partition(6)]),
    ]
    assert error_counts(FetchResponse(error_code=0, responses=topics), 12) == {0: 2, 6: 2}


def test_a_single_code_is_counted() -> None:
    assert error_counts(HeartbeatResponse(error_code=25), 4) == {25: 1}
    assert error_counts(InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=0), 4) == {0: 1}


def test_lists_may_be_empty_or_null() -> None:
    assert error_counts(CreateTopicsResponse(topics=[]), 5) == {}
    topic = CreatableTopicResult(name="t", error_code=36, configs=None)
    assert error_counts(CreateTopicsResponse(topics=[topic]), 5) == {36: 1}


def test_an_encoded_element_counts_once() -> None:
    assert error_counts(FetchResponse(error_code=0, responses=[Encoded(b"...")]), 12) == {0: 2}  # type: ignore[list-item]


@pytest.mark.parametrize(("version", "counts"), [(4, {6: 1}), (7, {0: 1, 6: 1})])
def test_a_field_that_a_version_lacks_is_not_counted(version: int, counts: dict[int, int]) -> None:
    topic = FetchableTopicResponse(topic="a", partitions=[partition(6)])
    assert error_counts(FetchResponse(error_code=0, responses=[topic]), version) == counts


def test_partitions_of_transactions_are_counted() -> None:
    results = [
        AddPartitionsToTxnTopicResult(
            name="t",
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index, code in enumerate((29, 55))
            ],
        )
    ]
    assert error_counts(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results), 3) == {29: 1, 55: 1}
