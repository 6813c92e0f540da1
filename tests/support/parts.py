"""Real parts that tests lean on: what happens when this machine lacks one.

A test that needs something the machine does not have skips with one line that says how to get it. In CI nothing may
skip, or a broken download would look like a green run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.java import UnavailableError


@contextmanager
def skip_when_unavailable() -> Iterator[None]:
    """Turn `UnavailableError` into a skip, except where the environment variable CI is set: there it stays an error."""
    try:
        yield
    except UnavailableError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
