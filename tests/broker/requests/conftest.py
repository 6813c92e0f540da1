"""Where the brokers of the tests of requests have their files."""

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(memory_path: Path) -> Path:
    """In memory: hundreds of brokers start here, and each syncs its first files."""
    return memory_path
