"""kafka-transactions: lists and describes transactions, and finds and ends hanging ones (KIP-664).

A transaction is hanging (KIP-664) if a partition keeps it open and no coordinator knows it: read_committed consumers
stop at its start. `abort` ends it with a marker. `force-terminate` is for a transaction that its coordinator knows: it
fences the producer, which aborts the transaction.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from base.topic_partition import TopicPartition, partition_name
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tools.base.command_line import CommandLine, UsageError, run_tool
from tools.base.padded_table import padded_table
from tools.base.sub_commands import SubCommand, SubCommands
from tools.client.admin_client import TRANSACTION, AdminClient, CallTimedOut, raise_for
from tools.client.admin_options import add_admin_options, admin_client

NONE: Final = -1
MINUTE_MS: Final = 60_000
FENCING_TIMEOUT_MS: Final = 60_000
"""The transaction timeout of the fencing producer; it never begins a transaction."""
PROGRAM: Final = "kafka-transactions.sh"

Rows = Iterable[Sequence[object]]


class Failed(Exception):  # noqa: N818 - its message is printed unchanged
    """The command failed. The text is one line with the reason."""


class OpenTransaction(NamedTuple):
    """An open transaction of a partition."""

    partition: TopicPartition
    producer: ProducerState


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = SubCommands(
        PROGRAM,
        "This tool is used to analyze the transactional state of producers in the cluster.",
        {name: SubCommand(help_text, options) for name, (help_text, options, _) in COMMANDS.items()},
    )
    add_admin_options(line)
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.bootstrap_server is None:
        raise UsageError(f"{PROGRAM}: error: too few arguments")
    _, _, run = COMMANDS[options.command]
    try:
        with admin_client(options) as admin:
            run(admin, options)
    except (Failed, CallTimedOut) as error:
        return _failed(str(error))
    except KafkaError as error:
        return _failed(error.message)
    return 0


def _failed(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 1


# Commands


def _list(admin: AdminClient, options: argparse.Namespace) -> None:
    duration_ms = NONE if options.duration_filter is None else options.duration_filter
    rows = [
        (listed.transactional_id, broker_id, listed.producer_id, listed.transaction_state)
        for broker_id, response in _listings(admin, ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], duration_filter=duration_ms
        ))
        for listed in response.transaction_states
    ]  # fmt: skip
    _print_table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


def _describe(admin: AdminClient, options: argparse.Namespace) -> None:
    name = options.transactional_id
    try:
        coordinator = admin.coordinator(name, TRANSACTION)
        state = _described(admin, name)
    except KafkaError as error:
        raise Failed(
            f"Failed to describe transaction state of transactional-id `{name}`: {_why_not_described(name, error)} "
            "Enable debug logging for additional detail."
        ) from error
    started = state.transaction_start_time_ms
    is_open = started >= 0
    duration = _now_ms() - started if is_open else None
    partitions = ",".join(f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions)
    _print_table(
        (
            "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState",
            "TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
        ),
        [
            (
                coordinator, name, state.producer_id, state.producer_epoch, state.transaction_state,
                state.transaction_timeout_ms, started if is_open else None, duration, partitions,
            )
        ],
    )  # fmt: skip


def _describe_producers(admin: AdminClient, options: argparse.Namespace) -> None:
    rows = [
        (
            each.producer_id, each.producer_epoch, each.coordinator_epoch, each.last_sequence, each.last_timestamp,
            None if each.current_txn_start_offset == NONE else each.current_txn_start_offset,
        )
        for each in _producers(admin, (options.topic, options.partition), options.broker_id)
    ]  # fmt: skip
    _print_table(
        (
            "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
            "CurrentTransactionStartOffset",
        ),
        rows,
    )  # fmt: skip


def _find_hanging(admin: AdminClient, options: argparse.Namespace) -> None:
    if options.broker_id is None and options.topic is None:
        raise Failed(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if options.partition is not None and options.topic is None:
        raise Failed("The --partition argument requires --topic to be provided")
    now_ms = _now_ms()
    open_for_long = [
        OpenTransaction(partition, producer)
        for partition in _searched(admin, options)
        for producer in _producers(admin, partition, options.broker_id)
        if producer.current_txn_start_offset != NONE
        and now_ms - producer.last_timestamp > options.max_transaction_timeout * MINUTE_MS
    ]
    hanging = [each for each in open_for_long if not _is_known(admin, each)]
    _print_table(
        (
            "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
            "Duration(min)",
        ),
        [
            (
                *each.partition, each.producer.producer_id, each.producer.producer_epoch,
                each.producer.coordinator_epoch, each.producer.current_txn_start_offset, each.producer.last_timestamp,
                (now_ms - each.producer.last_timestamp) // MINUTE_MS,
            )
            for each in hanging
        ],
    )  # fmt: skip


def _abort(admin: AdminClient, options: argparse.Namespace) -> None:
    partition = (options.topic, options.partition)
    if options.start_offset is not None:
        found = [
            each for each in _producers(admin, partition, None) if each.current_txn_start_offset == options.start_offset
        ]
        if not found:
            raise Failed(
                f"Could not find any open transactions starting at offset {options.start_offset} on partition "
                f"{partition_name(partition)}"
            )
        producer_id, epoch = found[0].producer_id, found[0].producer_epoch
        # -1 where no marker of the transaction was written yet. Brokers reject a marker older than the last one.
        coordinator_epoch = max(found[0].coordinator_epoch, 0)
    elif options.producer_id is not None and options.producer_epoch is not None:
        producer_id, epoch = options.producer_id, options.producer_epoch
        coordinator_epoch = NONE if options.coordinator_epoch is None else options.coordinator_epoch
    else:
        raise Failed(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition[0], partition_indexes=[partition[1]])],
        coordinator_epoch=coordinator_epoch,
    )
    result = admin.call_leaders(
        [partition], lambda _: WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, _marker_results
    )[partition]
    if isinstance(result, KafkaError):
        raise Failed(
            f"Failed to abort the transaction of producer {producer_id} on {partition_name(partition)}: "
            f"{result.message}"
        )


def _force_terminate(admin: AdminClient, options: argparse.Namespace) -> None:
    name = options.transactional_id
    _described(admin, name)  # an unknown id must not be created
    response = admin.call_coordinator(
        name,
        InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=FENCING_TIMEOUT_MS),
        InitProducerIdResponse,
        lambda response: [response.error_code],
        TRANSACTION,
    )
    if response.error_code:
        raise Failed(
            f"Failed to terminate the transaction of transactional-id `{name}`: "
            f"{KafkaError(ErrorCode(response.error_code)).message}"
        )


# Requests


def _listings(admin: AdminClient, request: ListTransactionsRequest) -> Iterator[tuple[int, ListTransactionsResponse]]:
    for broker_id in sorted(broker.node_id for broker in admin.metadata([]).brokers):
        response = admin.call(request, ListTransactionsResponse, broker_id=broker_id)
        raise_for(response.error_code)
        yield broker_id, response


def _described(admin: AdminClient, name: str) -> TransactionState:
    """Raises KafkaError."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    return admin.query_coordinator(
        name, request, DescribeTransactionsResponse, lambda response: response.transaction_states, TRANSACTION
    )


