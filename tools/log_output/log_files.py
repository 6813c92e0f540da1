"""The log of a program: rolling files and the console, which a server writes in one thread.

Owns: the thread, its bounded queue, the files and the layout of lines. Must not know what is logged, or which keys a
configuration has.

In a server, a log call formats the message and puts it into a queue, and never waits. If a disk is so slow that the
queue is full, lines are dropped, and one line says how many. A tool writes its lines synchronously.
"""

from __future__ import annotations

import atexit
import copy
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from config.log4j import Appender, LoggingPlan, pattern_parts

LINES_MAX: Final = 20_000
"""Lines that may wait for the disk."""
KEEP_ALL: Final = sys.maxsize
FLUSH_TIMEOUT_S: Final = 5.0
"""How long the end of the process waits for lines to be written."""
LEVEL_WORDS: Final = {5: "TRACE", 10: "DEBUG", 20: "INFO", 30: "WARN", 40: "ERROR", 50: "FATAL"}
COLOURS: Final = {30: "\x1b[33m", 40: "\x1b[31m", 50: "\x1b[31m"}
_RESET: Final = "\x1b[0m"
HAS_LINES: Final = "has_lines"
"""The attribute of records whose message has several lines on purpose."""
_ESCAPED: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) != "\t"} | {10: "\\n", 13: "\\r"}
"""Messages repeat what clients send: a name with a line break must not look like a line of its own."""


class Layout(logging.Formatter):
    """A conversion pattern of log4j, such as `[%d] %p %m (%c)%n`."""

    def __init__(self, pattern: str, *, is_coloured: bool = False) -> None:
        super().__init__()
        self._parts = [part for part in pattern_parts(pattern) if part[0] != "n"]
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        line = "".join(self._part(record, *part) for part in self._parts)
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line = f"{line}\n{record.exc_text}"
        colour = COLOURS.get(record.levelno) if self._is_coloured else None
        return f"{colour}{line}{_RESET}" if colour else line

    def _part(self, record: logging.LogRecord, letter: str, width: str, option: str) -> str:
        match letter:
            case "":
                return width
            case "d":
                text = f"{self.formatTime(record, '%Y-%m-%d %H:%M:%S')},{int(record.msecs):03d}"
            case "p":
                text = LEVEL_WORDS.get(record.levelno, record.levelname)
            case "m":
                text = record.getMessage()
                if not hasattr(record, HAS_LINES):
                    text = text.translate(_ESCAPED)
            case "c" | "C":
                parts = record.name.split(".")
                text = ".".join(parts[-int(option) :]) if option.isdecimal() and int(option) else record.name
            case "t":
                text = record.threadName or ""
            case "r":
                text = str(int(record.relativeCreated))
            case "L":
                text = str(record.lineno)
            case _:
                text = "%" if letter == "%" else ""
        least = width.partition(".")[0]
        if not least:
            return text
        return text.ljust(int(least[1:] or 0)) if least.startswith("-") else text.rjust(int(least))


