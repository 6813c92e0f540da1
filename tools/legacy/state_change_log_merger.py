"""kafka.tools.StateChangeLogMerger: merges the state-change logs of several brokers in the order of time."""

from __future__ import annotations

import argparse
import heapq
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from glob import glob

from tools.base.command_line import CommandLine, UsageError, run_tool

_TIME_FORM = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
_TIME = re.compile(rf"\[({_TIME_FORM})\]")
_PARTITION = re.compile(r"\b([A-Za-z0-9._-]+)-(\d+)\b")

Line = tuple[str, int, str]
"""A time, whose texts sort like times, the number of the file, and the text."""


class LogError(Exception):
    """A log cannot be read; the text names it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    return run_tool(_command_line(), _run, arguments)


def _command_line() -> CommandLine:
    line = CommandLine(
        "StateChangeLogMerger",
        "Merges the state-change logs of several brokers to reconstruct a unified history.",
    )
    line.add_option("--logs", value="files", help_text="Comma separated list of state change logs.")
    line.add_option("--logs-regex", value="pattern", help_text="Pattern of the state change logs, as a shell has it.")
    line.add_option("--topic", value="topic", help_text="The topic whose state change logs should be merged.")
    line.add_option("--partitions", value="0,1", help_text="Comma separated list of partition ids.")
    line.add_option("--start-time", value="time", help_text="The earliest time: yyyy-MM-dd HH:mm:ss,SSS.")
    line.add_option("--end-time", value="time", help_text="The latest time, in the same form.")
    return line


def _run(line: CommandLine, options: argparse.Namespace) -> int:
    if (options.logs is None) == (options.logs_regex is None):
        raise UsageError('Provide arguments to exactly one of the two options "logs" or "logs-regex"')
    if options.partitions is not None and options.topic is None:
        raise UsageError("The option --topic is required when --partitions is specified")
    files = sorted(glob(options.logs_regex)) if options.logs is None else options.logs.split(",")
    if not files:
        raise UsageError(f"No file matches {options.logs_regex}")
    numbers = None if options.partitions is None else options.partitions.split(",")
    if numbers is not None and not all(number.isdecimal() for number in numbers):
        raise UsageError(f"Invalid partitions {options.partitions}, expected numbers as in 0,1")
    start, end = _time(options.start_time, ""), _time(options.end_time, "9999")
    try:
        with ExitStack() as opened:
            for at, _, text in heapq.merge(*(_lines(path, n, opened) for n, path in enumerate(files))):
                if start <= at <= end and _is_about(text, options.topic, numbers):
                    print(text)
    except LogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _time(text: str | None, default: str) -> str:
    if text is None:
        return default
    if re.fullmatch(_TIME_FORM, text) is None:
        raise UsageError(f"Invalid time {text}, expected yyyy-MM-dd HH:mm:ss,SSS")
    return text


def _lines(path: str, number: int, opened: ExitStack) -> Iterator[Line]:
    """Yield the lines of a log with a time; the others belong to the line before them."""
    try:
        file = open(path, encoding="utf-8", errors="replace")  # noqa: SIM115 - `opened` closes it
    except OSError as error:
        raise LogError(f"Cannot read {path}: {error.strerror}") from error
    opened.enter_context(file)
    pending: Line | None = None
    for text in file:
        match = _TIME.search(text)
        if match is not None:
            if pending is not None:
                yield pending
            pending = match[1], number, text.rstrip("\n")
        elif pending is not None:
            pending = *pending[:2], f"{pending[2]}\n{text.rstrip()}"
    if pending is not None:
        yield pending


def _is_about(text: str, topic: str | None, numbers: Sequence[str] | None) -> bool:
    return topic is None or any(
        name == topic and (numbers is None or number in numbers) for name, number in _PARTITION.findall(text)
    )


if __name__ == "__main__":
    raise SystemExit(main())
