"""The file connectors without a file: lines of the standard input to a topic, and records to the standard output.

For a standalone worker in a shell: `... | connect-standalone ...`. Neither has offsets of its own.

Owns that there is no file. Must not know more than `file_stream`.
"""

from __future__ import annotations

from spark_jobs.connect.base.definitions import Definition
from spark_jobs.connect.connectors.file_stream import (
    LINES,
    FileStreamSinkConnector,
    FileStreamSinkTask,
    FileStreamSourceConnector,
    FileStreamSourceTask,
)


class ConsoleSourceTask(FileStreamSourceTask):
    definition = LINES


class ConsoleSourceConnector(FileStreamSourceConnector):
    """Sends each line of the standard input."""

    definition = LINES
    task = ConsoleSourceTask


class ConsoleSinkTask(FileStreamSinkTask):
    definition = Definition()


class ConsoleSinkConnector(FileStreamSinkConnector):
    """Writes the value of each record to the standard output, as a line."""

    definition = Definition()
    task = ConsoleSinkTask
