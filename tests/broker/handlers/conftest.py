"""A broker for handlers that are asked without sockets."""

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.in_process import InProcessBroker, running_broker

_numbers = itertools.count()


@pytest_asyncio.fixture
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[InProcessBroker]:
    """A broker of the test's own; starting one takes milliseconds."""
    async with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def name() -> str:
    """A name that was not used before."""
    return f"handled-{next(_numbers)}"