class Sink(Protocol):
    """What lines are written to."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class LogWriter:
    """The thread that writes all lines of a process."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._queue: queue.Queue[tuple[QueuedAppender, logging.LogRecord] | None] = queue.Queue(lines_max)
        self._dropped_count = 0
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    def put(self, appender: QueuedAppender, record: logging.LogRecord) -> None:
        """Have the line written soon; drop it if too many wait."""
        try:
            self._queue.put_nowait((appender, record))
        except queue.Full:
            self._dropped_count += 1

    def close(self) -> None:
        """Write what waits, within `FLUSH_TIMEOUT_S`, and end the thread."""
        try:
            self._queue.put(None, timeout=FLUSH_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(FLUSH_TIMEOUT_S)

    def _run(self) -> None:
        used: set[QueuedAppender] = set()
        while (item := self._queue.get()) is not None:
            appender, record = item
            used.add(appender)
            appender.write(record)
            if self._queue.empty():
                if self._dropped_count:
                    dropped, self._dropped_count = self._dropped_count, 0
                    appender.write(
                        _line_about(f"{dropped} lines of the log were dropped: too many waited for the disk")
                    )
                for each in used:
                    each.flush_sink()
                used.clear()
        for each in used:
            each.flush_sink()


class DirectAppender(logging.Handler):
    """Writes lines to a file or the console."""

    def __init__(self, sink: Sink, layout: Layout, level: int = 0) -> None:
        super().__init__(level)
        self._sink = sink
        self._layout = layout
        self._has_failed = False

    def emit(self, record: logging.LogRecord) -> None:
        self.write(record)
        self.flush_sink()

    def write(self, record: logging.LogRecord) -> None:
        """Write one line. The first failure is reported on stderr."""
        try:
            self._sink.write(self._layout.format(record) + "\n")
            self._has_failed = False
        except (OSError, ValueError) as error:
            if not self._has_failed:
                self._has_failed = True
                print(f"cannot write the log: {error}", file=sys.stderr)

    def flush_sink(self) -> None:
        try:
            self._sink.flush()
        except (OSError, ValueError):
            self._has_failed = True


class QueuedAppender(DirectAppender):
    """Puts lines into the queue of a `LogWriter`, which calls `write` in its thread."""

    def __init__(self, writer: LogWriter, sink: Sink, layout: Layout, level: int = 0) -> None:
        super().__init__(sink, layout, level)
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        # The arguments may change before the thread reads them, so the message is made here.
        fixed = copy.copy(record)
        fixed.msg, fixed.args = record.getMessage(), None
        if record.exc_info:
            fixed.exc_text = self._layout.formatException(record.exc_info)
            fixed.exc_info = None
        self._writer.put(self, fixed)


NewAppender = Callable[[Sink, Layout, int], DirectAppender]


def install_in_background(plan: LoggingPlan, keep_count: int) -> LogWriter:
    """Make Python's loggers follow the plan, and write their lines in a thread."""
    writer = LogWriter()
    atexit.register(writer.close)
    install(plan, keep_count, partial(QueuedAppender, writer))
    return writer


def install(plan: LoggingPlan, keep_count: int = KEEP_ALL, new_appender: NewAppender = DirectAppender) -> None:
    """Make Python's loggers follow the plan. Files that cannot be opened are reported, and go to the console."""
    handlers = {name: _handler(new_appender, appender, keep_count) for name, appender in plan.appenders.items()}
    for name, logger_plan in plan.loggers.items():
        logger = logging.getLogger(name or None)
        if logger_plan.level is not None:
            logger.setLevel(logger_plan.level)
        logger.propagate = logger_plan.is_additive
        for appender_name in logger_plan.appenders:
            if (handler := handlers.get(appender_name)) is not None:
                logger.addHandler(handler)
    _report(plan.warnings)


def _handler(new_appender: NewAppender, appender: Appender, keep_count: int) -> logging.Handler:
    if appender.is_null:
        return logging.NullHandler()
    if appender.file is not None:
        from tools.log_output.rolling_file import RollingFile  # most tools log to the console

        try:
            file = RollingFile(appender, keep_count)
            return new_appender(file, Layout(appender.pattern), appender.threshold)
        except OSError as error:
            print(f"cannot open the log file {appender.file}: {error.strerror}", file=sys.stderr)
    stream = sys.stdout if appender.file is None and appender.target == "System.out" else sys.stderr
    is_coloured = stream.isatty() and "NO_COLOR" not in os.environ
    layout = Layout(appender.pattern, is_coloured=is_coloured)
    return new_appender(stream, layout, appender.threshold)


def _report(warnings: Iterable[str]) -> None:
    for warning in warnings:
        logging.getLogger("kafka.server.KafkaServer").warning("log4j: %s", warning)


def _line_about(text: str) -> logging.LogRecord:
    return logging.LogRecord("kafka.server.KafkaServer", logging.WARNING, "", 0, text, None, None)
