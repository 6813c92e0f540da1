"""What the tests of the fixture share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a broker respond late, as on a busy machine."""
    monkeypatch.setattr("milena_broker.testing.operations.RESPONSE_DELAY_MAX_S", 60.0)
