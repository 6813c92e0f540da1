"""The table of error codes against the one taken from a live Apache Kafka 3.9.1."""

import csv
from pathlib import Path

import pytest

from protocol.errors import ERRORS, ErrorCode, KafkaError, without_frames

TABLE = Path(__file__).parents[1] / "fixtures" / "error-codes.csv"


def test_codes_and_reactions_are_those_of_kafka() -> None:
    with TABLE.open() as lines:
        expected = [
            (int(row["code"]), row["name"], row["retriable"] == "true", row["invalid_metadata"] == "true")
            for row in csv.DictReader(lines)
        ]
    ours = [(row.code.value, row.code.name, row.retriable, row.refresh_metadata) for row in ERRORS.values()]
    assert ours[: len(expected)] == expected
    assert ours[len(expected) :] == [  # of Kafka 4.0 and 4.1
        (128, "INVALID_REGULAR_EXPRESSION", False, False),
        (133, "SHARE_SESSION_LIMIT_REACHED", True, False),
    ]


def test_every_code_has_one_row_and_a_text() -> None:
    assert list(ERRORS) == list(ErrorCode)
    assert [code for code, row in ERRORS.items() if not row.message] == [ErrorCode.NONE]


def test_code_of_a_newer_peer_is_an_unknown_error() -> None:
    assert ErrorCode(max(ErrorCode) + 1) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError, match="NONE"):
        ErrorCode("NONE")


def test_a_code_that_refreshes_metadata_is_retriable() -> None:
    assert all(row.retriable for row in ERRORS.values() if row.refresh_metadata)


@pytest.mark.parametrize(
    ("error", "message", "text"),
    [
        (
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            "This server does not host this topic-partition.",
            "UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.",
        ),
        (KafkaError(ErrorCode.INVALID_CONFIG, "x is 5, not 6"), "x is 5, not 6", "INVALID_CONFIG: x is 5, not 6"),
        (KafkaError(ErrorCode.INVALID_CONFIG, ""), "", "INVALID_CONFIG: "),
    ],
)
def test_error_has_its_message_or_the_default(error: KafkaError, message: str, text: str) -> None:
    assert error.message == message
    assert str(error) == text


class _RefusedError(KafkaError):
    def __init__(self, code: ErrorCode, indexes: list[int]) -> None:
        super().__init__(code, "text")
        self.indexes = indexes


def test_copy_without_frames_has_the_same_message() -> None:
    def refuse() -> None:
        try:
            raise ValueError("cause")
        except ValueError as cause:
            raise _RefusedError(ErrorCode.CORRUPT_MESSAGE, [3]) from cause

    with pytest.raises(_RefusedError) as raised:
        refuse()
    copy = without_frames(raised.value)
    assert raised.value.__traceback__ is not None
    assert str(copy) == str(raised.value)
    assert type(copy) is _RefusedError
    assert (copy.code, copy.message, copy.indexes) == (ErrorCode.CORRUPT_MESSAGE, "text", [3])
    assert (copy.__traceback__, copy.__cause__, copy.__context__) == (None, None, None)


def test_copy_without_frames_of_an_os_error_keeps_its_fields() -> None:
    copy = without_frames(OSError(28, "No space left on device", "/data"))
    assert (copy.errno, copy.filename) == (28, "/data")
