"""The end of each module of these tests: clients that only reference cycles keep would log into other tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _clients_end() -> Iterator[None]:
    yield
    gc.collect()
