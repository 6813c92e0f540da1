"""A fetched jar is compared with the hash that this project was tested with."""

import hashlib
from pathlib import Path

import pytest

from spark_jobs.pinned_jars import TABLE, WrongHashError, verify
from spark_jobs.session import CONNECTOR

CONTENT = b"a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "connector.sha256"
    path.write_text(f"{SHA256}  org_listed-1.jar\n")
    return path


def jar(folder: Path, name: str, content: bytes = CONTENT) -> str:
    path = folder / "a b" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path.as_uri()


def test_a_listed_jar_with_its_hash_is_accepted(tmp_path: Path, table: Path) -> None:
    verify([jar(tmp_path, "org_listed-1.jar")], is_complete=True, table=table)


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_listed_jar_with_another_hash_is_rejected(tmp_path: Path, table: Path, is_complete: bool) -> None:
    other = hashlib.sha256(b"another").hexdigest()
    with pytest.raises(WrongHashError, match=rf"org_listed-1\.jar has SHA-256 {other}, .* expects {SHA256}"):
        verify([jar(tmp_path, "org_listed-1.jar", b"another")], is_complete=is_complete, table=table)


def test_unlisted_jar_is_accepted_only_from_the_user(tmp_path: Path, table: Path) -> None:
    url = jar(tmp_path, "org_other-1.jar")
    verify([url], is_complete=False, table=table)
    with pytest.raises(WrongHashError, match="expects no such file"):
        verify([url], is_complete=True, table=table)


def test_the_table_lists_the_connector() -> None:
    organisation, module, version = CONNECTOR.split(":")
    assert f"  {organisation}_{module}-{version}.jar\n" in TABLE.read_text(), "python -m tests.support.lock_libraries"
