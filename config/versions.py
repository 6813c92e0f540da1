"""Names of Kafka's releases in settings: `3.9-IV0` is a protocol version, `3.9` or `3.9.1` a release.

Owns the table of releases, and the release that this broker and its tools report, in the form that scripts parse. Must
not know what a release changes.
"""

KAFKA_VERSION = "3.9.1"
KAFKA_COMMIT_ID = "f745dfdcee2b9851"

# fmt: off
RELEASED_VERSIONS = (
    "0.8.0", "0.8.1", "0.8.2", "0.9.0", "0.10.0-IV0", "0.10.0-IV1", "0.10.1-IV0", "0.10.1-IV1", "0.10.1-IV2",
    "0.10.2-IV0", "0.11.0-IV0", "0.11.0-IV1", "0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1", "2.1-IV0",
    "2.1-IV1", "2.1-IV2", "2.2-IV0", "2.2-IV1", "2.3-IV0", "2.3-IV1", "2.4-IV0", "2.4-IV1", "2.5-IV0", "2.6-IV0",
    "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0",
    "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
    "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1",
)
# fmt: on


def version_problem(text: str) -> str | None:
    """Return what was expected if a text is not a known version, else None."""
    if text in RELEASED_VERSIONS:
        return None
    if "-" not in text and _release(text) in {_release(version) for version in RELEASED_VERSIONS}:
        return None
    return f"Version {text} is not a valid version. Expected one of {RELEASED_VERSIONS[0]} to {RELEASED_VERSIONS[-1]}"


def _release(version: str) -> str:
    """Return the release of a version: two numbers, or three if the first is 0."""
    numbers = version.partition("-")[0].split(".")
    return ".".join(numbers[: 3 if numbers[0] == "0" else 2])


def versions_until(text: str) -> frozenset[str]:
    """Return the versions that are not later than a known version or release."""
    return frozenset(RELEASED_VERSIONS[: _position(text) + 1])


def is_at_least(text: str, version: str) -> bool:
    """Return whether a known version or release is not earlier than another; a release means its last version."""
    return _position(text) >= _position(version)


def _position(text: str) -> int:
    if text in RELEASED_VERSIONS:
        return RELEASED_VERSIONS.index(text)
    return max(index for index, version in enumerate(RELEASED_VERSIONS) if _release(version) == _release(text))
