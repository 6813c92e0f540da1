"""The release of Kafka that this broker and its tools stand for, in the form that scripts parse.

Owns the number, which the broker's start tells too. Must not know who prints it.
"""

KAFKA_VERSION = "3.9.1"
KAFKA_COMMIT_ID = "f745dfdcee2b9851"


def version_line() -> str:
    """What `--version` prints."""
    return f"{KAFKA_VERSION} (Commit:{KAFKA_COMMIT_ID})"
