"""Fixtures of the storage tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A temporary folder, in memory if possible: for tests with thousands of small files."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=_MEMORY))
    yield folder
    shutil.rmtree(folder)
