"""WriteTxnMarkers (27): the transaction coordinator makes partition leaders write markers.

v1 is flexible.
"""

from protocol.api_key import ApiKey
from protocol.schema import boolean, int16, int32, int64, message, string, struct


@struct
class WritableTxnMarkerTopic:
    name: string
    partition_indexes: list[int32]


@struct
class WritableTxnMarker:
    producer_id: int64
    producer_epoch: int16
    transaction_result: boolean  # False: abort
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int32


@message(ApiKey.WRITE_TXN_MARKERS, versions=range(0, 2), flexible=1)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int32
    error_code: int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: string
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: int64
    topics: list[WritableTxnMarkerTopicResult]


@message(ApiKey.WRITE_TXN_MARKERS, versions=range(0, 2), flexible=1)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult]
