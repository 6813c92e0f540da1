"""Errors of a job, and the one line that its user reads about an error of Spark.

Spark reports a failure as pages of nested Java and Python traces. `cause_of` finds the innermost message.
"""

import re

# Spark explains the option in the lines before the reason, which may have several lines itself.
_DATA_LOSS = r"set the source option failOnDataLoss to false\.\s+Reason: (?P<cause>[^\n]+(?:\n\w[^\n]*)*)"
_PATTERNS = (
    # What a job raises itself, about a record.
    r"\[USER_RAISED_EXCEPTION\] (?P<cause>[^\n]+)",
    _DATA_LOSS,
    # The last line of a Python trace: in a task, or in foreachBatch.
    r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)*(?P<cause>\w[\w.]*(?:Error|Exception)?: [^\n]+)",
    # The innermost cause of Java's own traces.
    r".*Caused by: (?:[\w.$]+: )?(?P<cause>[^\n]+)",
    r"most recent failure: Lost task [^\n]*?\): (?:[\w.$]+: )?(?P<cause>[^\n]+)",
    r"terminated with exception: (?P<cause>[^\n]+)",
    # A method of Java that Python has called.
    r"An error occurred while calling [^\n]+\n: (?:[\w.$]+: )?(?P<cause>[^\n]+)",
)
_SQL_STATE = re.compile(r"\.? ?SQLSTATE: \w+.*")
_INCOMPATIBLE_STATE = re.compile(r"STATE_STORE_\w*(?:SCHEMA|INVALID|UNSUPPORTED|MISMATCH)\w*|STATEFUL_PROCESSOR_\w+")
_RESET_HINT = "start with a new --app-id, --checkpoint and --output, or remove it with bin/spark-job reset"
_LINE_LENGTH_MAX = 600


class JobError(Exception):
    """The job cannot start or continue; the text is for its user."""


def cause_of(error: BaseException) -> str:
    """Return one line that states why Spark failed."""
    text = str(error)
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    for pattern in _PATTERNS:
        if match := re.search(pattern, text, re.DOTALL if pattern.startswith(".*") else 0):
            line = " ".join(match["cause"].split("\n")).strip()
            break
    line = _SQL_STATE.sub("", line)[:_LINE_LENGTH_MAX]
    if state := _INCOMPATIBLE_STATE.search(text):
        named = line if state[0] in line else f"[{state[0]}] {line}"
        return f"{named}; the checkpoint has the state of another version of the job: {_RESET_HINT}"
    if re.search(_DATA_LOSS, text):
        return (
            f"{line.rstrip('.')}; the topic no longer has the records at which the checkpoint continues: {_RESET_HINT}"
        )
    return line
