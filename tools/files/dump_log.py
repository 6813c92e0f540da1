"""kafka-dump-log: prints the files of a partition, reports differences of indexes and logs, and verifies batches.

It reads the files of a stopped or a running broker and changes none of them.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from storage.disk.names import LOG, OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from tools.base.command_line import CommandLine, run_tool
from tools.files.index_dump import (
    Findings,
    IndexCheck,
    offset_index_lines,
    producer_snapshot_lines,
    time_index_lines,
    transaction_index_lines,
)
from tools.files.log_dump import LogDump
from tools.files.log_verification import Verification, log_files, progress
from tools.files.segment_files import DumpError, absolute
from tools.records.kraft_records import parse_metadata_record
from tools.records.record_parsers import (
    DEFAULT_DECODER,
    Parser,
    decoding_parser,
    parse_group_record,
    parse_share_state_record,
    parse_transaction_record,
)

_MESSAGE_SIZE_MAX: Final = 5 * 1024 * 1024
_OLD_DECODERS: Final = "kafka.serializer."
_NEW_DECODERS: Final = "org.apache.kafka.tools.api."
_SNAPSHOT: Final = ".checkpoint"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 1 if a file, or the rest of one, cannot be read."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "kafka-dump-log",
        "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
        "corrupt log segment.",
    )
    line.add_option(
        "--files", value="file1, file2, ...", help_text="REQUIRED without --verify: The files, separated by commas."
    )
    line.add_option(
        "--verify",
        value="dir ...",
        takes_several=True,
        help_text="Check the CRC and the offsets of every batch in log directories or partition folders instead; one "
        "line for each damaged batch, exit status 1 if there is any.",
    )
    line.add_flag("--print-data-log", "Print keys and values of records; also what any decoder does.")
    line.add_flag("--deep-iteration", "Print records, not batches alone; also what --print-data-log does.")
    line.add_flag("--verify-index-only", "Compare indexes with their log without printing them.")
    line.add_flag("--index-sanity-check", "Check indexes as a broker does when it starts, without printing them.")
    line.add_option(
        "--max-message-size",
        value="size",
        parse=int,
        default=_MESSAGE_SIZE_MAX,
        help_text="Accepted; batches of any size are read.",
    )
    line.add_option("--max-bytes", value="size", parse=int, help_text="Print the batches of so many bytes only.")
    for part in ("key", "value"):
        line.add_option(
            f"--{part}-decoder-class",
            value="class",
            value_is_optional=True,
            value_if_absent=DEFAULT_DECODER,
            help_text=f"Decodes each {part}: a decoder by its Java name, or module:Class. (default: {DEFAULT_DECODER})",
        )
    line.add_flag("--offsets-decoder", "Decode the records of the __consumer_offsets topic.")
    line.add_flag("--transaction-log-decoder", "Decode the records of the __transaction_state topic.")
    line.add_flag("--share-group-state-decoder", "Decode the records of the __share_group_state topic.")
    line.add_flag("--cluster-metadata-decoder", "Decode the records of a KRaft cluster's __cluster_metadata topic.")
    line.add_flag("--skip-record-metadata", "Print only keys and values of records.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if options.verify:
        line.forbid(options, "--verify", "--files")
        return _verify(options.verify)
    line.require(options, "--files")
    log_dump = _log_dump(options)
    check = _index_check(options)
    findings = Findings()
    has_failed = False
    for path in map(_normalized, options.files.rstrip(",").split(",")):
        _print(f"Dumping {path}")
        try:
            for text in _lines(path, log_dump, check, findings):
                _print(text)
        except DumpError as error:
            print(error, file=sys.stderr)
            has_failed = True
    for text in findings.lines():
        print(text, file=sys.stderr)
    return 1 if has_failed else 0


def _verify(directories: Sequence[str]) -> int:
    """Return the exit status: 1 if a batch is damaged or something cannot be read."""
    has_failed = False
    paths = []
    for directory in map(_normalized, directories):
        try:
            paths += log_files(directory)
        except DumpError as error:
            print(error, file=sys.stderr)
            has_failed = True
    verification = Verification()
    with progress(sum(size for _, size in paths)) as show:
        for path, _ in paths:
            show(path, verification.bytes_count)
            try:
                for damaged in verification.damaged_batches(path, lambda: show(path, verification.bytes_count)):  # noqa: B023
                    _print(str(damaged))
                    has_failed = True
            except DumpError as error:
                print(error, file=sys.stderr)
                has_failed = True
    _print(verification.summary())
    return 1 if has_failed else 0


def _lines(path: str, log_dump: LogDump, check: IndexCheck, findings: Findings) -> Iterator[str]:
    suffix = os.path.splitext(path)[1]
    if suffix in (LOG, _SNAPSHOT):
        return log_dump.lines(path, findings.gaps.setdefault(absolute(path), []))
    if suffix == OFFSET_INDEX:
        return offset_index_lines(path, check, findings)
    if suffix == TIME_INDEX:
        return time_index_lines(path, check, findings)
    if suffix == PRODUCER_SNAPSHOT:
        return producer_snapshot_lines(path)
    if suffix == TRANSACTION_INDEX:
        return transaction_index_lines(path)
    print(f"Ignoring unknown file {path}", file=sys.stderr)
    return iter(())


def _log_dump(options: argparse.Namespace) -> LogDump:
    parser = _parser(options)
    return LogDump(
        opens_batches=options.deep_iteration or parser is not None,
        parser=parser,
        has_record_metadata=not options.skip_record_metadata,
        size_max=options.max_bytes,
    )


def _parser(options: argparse.Namespace) -> Parser | None:
    """Return the parser of keys and values; None if they are not requested. Raises UsageError."""
    if options.offsets_decoder:
        return parse_group_record
    if options.transaction_log_decoder:
        return parse_transaction_record
    if options.share_group_state_decoder:
        return parse_share_state_record
    if options.cluster_metadata_decoder:
        return parse_metadata_record
    if options.print_data_log or options.key_decoder_class or options.value_decoder_class:
        return decoding_parser(_current(options.key_decoder_class), _current(options.value_decoder_class))
    return None


def _current(decoder: str | None) -> str:
    """Return the class name of a decoder in the current package."""
    if decoder is None:
        return DEFAULT_DECODER
    if not decoder.startswith(_OLD_DECODERS):
        return decoder
    current = _NEW_DECODERS + decoder.removeprefix(_OLD_DECODERS)
    print(f"{decoder} is deprecated. Please use {current} instead", file=sys.stderr)
    return current


def _index_check(options: argparse.Namespace) -> IndexCheck:
    if options.index_sanity_check:
        return IndexCheck.SANITY
    return IndexCheck.VERIFY if options.verify_index_only else IndexCheck.PRINT


def _normalized(path: str) -> str:
    """Return a path as java.io.File prints it: no repeated slashes, none at the end."""
    return re.sub("(?<=.)/+$", "", re.sub("/+", "/", path))


def _print(text: str) -> None:
    """Print a line on stdout as UTF-8 in any locale, because keys and values are UTF-8."""
    sys.stdout.buffer.write(text.encode() + b"\n")


if __name__ == "__main__":
    raise SystemExit(main())
