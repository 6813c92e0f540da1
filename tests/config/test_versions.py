"""Names of releases."""

import pytest

from config.versions import version_problem


@pytest.mark.parametrize(
    "text", ["3.9-IV0", "3.9", "3.9.1", "2.4", "0.10.0", "0.10.0-IV1", "0.8.2", "0.8.2.1", "0.11.0.3", "4.0"]
)
def test_known_versions_are_parsed(text: str) -> None:
    assert version_problem(text) is None


@pytest.mark.parametrize("text", ["", "3", "3.9-IV7", "0.7", "9.9", "latest", "3.9-", "v3.9"])
def test_unknown_versions_are_rejected(text: str) -> None:
    assert "is not a valid version" in (version_problem(text) or "")
