"""Where Milena answers differently from Apache Kafka 4.1, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FAILS: Final = "Kafka fails with UNKNOWN_SERVER_ERROR where Milena names what is wrong, or serves it"
NO_EMPTY_PARTITIONS: Final = (
    "Kafka lists partitions without records in the first response of a session, if it has loaded them"
)
EMPTY_GROUP: Final = "Kafka opens sessions for a group without a name, and then finds no state of it"
WHOLE_LIMIT: Final = "Kafka locks all that it has read, also beyond the limit of records that may be locked"
NEGATIVE_OFFSET: Final = "Kafka ignores what is acknowledged before the start, also offsets that cannot be"
NOT_IN_KAFKA: Final = "Kafka 4.1 lists AlterShareGroupOffsets but does not move anything"
LARGE_EXPRESSION: Final = "Milena refuses expressions that RE2 in other languages refuses for their size"
JOINS_AGAIN: Final = "Kafka fences a member that joins again while it is still in the group, until its session is over"
ONCE: Final = "Milena describes each group once, however often a request names it"
DUPLICATE: Final = "Kafka returns the time of a batch as that of the append if it has it already"
NO_START: Final = "Kafka returns the start of the log with a sequence error"
VERIFIED: Final = "Kafka does not compare the transactional id once the partition is part of a transaction"
TOTALS: Final = "Milena requests sums as totals, because it shows the latest value"

_ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    FAILS: (
        "fetches_that_are_refused: no group",
        "fetches_that_are_refused: empty member",
        "fetches_that_are_refused: no member",
        "fetches_that_are_refused: a member id that is none",
        "fetches_that_are_refused: unknown topic",
        "fetches_that_are_refused: unknown topic with an acknowledgement",
        "fetches_that_are_refused: acknowledges as an empty member",
        "a_group_that_nobody_joined: fetches",
        "start_offsets: of an unknown partition",
        "start_offsets: of an empty group",
        "commits_of_members: fetched with an epoch alone",
        "requests_of_the_classic_protocol: joins with metadata that is none",
        "topics_in_pages: invalid names",
    ),
    NO_EMPTY_PARTITIONS: (
        "fetches_that_are_refused: a member that has not joined",
        "sessions: opens again",
        "sessions: opens once more",
        "one_session_of_a_connection: another member on the connection",
        "one_session_of_a_connection: and opens anew there",
    ),
    EMPTY_GROUP: (
        "fetches_that_are_refused: empty group",
        "fetches_that_are_refused: acknowledges in an empty group",
    ),
    WHOLE_LIMIT: ("limits: all that may be locked", "limits: after some"),
    NEGATIVE_OFFSET: ("acknowledgements: a negative offset",),
    NOT_IN_KAFKA: (
        "start_offsets: moved with members",
        "start_offsets: moved",
        "start_offsets: described moved",
        "start_offsets: moved to a negative one",
        "start_offsets: moved beyond the end",
        "start_offsets: described beyond the end",
        "start_offsets: moved in an unknown partition",
        "start_offsets: moved in a negative partition",
        "start_offsets: moved twice",
        "start_offsets: described moved twice",
        "start_offsets: moved in an unknown group",
        "start_offsets: moved in an empty group",
        "start_offsets: moved no partitions",
    ),
    LARGE_EXPRESSION: ("regular_expressions: repetitions of repetitions",),
    JOINS_AGAIN: ("wrong_epochs: joins again",),
    ONCE: ("descriptions_and_lists: described twice",),
    DUPLICATE: ("transactions_of_version_2: the same again", "transactions_of_version_2: not transactional"),
    NO_START: ("transactions_of_version_2: a gap",),
    TOTALS: (
        "metrics_that_clients_push: begins",
        "metrics_that_clients_push: an instance that the broker does not know asks",
    ),
    VERIFIED: ("offsets_in_transactions: an unknown id", "offsets_in_transactions: an empty id"),
}
EXPLAINED: Final[Mapping[str, str]] = {row: reason for reason, rows in _ROWS.items() for row in rows}
"""The reason for each difference, by "case: label"."""
