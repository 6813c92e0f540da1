"""A broker for handlers that are asked without sockets."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.in_process import InProcessBroker, running_broker

_numbers = itertools.count()


@pytest.fixture
def tmp_path(memory_path: Path) -> Path:
    """In memory: a thousand brokers start here, and each syncs its first files."""
    return memory_path


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    """A broker of the test's own; starting one takes milliseconds."""
    async with running_broker(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """A name that was not used before."""
    return f"handled-{next(_numbers)}"
