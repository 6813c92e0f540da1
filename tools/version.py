"""What the tools say when they are asked for their version. Owns the line. Must not know who prints it."""

from config.versions import KAFKA_COMMIT_ID, KAFKA_VERSION


def version_line() -> str:
    """What `--version` prints."""
    return f"{KAFKA_VERSION} (Commit:{KAFKA_COMMIT_ID})"
