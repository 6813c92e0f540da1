"""The version that the tools print. Owns the text. Must not know who prints it."""

from config.versions import KAFKA_COMMIT_ID, KAFKA_VERSION


def version_line() -> str:
    """Return the text that `--version` prints."""
    return f"{KAFKA_VERSION} (Commit:{KAFKA_COMMIT_ID})"