def _why_not_described(name: str, error: KafkaError) -> str:
    if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found."
    return error.message


def _producers(admin: AdminClient, partition: TopicPartition, broker_id: int | None) -> list[ProducerState]:
    """Return the producers of a partition from its leader, or from one broker. Raises Failed."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=partition[0], partition_indexes=[partition[1]])])
    results: Mapping[TopicPartition, list[ProducerState] | KafkaError]
    if broker_id is None:
        results = admin.call_leaders([partition], lambda _: request, DescribeProducersResponse, _producer_results)
    else:
        admin.metadata([])
        results = dict(_producer_results(admin.call(request, DescribeProducersResponse, broker_id=broker_id)))
    found = results[partition]
    if isinstance(found, KafkaError):
        where = f"brokerId {broker_id}" if broker_id is not None else "the leader"
        raise Failed(
            f"Failed to describe producers for partition {partition_name(partition)} on {where}: {found.message}"
        )
    return found


def _producer_results(
    response: DescribeProducersResponse,
) -> Iterator[tuple[TopicPartition, list[ProducerState] | KafkaError]]:
    for topic in response.topics:
        for partition in topic.partitions:
            code = ErrorCode(partition.error_code)
            yield (
                (topic.name, partition.partition_index),
                KafkaError(code, partition.error_message) if code else partition.active_producers,
            )


def _marker_results(response: WriteTxnMarkersResponse) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                code = ErrorCode(partition.error_code)
                yield (topic.name, partition.partition_index), KafkaError(code) if code else None


def _searched(admin: AdminClient, options: argparse.Namespace) -> list[TopicPartition]:
    """Return the partitions to search for hanging transactions."""
    topics = admin.metadata(None if options.topic is None else [options.topic]).topics
    for topic in topics:
        raise_for(topic.error_code)
    return sorted(
        (topic.name or "", partition.partition_index)
        for topic in topics
        for partition in topic.partitions
        if options.partition in (None, partition.partition_index)
        and (options.broker_id is None or options.broker_id in partition.replica_nodes)
    )


def _is_known(admin: AdminClient, found: OpenTransaction) -> bool:
    """Return whether a coordinator has a transaction of that producer with the partition."""
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[found.producer.producer_id])
    topic, index = found.partition
    for _, response in _listings(admin, request):
        for listed in response.transaction_states:
            state = _described(admin, listed.transactional_id)
            if any(each.topic == topic and index in each.partitions for each in state.topics):
                return True
    return False


# Output


def _print_table(headings: Sequence[str], rows: Rows) -> None:
    for line in padded_table(headings, rows):
        print(line)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


NUMBER: Mapping[str, Any] = {"type": int}
NUMBER_REQUIRED: Mapping[str, Any] = {"type": int, "required": True}
TEXT_REQUIRED: Mapping[str, Any] = {"required": True}

Command = tuple[str, Mapping[str, Mapping[str, Any]], Callable[[AdminClient, argparse.Namespace], None]]

COMMANDS: Mapping[str, Command] = {
    "find-hanging": (
        "find hanging transactions",
        {
            "--broker-id": NUMBER,
            "--max-transaction-timeout": {"type": int, "default": 15, "help": "minutes (default: 15)"},
            "--topic": {},
            "--partition": NUMBER,
        },
        _find_hanging,
    ),
    "list": ("list transactions", {"--duration-filter": {"type": int, "help": "milliseconds"}}, _list),
    "describe": ("describe the state of an active transactional-id", {"--transactional-id": TEXT_REQUIRED}, _describe),
    "describe-producers": (
        "describe the states of active producers for a topic partition",
        {"--broker-id": NUMBER, "--topic": TEXT_REQUIRED, "--partition": NUMBER_REQUIRED},
        _describe_producers,
    ),
    "abort": (
        "abort a hanging transaction (requires administrative privileges)",
        {
            "--topic": TEXT_REQUIRED,
            "--partition": NUMBER_REQUIRED,
            "--start-offset": NUMBER,
            "--producer-id": NUMBER,
            "--producer-epoch": NUMBER,
            "--coordinator-epoch": NUMBER,
        },
        _abort,
    ),
    "force-terminate": (
        "fence the producer of a transactional-id, which aborts its transaction",
        {"--transactional-id": TEXT_REQUIRED},
        _force_terminate,
    ),
}


if __name__ == "__main__":
    raise SystemExit(main())
